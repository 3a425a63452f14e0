"""Train an energy over an encoder that no single device could hold: FSDP2 shards it.

Run it with: torchrun --nproc-per-node 2 examples/sharded_encoder.py

``spen.fit`` and ``spen.train`` keep a whole copy of a model in each process. Where that is too
much, this is the loop to begin with: each process holds its share of the encoder's weights,
gradients and moments, and gathers a layer for as long as it computes it. Energies are small, so all
have them whole. In the end the first process puts the model together, for one file as any other.

docs/processes.md says what was tried.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import spen

WORDS, LENGTH, WIDTH, LABELS, ROWS = 200, 12, 32, 8, 512
EPOCHS, BATCH = 5, 64


@spen.register("examples.Encoder")
class Encoder(nn.Module):
    """Token ids (n, T) to features (n, width): yours has more layers, and wider ones."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True)
            for _ in range(layers)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.words(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden.mean(1)


def new_model() -> spen.SPEN:
    """Return the model with its initial weights, the same in each process."""
    energy = spen.LocalEnergy(WIDTH, LABELS) + spen.LabelEnergy(LABELS, 4, "softplus")
    # One too large for a process is made on the device "meta", and filled shard by shard.
    torch.manual_seed(0)
    return spen.SPEN(Encoder(), energy, spen.UnitBox(LABELS), seed=0)


def made_up_rows() -> tuple[Tensor, Tensor]:
    """Return token ids, and labels that words speak for."""
    draws = torch.Generator().manual_seed(0)
    tokens = torch.randint(WORDS, (ROWS, LENGTH), generator=draws)
    topics = torch.randint(LABELS, (WORDS,), generator=draws)
    counts = nn.functional.one_hot(topics[tokens], LABELS).sum(1)
    return tokens, (counts >= 2).float()


def main() -> None:
    """Train, and write sharded.spen."""
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    rank, count = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(kind, (count,))

    model = new_model().to(kind)
    encoder: Any = model.features.module
    # Inside out: a layer is one piece, and what is left of the encoder is another.
    for layer in encoder.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(encoder, mesh=mesh)
    whole = [*model.energy.parameters()]
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)

    objective = spen.EndToEnd("log", "all", start="local")
    inference = spen.Descent(spen.MirrorDescent(lr=0.5, momentum=0.0), spen.Stopping(5))
    tokens, labels = (rows.to(kind) for rows in made_up_rows())
    order = torch.Generator().manual_seed(0)  # of rows, the same in each process
    masks = torch.Generator(kind).manual_seed(rank)  # of dropout, each its own
    model.train()
    for epoch in range(EPOCHS):
        total = torch.zeros((), device=kind)
        for batch in torch.randperm(ROWS, generator=order).split(BATCH):
            # As many rows for each, as FSDP takes the mean of all processes.
            rows = batch.view(count, -1)[rank].to(kind)
            context = spen.Context(model.features.of(tokens[rows], masks), labels[rows])
            loss = objective.loss(model, inference, context, masks).mean()
            optimiser.zero_grad()
            loss.backward()
            for parameter in whole:
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= count
            optimiser.step()
            total += loss.detach() * BATCH / ROWS
        dist.all_reduce(total)
        if rank == 0:
            held = sum(p.to_local().numel() for p in encoder.parameters())
            of_all = sum(p.numel() for p in encoder.parameters())
            print(
                f"epoch {epoch + 1}: loss {total.item() / count:.5f}; the first of {count} holds "
                f"{held:,} of {of_all:,} weights of the encoder"
            )

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    if rank == 0:
        complete = new_model()
        complete.load_state_dict(state)
        complete.eval().save("sharded.spen")
        print("Wrote sharded.spen")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
