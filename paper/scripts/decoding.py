"""What decoding takes: taggers with a chain and with windows beside a local one, as ratios.

    python paper/scripts/decoding.py [--device cpu] [--sentences 512] [--seconds 5]
        [--out paper/records/sequences/decoding-cpu.json]
    python paper/scripts/decoding.py --show paper/records/sequences/decoding-cpu.json

Sentences of random words, as long as tweets and as those of CoNLL-2000. Each tagger has the same
feature network (words, characters, a recurrent layer); it is fitted for one epoch, for what it has
learned does not matter. A call takes sentences that are encoded already through the feature network
to the best tagging of each; of the local tagger that is a forward pass and an argmax. Calls take
turns; the ratio is that of the quickest rounds.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import spen
from spen.batch.context import Context
from spen.cli.show import text_table
from spen.features import evaluating
from spen.files import versions
from spen_paper.bench.timing import interleave
from spen_paper.fits import device_in_words

SHAPES = {"tweets, 25 tags": (15, 25), "CoNLL-2000, 23 tags": (24, 23), "45 tags": (24, 45)}
"""The mean length of sentences, and how many tags there are."""

CHAIN = spen.LocalEnergy.unsized() + spen.ChainEnergy.unsized()
WINDOWS = CHAIN + spen.ConvolutionEnergy.unsized()
STEPS = spen.Stopping(5, 0.0, 0.0)
KINDS = {
    "local": {"energy": "local"},
    "chain": {"energy": "chain"},
    "chain + convolution, 5 steps of descent": {"energy": "chain+convolution"},
    "chain + convolution, best of 16": {
        "energy": WINDOWS,
        "objective": spen.NBestLikelihood(16),
        "inference": spen.BestOf(16),
    },
    "chain + convolution, 5 structured steps": {
        "energy": WINDOWS,
        "objective": spen.UnrolledLikelihood(entropy=1.0),
        "inference": spen.StructuredDescent(spen.MirrorDescent(2.0, 0.0), STEPS),
    },
}


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each shape")
    parser.add_argument("--out", type=Path, help="keeps the times")
    parser.add_argument("--show", type=Path, help="prints the table of what was kept")
    chosen = parser.parse_args()
    if chosen.show is not None:
        print(render(json.loads(chosen.show.read_text())["lines"]))
        return
    warnings.simplefilter("ignore")
    device, rng = torch.device(chosen.device), np.random.default_rng(0)
    lines = []
    for title, (mean, tags) in SHAPES.items():
        lengths = rng.poisson(mean - 1, chosen.sentences) + 1
        X = [[f"word{k}" for k in rng.integers(3000, size=length)] for length in lengths]
        y = [[f"tag{k}" for k in rng.integers(tags, size=length)] for length in lengths]
        calls = {name: call(X, y, settings, chosen.device) for name, settings in KINDS.items()}
        times = interleave(calls, device, rounds=25, seconds=chosen.seconds)
        line = {
            "batch": title,
            "sentences": chosen.sentences,
            "words": int(sum(lengths)),
            "milliseconds": {
                name: round(1e3 * min(each), 3) for name, each in times.seconds.items()
            },
        }
        lines.append(line)
        print(line, flush=True)
    record = {"device": device_in_words(device), "versions": versions(), "lines": lines}
    if chosen.out is not None:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"\n{record['device']}, {record['versions']}; milliseconds, and how many times local")
    print(render(lines))


def render(lines: list[dict[str, Any]]) -> str:
    """Lay a record out."""
    header, rows = ["energy", *(line["batch"] for line in lines)], []
    for name in KINDS:
        cells = [name]
        for line in lines:
            times = line["milliseconds"]
            ratio = f" ({times[name] / times['local']:.2f} ×)" if name != "local" else ""
            cells.append(f"{times[name]:.0f} ms{ratio}")
        rows.append(cells)
    return text_table(header, rows)


def call(X: list[list[str]], y: list[list[str]], settings: dict, device: str) -> Callable[[], None]:
    """Return a function that decodes all sentences with a tagger of these settings."""
    made = spen.SPENTagger(**settings, epochs=1, batch_size=64, device=device, random_state=0)
    predictor = made.fit(X[:128], y[:128]).predictor_
    inputs = predictor.encoder.encode(X).to(torch.device(device))
    batches = [inputs.batch(rows, fill=True) for rows in inputs.in_order(8192, False)]

    @torch.no_grad()
    def decode() -> None:
        with evaluating(predictor.model):
            for batch in batches:
                features = predictor.model.features.of(batch)
                predictor.best(Context(features, mask=batch.mask))

    return decode


if __name__ == "__main__":
    main()
