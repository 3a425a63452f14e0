"""A study of known labels: what the energy makes of them, beside classifier chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import spen
from spen import Dataset, Split
from spen.baselines import ITERATIONS, STRENGTHS
from spen.cli.show import say
from spen.errors import check_whole, choose
from spen.estimators.calibration import Calibration
from spen.estimators.decoding import decode, tune_empty, tune_threshold
from spen.estimators.plan import HELD_OUT
from spen.estimators.scaling import Scaling
from spen.metrics import as_array
from spen.model import usable_device
from spen.training.optimisers import LBFGS
from spen_paper.figures import draw
from spen_paper.fits import DECODINGS, describe_plan, tell
from spen_paper.records import Record
from spen_paper.studies.study import Scores, Study, compare, curves

REVEALED = (0, 1, 2, 3)
CHAINS = {"chain": 1, "chains": 10}
PAIRS = (("SPEN", "MLP"), ("SPEN", "10 chains"))
TITLES = {"mlp": "MLP", "chain": "chain", "chains": "10 chains", "spen-known": "SPEN"}


class Decoder(Protocol):
    """What predicts with known labels and decodes two ways: LabelClassifier, ChainClassifier."""

    def predict_proba(self, X: Any, known: Any = None) -> np.ndarray: ...

    def decode(self, probabilities: np.ndarray, decoding: str) -> np.ndarray: ...


METRICS = {
    "f1": "more true labels than are revealed",
    "f1_same_rows": f"more than {REVEALED[-1]} true labels, the same throughout",
}


def known_labels(*, dataset: str, seeds: int, device: str, out: Path) -> None:
    """Compare methods on the hidden labels when some of a row's true labels are revealed."""
    study = Study.open("table1-known-labels", dataset, seeds, device, out)
    if not ((as_array(study.data.test.Y) == 1).sum(1) > REVEALED[-1]).any():
        raise spen.InputError(
            f"No test row of {study.data.name} has more than {REVEALED[-1]} labels, so there is "
            "nothing to reveal. Choose another data set."
        )
    found = {
        name: [_records(study, method, seed) for seed in range(seeds)]
        for method, name in TITLES.items()
    }
    cells = {
        metric: {
            str(count): {name: _scores(each, count, metric) for name, each in found.items()}
            for count in REVEALED
        }
        for metric in METRICS
    }
    for metric, words in METRICS.items():
        say(f"Rows with {words}\n")
        say(f"{compare('revealed', cells[metric], PAIRS)}\n")
    for line in IN_WORDS:
        say(line)
    study.tell_protocol()
    panels = curves(REVEALED, cells["f1_same_rows"])
    path = study.records.folder / "known-labels"
    draw(lambda plots: plots.draw_curves(panels, path, "labels revealed", log=False))


IN_WORDS = (
    "F1 of the labels that stay hidden: what is revealed leaves truth and prediction.",
    "The MLP cannot use what is revealed. In a chain it stands in for the predictions that",
    "later labels are told; 10 chains of random orders are averaged. All are tuned, as ever,",
    "on held-out training rows with nothing revealed. The picture has the rows with more than",
    f"{REVEALED[-1]} labels.",
)


def reveal(truth: np.ndarray, count: int, seed: int | Sequence[int]) -> np.ndarray:
    """Return known labels (n, L): 1 for ``count`` true labels of each row, drawn, nan elsewhere.

    What fewer reveal, more reveal too. A row with fewer true labels has all of them revealed.

    >>> known = reveal(np.array([[1, 0, 1, 1]]), 2, seed=0)
    >>> np.nansum(known), np.isnan(known).sum()
    (np.float64(2.0), np.int64(2))
    """
    draws = np.random.default_rng(seed).random(truth.shape) + 1
    ranks = (-draws * (truth == 1)).argsort(1).argsort(1)
    return np.where((ranks < count) & (truth == 1), 1.0, np.nan)


def hidden_scores(
    classifier: Decoder, data: Dataset, known: np.ndarray, rows: dict[str, np.ndarray]
) -> dict[str, dict[str, float]]:
    """Return the F1 in percent of the labels that are not known, by decoding and set of rows.

    Args:
        classifier: fitted.
        data: whose test rows are predicted.
        known: (n, L) of 1, and nan for what stays hidden.
        rows: (n,) of bool, by name: the rows that a score is the mean of.
    """
    hidden = np.isnan(known)
    truth = np.where(hidden, as_array(data.test.Y), np.nan)
    p = classifier.predict_proba(data.test.X, known=None if hidden.all() else known)
    scores = {}
    for decoding in DECODINGS:
        labels = decide_hidden(classifier, p, hidden, decoding)
        scores[decoding] = {
            name: round(100 * spen.example_f1(truth[some], labels[some]), 4)
            for name, some in rows.items()
        }
    return scores


def decide_hidden(
    classifier: Decoder, p: np.ndarray, hidden: np.ndarray, decoding: str
) -> np.ndarray:
    """Return a decision about the hidden labels alone, (n, L): what is known is not to be decided.

    Args:
        classifier: fitted.
        p: (n, L) probabilities.
        hidden: (n, L) True where a label was not known.
        decoding: by name.
    """
    return classifier.decode(np.where(hidden, p, np.zeros((), p.dtype)), decoding)


def _records(study: Study, method: str, seed: int) -> dict[str, Record]:
    """Return the records of one fit: every number of revealed labels, and both decodings."""
    data = study.data
    made: Any
    if method in CHAINS:
        made = ChainClassifier(CHAINS[method], device=study.device, seed=seed)
        settings: Record = {"chains": CHAINS[method]}
    else:
        made = study.classifier(method, seed)
        settings = describe_plan(made, data)
    wanted = {
        _key(count, each): study.identity(method, seed, data, settings | {"revealed": count}, each)
        for count in REVEALED
        for each in DECODINGS
    }

    def measure() -> dict[str, Record]:
        return _measure(made.fit(data.train.X, data.train.Y), data, seed)

    found = study.records.make_all(wanted, measure)
    tell(f"{method}, seed {seed}", found)
    return found


def _measure(classifier: Decoder, data: Dataset, seed: int) -> dict[str, Record]:
    truth = as_array(data.test.Y)
    sizes = (truth == 1).sum(1)
    measured = {}
    for count in REVEALED:
        rows = dict(zip(METRICS, (sizes > count, sizes > REVEALED[-1]), strict=True))
        scores = hidden_scores(classifier, data, reveal(truth, count, seed), rows)
        counts = {name: int(some.sum()) for name, some in rows.items()}
        for decoding in DECODINGS:
            measured[_key(count, decoding)] = {"metrics": scores[decoding], "rows": counts}
    return measured


def _key(count: int, decoding: str) -> str:
    return f"{count} revealed, {decoding}"


def _scores(found: list[dict[str, Record]], count: int, metric: str) -> Scores:
    return {
        decoding: [each[_key(count, decoding)]["metrics"][metric] for each in found]
        for decoding in DECODINGS
    }


# Chains that take known labels: what a SPEN is compared with ------------------------------------


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
        kept, held = spen.hold_out(rows, HELD_OUT, self.seed)
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
