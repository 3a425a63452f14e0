"""Forests of scikit-learn as tensors: kept in a model file, and walked by code of our own."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from spen.errors import CheckpointError, check_whole
from spen.features import Features
from spen.kernels.cpu.trees import find_leaves


def forest_kinds() -> dict[str, Any]:
    """Return the forests that become tensors, by the name of their class."""
    # Here, because they take long to import and most models have none.
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

    return {kind.__name__: kind for kind in (ExtraTreesClassifier, RandomForestClassifier)}


class Forest(Features):
    """F(x) = the log-odds that a forest of decision trees gives each label, (n, L).

    The trees of a row's leaves say how probable a label is: p is their mean. No forest is certain
    because its T trees agree, so the log-odds are those of (p T + ½) / (T + 1): as if one more
    tree had said ½.

    Inputs are finite, as those of all models are.

    Args:
        n_inputs: d.
        n_labels: L.
        trees: T.
        nodes: of all trees together.
        values: how many different leaves there are.

    >>> from sklearn.ensemble import ExtraTreesClassifier
    >>> X = np.arange(8, dtype=np.float32)[:, None]
    >>> trees = ExtraTreesClassifier(9, random_state=0).fit(X, (X > 3).astype(int).ravel())
    >>> Forest.from_sklearn(trees, n_labels=1).of(torch.tensor([[0.0], [7.0]])).ravel()
    tensor([-2.9444,  2.9444])
    """

    draws_itself: ClassVar[bool] = True
    roots: Tensor
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    values: Tensor

    def __init__(self, n_inputs: int, n_labels: int, trees: int, nodes: int, values: int) -> None:
        super().__init__()
        sizes = {"n_inputs": n_inputs, "n_labels": n_labels, "trees": trees, "nodes": nodes}
        for name, size in (sizes | {"values": values}).items():
            check_whole(size, name)
        self.n_inputs, self.n_features = n_inputs, n_labels
        # The first node of each tree; and of each node the feature it looks at (−1 at a leaf),
        # the most that goes left, and the next nodes. The left of a leaf is its row of values.
        self.register_buffer("roots", torch.zeros(trees, dtype=torch.int32))
        for name in ("feature", "left", "right"):
            self.register_buffer(name, torch.zeros(nodes, dtype=torch.int32))
        self.register_buffer("threshold", torch.zeros(nodes, dtype=torch.float32))
        self.register_buffer("values", torch.zeros(values, n_labels, dtype=torch.float32))

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many trees, nodes and values there are."""
        return len(self.roots), len(self.feature), len(self.values)

    @classmethod
    def from_sklearn(cls, forest: Any, n_labels: int) -> Forest:
        """Take over a fitted forest of scikit-learn, whose targets were labels of 0 and 1.

        Args:
            forest: an ExtraTreesClassifier or a RandomForestClassifier.
            n_labels: how many labels it was fitted to; a single one as a 1-D target.
        """
        parts: dict[str, list[np.ndarray]] = {
            name: [] for name in ("feature", "threshold", "left", "right")
        }
        # The place of a label's 1 among its classes; a label that is always 0 has none.
        classes: list[Any] = [forest.classes_] if n_labels == 1 else forest.classes_
        places = np.array([len(each) - 1 for each in classes])
        possible = np.array([each[-1] == 1 for each in classes], np.float32)
        roots, said = [0], dict[bytes, int]()
        for tree in (each.tree_ for each in forest.estimators_):
            leaf = tree.children_left < 0
            shares = tree.value[leaf][:, np.arange(n_labels), places].astype(np.float32) * possible
            left = (tree.children_left + roots[-1]).astype(np.int32)
            # Leaves of grown trees say one of a few things, so what they say is kept once.
            left[leaf] = [said.setdefault(row.tobytes(), len(said)) for row in shares]
            parts["feature"].append(np.where(leaf, -1, tree.feature).astype(np.int32))
            parts["threshold"].append(np.where(leaf, 0, floor32(tree.threshold)))
            parts["left"].append(left)
            right = np.where(leaf, 0, tree.children_right + roots[-1])
            parts["right"].append(right.astype(np.int32))
            roots.append(roots[-1] + len(leaf))
        flat = {name: np.concatenate(arrays) for name, arrays in parts.items()}
        flat["roots"] = np.array(roots[:-1], np.int32)
        flat["values"] = np.frombuffer(bytearray().join(said), np.float32).reshape(-1, n_labels)
        made = cls(forest.n_features_in_, n_labels, len(roots) - 1, roots[-1], len(said))
        made.load_state_dict({name: torch.from_numpy(array) for name, array in flat.items()})
        return made

    def forward(self, inputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        leaves = self.left[self.leaves(inputs)]
        share = F.embedding_bag(leaves, self.values, mode="mean").to(inputs.dtype)
        trees = len(self.roots)
        return torch.logit((share * trees + 0.5) / (trees + 1))

    def leaves(self, inputs: Tensor) -> Tensor:
        """Return the node in which each row ends in each tree, (n, T)."""
        # Trees are fitted to float32, and so are rows compared, whatever they come as.
        rows, threshold = inputs.float(), self.threshold.float()
        tree = (self.roots, self.feature, threshold, self.left, self.right)
        if rows.device.type == "cpu":
            found = find_leaves(rows.numpy(), *(part.numpy() for part in tree))
            if found is not None:
                return torch.from_numpy(found)
        node = self.roots.expand(len(rows), -1).long()
        while True:
            feature = self.feature[node]
            inner = feature >= 0
            if not inner.any():
                return node.int()
            goes_left = rows.gather(1, feature.clamp_min(0).long()) <= threshold[node]
            then = torch.where(goes_left, self.left[node], self.right[node])
            node = torch.where(inner, then.long(), node)

    def reset(self, generator: torch.Generator) -> None:
        """Leave the trees as they are."""

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        super()._load_from_state_dict(*args, **options)
        self._check()

    def _check(self) -> None:
        """Raise unless all ways through all trees end, and never leave the tensors.

        In every tree nodes come after those that lead to them, so no way has a circle.
        """
        if self.feature.is_meta:
            return
        _, nodes, values = self.sizes
        roots, number = self.roots.long(), torch.arange(nodes, device=self.feature.device)
        sound = bool(roots[0] == 0 and roots[-1] < nodes and (roots.diff() > 0).all())
        if sound:
            ends = torch.cat([roots[1:], roots.new_tensor([nodes])])
            end = ends.repeat_interleave(ends - roots)
            inner = self.feature >= 0
            sound = bool((self.feature < self.n_inputs).all())
            for child in (self.left, self.right):
                sound &= bool(((child > number) & (child < end))[inner].all())
            said = self.left[~inner]
            sound &= bool(((said >= 0) & (said < values)).all())
            sound &= bool(((self.values >= 0) & (self.values <= 1)).all())
        if not sound:
            raise CheckpointError("It holds a forest whose trees lead out of the file.")

    def extra_repr(self) -> str:
        trees, nodes, values = self.sizes
        return f"{self.n_inputs}, {self.n_features}, {trees=}, {nodes=}, {values=}"


def floor32(numbers: np.ndarray) -> np.ndarray:
    """Return the largest float32 that is not above each number.

    A float32 x is at most a float64 t just where it is at most this.

    >>> floor32(np.array([0.1, 0.5, -0.1]))
    array([ 0.09999999,  0.5       , -0.1       ], dtype=float32)
    """
    near = numbers.astype(np.float32)
    return np.where(near > numbers, np.nextafter(near, np.float32(-np.inf)), near)
