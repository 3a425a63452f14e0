"""Networks and rows of inputs that are no matrix, for the tests of such."""

import numpy as np
import torch
from torch import nn

RNG = np.random.default_rng(0)
N, WORDS = 40, 30
IDS = [RNG.integers(1, WORDS, size=RNG.integers(1, 9)).tolist() for _ in range(N)]
ONES = [[1] * len(row) for row in IDS]
IMAGES = RNG.normal(size=(N, 3, 8, 8)).astype(np.float32)
TABLE = RNG.normal(size=(N, 2)).astype(np.float32)
Y = np.stack([[sum(row) % 3 == k or row[0] % 2 == k for k in range(3)] for row in IDS]).astype(
    float
)


class Words(nn.Module):
    """The mean of the words that the mask shows; two layers, so that padding would show."""

    def __init__(self, words=WORDS, width=6):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layer = nn.Linear(width, width)

    def forward(self, ids, mask):
        if mask.dtype != torch.bool:
            raise TypeError("a mask by this name is of True and False")
        kept = mask[..., None].float()
        return (torch.tanh(self.layer(self.words(ids))) * kept).sum(1) / kept.sum(1)


class Encoder(Words):
    """The same with the names that encoders of texts have."""

    def forward(self, input_ids, attention_mask=None, token_type_ids=None):
        return super().forward(input_ids, attention_mask.bool())


class ImageAndTable(nn.Module):
    """Takes a dict as it is."""

    def __init__(self):
        super().__init__()
        self.image, self.table = nn.Conv2d(3, 6, 3), nn.Linear(2, 6)

    def forward(self, inputs):
        return self.image(inputs["image"]).mean((2, 3)) + self.table(inputs["table"])


def convolution():
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


KINDS = {
    "ids": (Words, IDS),
    "named ids": (Encoder, {"input_ids": IDS}),
    "named ids and mask": (Encoder, {"input_ids": IDS, "attention_mask": ONES}),
    "images": (convolution, IMAGES),
    "image and table": (ImageAndTable, {"image": IMAGES, "table": TABLE}),
}
"""A network that takes each kind of inputs, with rows of it; each gives six features."""


def some(X, rows):
    """Return a slice of rows."""
    return {name: each[rows] for name, each in X.items()} if isinstance(X, dict) else X[rows]
