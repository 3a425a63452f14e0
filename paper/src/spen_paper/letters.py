"""A feature network of handwritten letters: each image by itself, moved about in training."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spen.features import HE, drop, fill_fan_in
from spen.sequences import SequenceFeatures

HEIGHT, WIDTH = 16, 8


class LetterNetwork(SequenceFeatures):
    """Images of 16 × 8 pixels, (n, T, 128), to features of each, (n, T, width).

    Four layers of 3 × 3 filters, halved twice on the way, and one that sees it all. In training
    each image is turned, leaned, stretched and shifted at random.

    Args:
        filters: of the first two layers; the others have twice as many.
        width: of the features.
        dropout: the share of units zeroed in training, of the last two layers.
        move: how far images are moved; 0 leaves them where they are.
    """

    def __init__(
        self, filters: int = 32, width: int = 256, dropout: float = 0.3, move: float = 1.0
    ) -> None:
        super().__init__()
        self.n_inputs, self.n_features = HEIGHT * WIDTH, width
        self.dropout, self.move = dropout, move
        widths = [1, filters, filters, 2 * filters, 2 * filters]
        self.filters = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths))
        self.last = nn.Linear(2 * filters * HEIGHT * WIDTH // 16, width)

    def forward(self, inputs: Any, generator: torch.Generator | None = None) -> Tensor:
        values, mask = inputs
        images = values.to(self.last.weight.dtype).reshape(-1, 1, HEIGHT, WIDTH)
        if generator is not None and self.move:
            images = self._moved(images, generator)
        for number, layer in enumerate(self.filters):
            images = torch.relu(layer(images))
            if number % 2:
                images = F.max_pool2d(images, 2)
        hidden = images.flatten(1)
        if generator is not None and self.dropout:
            hidden = drop(hidden, self.dropout, generator)
        hidden = torch.relu(self.last(hidden))
        if generator is not None and self.dropout:
            hidden = drop(hidden, self.dropout, generator)
        return hidden.reshape(*mask.shape, -1) * mask[:, :, None]

    def _moved(self, images: Tensor, generator: torch.Generator) -> Tensor:
        draws = torch.rand(len(images), 6, generator=generator, device=images.device) * 2 - 1
        turn, lean, wide, high, right, down = (self.move * draws).unbind(1)
        turn, lean = 0.15 * turn, 0.25 * lean
        # The image is twice as high as wide; coordinates go from −1 to 1 both ways.
        rows = [
            torch.stack([1 + 0.15 * wide, 2 * (lean - turn), 0.2 * right], 1),
            torch.stack([0.5 * turn, 1 + 0.1 * high, 0.1 * down], 1),
        ]
        shape = list(images.shape)
        grid = F.affine_grid(torch.stack(rows, 1), shape, align_corners=False)
        return F.grid_sample(images, grid, align_corners=False)

    def reset(self, generator: torch.Generator) -> None:
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                fill_fan_in(layer.weight, generator, HE)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
