"""How much the other labels improve when some labels of a row are known.

    SPEN_DATA=FOLDER python benchmarks/known_labels.py [yeast bibtex ...] [--seeds 3] [--json]

A classifier with its default settings is fitted on the training rows. Of each test row a
random share of the labels is revealed, and the scores are those of the labels that stay
hidden: predicted without and with what was revealed. Nothing is chosen on test rows.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

import spen

SHARES = (0.1, 0.25, 0.5)


def hidden_scores(truth: np.ndarray, labels: np.ndarray, soft: np.ndarray, hidden: np.ndarray):
    """Return F1 in percent and mean log loss of the labels that are hidden."""
    seen = np.where(hidden, truth, np.nan)
    p = np.where(truth == 1, soft, 1 - soft)[hidden]
    return 100 * spen.example_f1(seen, labels), float(-np.log(np.maximum(p, 1e-12)).mean())


def measure(name: str, seed: int) -> list[dict[str, float | str]]:
    """Return a record for each share of revealed labels."""
    data = spen.load_dataset(name)
    classifier = spen.SPENClassifier(random_state=seed).fit(data.train.X, data.train.Y)
    truth = data.test.Y.toarray().astype(float)
    draws = np.random.default_rng(seed).random(truth.shape)
    free = classifier.predict(data.test.X), classifier.predict_proba(data.test.X)
    records = []
    for share in SHARES:
        hidden = draws >= share
        known = np.where(hidden, np.nan, truth)
        held = (
            classifier.predict(data.test.X, known=known),
            classifier.predict_proba(data.test.X, known=known),
        )
        f1, loss = hidden_scores(truth, *free, hidden)
        known_f1, known_loss = hidden_scores(truth, *held, hidden)
        records.append(
            {"set": name, "seed": seed, "revealed": share, "f1": f1, "known_f1": known_f1}
            | {"log_loss": loss, "known_log_loss": known_loss}
        )
    return records


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("sets", nargs="*", default=["yeast"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for name in options.sets:
        records = [r for seed in range(options.seeds) for r in measure(name, seed)]
        for share in SHARES:
            mine = [record for record in records if record["revealed"] == share]
            columns = ("f1", "known_f1", "log_loss", "known_log_loss")
            values = {c: np.array([float(r[c]) for r in mine]) for c in columns}
            if options.json:
                means = {c: float(v.mean()) for c, v in values.items()}
                print(json.dumps({"set": name, "revealed": share, "seeds": options.seeds} | means))
                continue
            f1, known, loss, known_loss = (
                f"{v.mean():.3g} ± {v.std():.2g}" for v in values.values()
            )
            print(
                f"{name:10s} {100 * share:3.0f} % revealed   F1 of the others {f1} -> {known}"
                f"   log loss {loss} -> {known_loss}"
            )


if __name__ == "__main__":
    main()
