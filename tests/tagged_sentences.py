"""Sentences of each kind with tags, and taggers of them that fit in no time."""

import numpy as np

import spen

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
