"""What an energy costs a training step of an encoder of texts: ratios, taken in turns.

    python paper/scripts/encoder.py [--device cuda] [--layers 12] [--width 768] [--heads 12]
        [--vocabulary 30522] [--batch 32] [--tokens 128] [--labels 100] [--dtype bfloat16]
        [--steps 20] [--turns 7] [--out FOLDER]

The encoder is transformers' BertModel with random weights, dropout as BERT has it; rows have from
half of the tokens to all of them, the rest is masked. Three kinds of steps take turns in one
process, so many steps a turn, and the device is waited for at both ends of a turn:

alone: the encoder, a linear layer and the binary cross-entropy, in a plain loop of PyTorch, with
autocast and fused AdamW. local: the same by spen, energy="local". energy: what
SPENClassifier(features=encoder) trains with default settings: the labels' scores and measurements
of them, through the steps of inference, with a part of the labels revealed.

Printed are the medians of the turns, each in milliseconds a step, and their ratios to the encoder
alone; then those of each turn, from the lowest to the highest. With --out what is measured is kept
in FOLDER/records.jsonl, and where it is there already it is printed again.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

import spen
from spen.batch.inputs import read_inputs
from spen.cli.show import text_table
from spen.estimators.plan import Shape
from spen.training.loop import train_on
from spen.training.rows import TrainingRows
from spen_paper.records import kept


class FirstToken(nn.Module):
    """The encoder's vector of the first token, which stands for the text."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.encoder = BertModel(config, add_pooling_layer=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        found = self.encoder(input_ids=input_ids, attention_mask=attention_mask)
        return found.last_hidden_state[:, 0]


def texts(rows: int, options: argparse.Namespace) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Draw token ids with their masks, and labels."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(options.tokens // 2, options.tokens + 1, rows)
    mask = np.arange(options.tokens) < lengths[:, None]
    ids = np.where(mask, rng.integers(1, options.vocabulary, mask.shape), 0)
    labels = (rng.random((rows, options.labels)) < 0.05).astype(np.float32)
    return {"input_ids": ids, "attention_mask": mask.astype(np.int64)}, labels


def plain_turn(options: argparse.Namespace, config: BertConfig, rows: Any, Y: Any) -> Callable:
    """Return what trains the encoder alone for a turn, by PyTorch."""
    torch.manual_seed(0)
    encoder = FirstToken(config).to(options.device).train()
    head = nn.Linear(options.width, options.labels).to(options.device)
    fields = {name: torch.as_tensor(each, device=options.device) for name, each in rows.items()}
    target = torch.as_tensor(Y, device=options.device)
    loss_of = nn.BCEWithLogitsLoss(reduction="none")
    kind = options.device.partition(":")[0]

    def turn() -> None:
        weights = [*encoder.parameters(), *head.parameters()]
        optimiser = torch.optim.AdamW(weights, lr=2e-5, weight_decay=0.01, fused=True)
        total = torch.zeros((), device=options.device)
        for batch in torch.randperm(len(target), device=options.device).split(options.batch):
            with torch.autocast(kind, torch.bfloat16, enabled=options.dtype == "bfloat16"):
                features = encoder(**{name: each[batch] for name, each in fields.items()})
            loss = loss_of(head(features.float()), target[batch]).sum(1).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.detach()
        total.item()

    return turn


def spen_turn(
    options: argparse.Namespace, config: BertConfig, rows: Any, Y: Any, energy: str
) -> Callable:
    """Return what trains the encoder for a turn as SPENClassifier would, under an energy."""
    torch.manual_seed(0)
    dtype = "bfloat16" if options.dtype == "bfloat16" else None
    made = spen.SPENClassifier(
        energy=energy,
        features=FirstToken(config),
        features_lr=2e-5,
        features_dtype=dtype,
        batch_size=options.batch,
        warmup=0.1,
    )
    inputs = read_inputs(rows)
    if inputs is None:
        raise TypeError("token ids are no matrix")
    n, entries = inputs.shape
    plan = made.plan(Shape(n, entries, options.labels, False, False, passed=True))
    stage = replace(plan.stages[0], epochs=1)
    model = plan.build(inputs, spen.UnitBox(options.labels), seed=0).to(options.device)
    checked = TrainingRows.of(model, (inputs, Y), "train")
    return lambda: train_on(model, [stage], checked)


def main() -> None:
    """Take the turns and print what they took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    sizes = {"layers": 12, "width": 768, "heads": 12, "vocabulary": 30522, "batch": 32}
    sizes |= {"tokens": 128, "labels": 100, "steps": 20, "turns": 7}
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--out", type=Path, help="keeps what was measured")
    options = parser.parse_args()
    out = options.__dict__.pop("out")
    record = kept(out, "encoder", dict(vars(options)), partial(measure, options), options.device)
    found, machine = record["found"], record["machine"]
    where = machine["gpu"] or f"CPU, {machine['threads']} threads"
    print(
        f"{where}, torch {machine['versions']['torch']}; an encoder of "
        f"{found['weights'] / 1e6:.1f} million weights, {options.batch} rows of {options.tokens} "
        f"tokens, {options.labels} labels, {options.dtype}"
    )
    taken = found["taken"]
    alone, lines = statistics.median(taken["alone"]), []
    for name, each in taken.items():
        ratios = sorted(one / other for one, other in zip(each, taken["alone"], strict=True))
        median = statistics.median(each)
        span = f"{ratios[0]:.3f} – {ratios[-1]:.3f}"
        lines.append([name, f"{median:.2f}", f"{median / alone:.3f}", span])
    print(text_table(["", "ms a step", "ratio", "ratios of the turns"], lines))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Take the turns, and return what each took in milliseconds a step."""
    config = BertConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        intermediate_size=4 * options.width,
        max_position_embeddings=max(512, options.tokens),
    )
    rows, Y = texts(options.steps * options.batch, options)
    turns = {
        "alone": plain_turn(options, config, rows, Y),
        "local": spen_turn(options, config, rows, Y, "local"),
        "energy": spen_turn(options, config, rows, Y, "auto"),
    }
    on_gpu = options.device.startswith("cuda")

    def milliseconds(turn: Callable) -> float:
        if on_gpu:
            torch.cuda.synchronize()
        began = time.perf_counter()
        turn()
        if on_gpu:
            torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - began) / options.steps

    for turn in turns.values():
        turn()  # what is compiled, allocated and chosen once
    taken: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(options.turns):
        for name, turn in turns.items():
            taken[name].append(milliseconds(turn))
    weights = sum(weight.numel() for weight in FirstToken(config).parameters())
    return {"weights": weights, "taken": taken}


if __name__ == "__main__":
    main()
