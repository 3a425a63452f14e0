"""Sentences of each kind with tags, and taggers of them that fit in no time."""

import re

import numpy as np
import torch

import spen
from spen.report.sentences import JudgedSentences

WORDS = [["the", "red", "car"], ["a", "car"], ["the", "very", "red", "wine"], ["wine"]] * 3
TAGS = [["D", "A", "N"], ["D", "N"], ["D", "R", "A", "N"], ["N"]] * 3
CHUNKS = [["B-NP", "I-NP", "O"], ["O", "B-NP"], ["B-NP", "I-NP", "O", "B-VP"], ["O"]] * 3
rng = np.random.default_rng(0)
ARRAYS = [rng.normal(size=(len(tags), 4)) for tags in TAGS]
NUMBERS = [(rows[:, 0] > 0).astype(int) for rows in ARRAYS]
DICTS = [[{"word": w, "last": [w[-1], w[-2:]], "length": len(w)} for w in s] for s in WORDS]
COLUMNS = [[{"0": w, "1": w[0]} for w in sentence] for sentence in WORDS]
KINDS = {"words": WORDS, "columns": COLUMNS, "features": DICTS, "arrays": ARRAYS}
nan = float("nan")


def fitted(energy="chain", X=WORDS, y=TAGS, **settings):
    tagger = spen.SPENTagger(energy, epochs=4, random_state=0, device="cpu").set_params(**settings)
    return tagger.fit(X, y)


def tangled(energy, X=WORDS, y=CHUNKS, **settings):
    """A tagger whose tags hang together: as trained for a few epochs, they hardly do."""
    tagger = fitted(energy, X, y, **settings)
    generator = torch.Generator().manual_seed(1)
    for name, weights in tagger.model_.energy.named_parameters():
        if re.search("transitions|start|end|readout|measurements", name):
            weights.data.normal_(0, 1.5, generator=generator)
    return tagger


def judged(tagger, X=WORDS, y=CHUNKS):
    """What the page of a tagger is judged by."""
    return JudgedSentences.of(tagger, X, y, "the sentences given")
