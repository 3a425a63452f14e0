"""What an epoch of end-to-end training costs, in epochs of the label-wise MLP.

    python benchmarks/end_to_end_epoch.py [--dataset bibtex] [--steps 10] [--width 500]
                                          [--repeats 5]

Epochs are taken in turns in one process, and medians are compared, on one thread.
"""

from __future__ import annotations

import argparse
import statistics

import torch

import spen


def epoch_seconds(
    data: spen.Dataset, steps: int, width: int, repeats: int
) -> dict[str, list[float]]:
    """Return the seconds of each epoch, by the name of what was trained."""
    inputs, labels = data.train.X.shape[1], data.train.Y.shape[1]
    energy = spen.LocalEnergy(width, labels) + spen.LabelEnergy(labels, 16, "softplus")
    network = spen.MLP(inputs, width, width, dropout=0.5)
    model = spen.SPEN(network, energy, spen.UnitBox(labels), seed=0)
    rule, stopping = spen.MirrorDescent(lr=0.5, momentum=0.0), spen.Stopping(steps)

    def stage(name: str, objective: spen.Objective, backward: spen.Unrolled) -> spen.Stage:
        inference = spen.Descent(rule, stopping, backward)
        return spen.Stage(name, objective, inference, epochs=1, optimiser="adamw", lr=1e-3)

    kinds = {
        "MLP": (spen.CrossEntropy(), spen.Unrolled()),
        "last": (spen.EndToEnd("log", "last"), spen.Unrolled()),
        "all": (spen.EndToEnd("log", "all"), spen.Unrolled()),
        "checkpointed": (spen.EndToEnd("log", "last"), spen.Unrolled(checkpoint=True)),
    }
    stages = [stage(f"{name} {k}", *kind) for k in range(repeats) for name, kind in kinds.items()]
    history = spen.train(model, stages, data.train, seed=0)
    return {
        name: [e.seconds for e in history.epochs if e.stage.startswith(f"{name} ")]
        for name in kinds
    }


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="bibtex")
    for name, default in (("steps", 10), ("width", 500), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = spen.load_dataset(options.dataset)
    found = epoch_seconds(data, options.steps, options.width, options.repeats)
    base = statistics.median(found["MLP"])
    print(f"{options.dataset}, {options.width} units, {options.steps} steps, one thread")
    for name, seconds in found.items():
        median = statistics.median(seconds)
        print(f"{name:>14}  {median:6.2f} s  {median / base:5.2f} MLP epochs")


if __name__ == "__main__":
    main()
