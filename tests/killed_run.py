"""A small training run with a checkpoint, for the test that kills it in the middle.

Usage: killed_run.py CHECKPOINT WEIGHTS [seconds to sleep after each epoch]
"""

import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

import spen
from spen.batch.splits import hold_out
from spen.training import checkpoint as checkpoints

torch.set_num_threads(1)


def build() -> tuple[spen.SPEN, list[spen.Stage]]:
    energy = spen.LocalEnergy(8, 16) + spen.LabelEnergy(16, 4)
    model = spen.SPEN(spen.MLP(64, 8, dropout=0.3), energy, spen.UnitBox(16), seed=0)
    inference = spen.Descent(stopping=spen.Stopping(5))
    stages = [
        spen.Stage("local", spen.CrossEntropy(), parts=("features", "local"), epochs=4, lr=1e-2),
        spen.Stage("global", spen.Hinge(), inference, parts=("global",), epochs=4, optimiser="sgd"),
        spen.Stage("all", spen.Hinge(), inference, epochs=4, schedule="cosine", patience=2),
    ]
    return model, stages


def main(checkpoint: Path, weights: Path, pause: float) -> None:
    checkpoints.SAVED_TIMES = 0  # a kill may find any epoch
    model, stages = build()
    kept, held = hold_out(spen.exclusive_blocks(200, 1).train, 0.2, seed=0)
    spen.train(
        model,
        stages,
        kept,
        held,
        seed=5,
        checkpoint=checkpoint,
        resume=True,
        callbacks=[lambda epoch: time.sleep(pause)],
    )
    save_file(model.state_dict(), weights)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.0)
