"""Classifier chains that take known labels: what a SPEN's known labels are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from spen.baselines import ITERATIONS, STRENGTHS
from spen.batch.splits import Split, hold_out
from spen.decoding import decode, tune_empty, tune_threshold
from spen.errors import check_whole, choose
from spen.estimators.calibration import Calibration
from spen.estimators.scaling import Scaling
from spen.metrics import as_array
from spen.model import usable_device
from spen.training.optimisers import LBFGS

HELD_OUT = 0.2


@dataclass(frozen=True)
class Chain:
    """p(y_j | x, earlier labels) = σ(w_j·x + v_j·y + b_j), one logistic regression a label.

    Attributes:
        order: (L,) the labels, the first of the chain first.
        weight: (L, d) w.
        links: (L, L) v; zero but for labels that come earlier in the order.
        bias: (L,) b.
    """

    order: Tensor
    weight: Tensor
    links: Tensor
    bias: Tensor

    def scores(self, X: Tensor, Y: Tensor) -> Tensor:
        """Return the log-odds of each label, (n, L), given true earlier ones."""
        return X @ self.weight.T + Y @ self.links.T + self.bias

    def probabilities(self, X: Tensor, known: Tensor | None = None) -> Tensor:
        """Return p (n, L), where each label is told the decisions before it.

        Args:
            X: (n, d).
            known: (n, L) of 1, 0 and nan; a known label stands in for its decision.
        """
        scores = X @ self.weight.T + self.bias
        decided, p = torch.zeros_like(scores), torch.zeros_like(scores)
        for j in self.order.tolist():
            p[:, j] = torch.sigmoid(scores[:, j] + decided @ self.links[j])
            decided[:, j] = (p[:, j] > 0.5).to(p.dtype)
            if known is not None:
                decided[:, j] = torch.where(known[:, j].isnan(), decided[:, j], known[:, j])
        return p


def fit_chain(X: Tensor, Y: Tensor, order: Tensor, C: float) -> Chain:
    """Fit all links of a chain at once: given true labels they are independent problems.

    Args:
        X: (n, d) numbers.
        Y: (n, L) of 0 and 1.
        order: (L,) the labels, the first of the chain first.
        C: the inverse strength of the l2 regularisation, as in scikit-learn.
    """
    rows, labels = Y.shape
    place = torch.empty_like(order)
    place[order] = torch.arange(labels, device=order.device)
    earlier = (place[None, :] < place[:, None]).to(X.dtype)
    weight = torch.zeros(labels, X.shape[1], dtype=X.dtype, device=X.device, requires_grad=True)
    links = torch.zeros_like(earlier, requires_grad=True)
    bias = torch.zeros(labels, dtype=X.dtype, device=X.device, requires_grad=True)

    def closure() -> float:
        scores = X @ weight.T + Y @ (links * earlier).T + bias
        loss = F.binary_cross_entropy_with_logits(scores, Y, reduction="sum") / rows
        loss.backward()
        return loss.item()

    decayed = {"params": [weight, links], "weight_decay": 1 / (C * rows)}
    optimiser = LBFGS([decayed, {"params": [bias]}])
    for _ in range(ITERATIONS):
        optimiser.step(closure)
        if optimiser.ended:
            break
    return Chain(order, weight.detach(), links.detach() * earlier, bias.detach())


class ChainClassifier:
    """An ensemble of classifier chains (Read et al., 2011), treated like spen's classifiers.

    Each chain has a random order; their probabilities are averaged. The strength of the
    regularisation, calibration and decoding come from a held-out fifth of the rows.

    Args:
        chains: how many.
        device: where to compute.
        seed: decides the orders and the held-out rows.

    >>> import spen
    >>> data = spen.exclusive_blocks(n_train=90, n_test=100)
    >>> clf = ChainClassifier().fit(data.train.X, data.train.Y)
    >>> clf.decode(clf.predict_proba(data.test.X), "threshold").shape
    (100, 16)
    """

    def __init__(self, chains: int = 1, *, device: str = "auto", seed: int = 0) -> None:
        check_whole(chains, "chains")
        self.n_chains = chains
        self.device = usable_device(device)
        self.seed = seed

    def fit(self, X: Any, Y: Any) -> ChainClassifier:
        """Learn from rows X (n, d) and their labels Y (n, L) of 0 and 1."""
        self.scaling = Scaling.of(X)
        rows = Split(self._tensor(self.scaling.transform(X)), self._tensor(Y))
        rng = np.random.default_rng(self.seed)
        labels = rows.Y.shape[1]
        orders = [self._tensor(rng.permutation(labels)).long() for _ in range(self.n_chains)]
        kept, held = hold_out(rows, HELD_OUT, self.seed)
        firsts = {C: fit_chain(kept.X, kept.Y, orders[0], C) for C in STRENGTHS}
        self.C = min(STRENGTHS, key=lambda C: _log_loss(firsts[C], held))
        others = [fit_chain(kept.X, kept.Y, order, self.C) for order in orders[1:]]
        soft = _mean_probabilities([firsts[self.C], *others], held.X, None)
        truth = as_array(held.Y)
        self.calibration = Calibration.of(truth, soft, exclusive=False)
        soft = self.calibration.apply(soft)
        self.tuned = {
            "threshold": tune_threshold(truth, soft)[0],
            "expected_f1": tune_empty(truth, soft),
        }
        self.chains = [fit_chain(rows.X, rows.Y, order, self.C) for order in orders]
        return self

    def predict_proba(self, X: Any, known: np.ndarray | None = None) -> np.ndarray:
        """Return probabilities (n, L); known labels (1, 0, nan for unknown) have their value."""
        inputs = self._tensor(self.scaling.transform(X))
        held = None if known is None else self._tensor(known)
        soft = self.calibration.apply(_mean_probabilities(self.chains, inputs, held))
        return soft if known is None else np.where(np.isnan(known), soft, known)

    def decode(self, probabilities: np.ndarray, decoding: str) -> np.ndarray:
        """Turn probabilities into labels of 0 and 1, (n, L)."""
        return decode(probabilities, decoding, choose(decoding, self.tuned, "decoding"))

    def _tensor(self, matrix: Any) -> Tensor:
        return torch.tensor(as_array(matrix, np.float32), device=self.device)


def _log_loss(chain: Chain, rows: Split) -> float:
    """Return −log p(y | x), summed over rows: what the links of a chain are fitted by."""
    scores = chain.scores(rows.X, rows.Y)
    return float(F.binary_cross_entropy_with_logits(scores, rows.Y, reduction="sum"))


def _mean_probabilities(chains: list[Chain], X: Tensor, known: Tensor | None) -> np.ndarray:
    return torch.stack([chain.probabilities(X, known) for chain in chains]).mean(0).cpu().numpy()
