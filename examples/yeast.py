"""Multi-label classification from file to picture, on Yeast: 103 measurements of a gene, 14 labels.

    spen data fetch yeast          # once; or set SPEN_DATA to a folder that has it
    python examples/yeast.py       # about half a minute on two cores

The cells (# %%) can be run one by one in an editor that knows notebooks.
"""

# %% Read the data: a training and a test part, with the names of features and labels.
import numpy as np

import spen

data = spen.load_dataset("yeast")
print(
    f"{len(data.train)} training rows, {len(data.test)} test rows, {len(data.label_names)} labels"
)

# %% Fit. Sizes, dropout, calibration and decoding are chosen on held-out training rows.
classifier = spen.SPENClassifier(random_state=0, verbose=1)
classifier.fit(data.train.X, data.train.Y, label_names=data.label_names)
print(f"F1 of held-out rows: {100 * classifier.held_out_score_:.1f}")

# %% Predict: sets of labels, their names, and probabilities.
X, Y = data.test.X, data.test.Y.toarray()
labels, probabilities = classifier.predict(X), classifier.predict_proba(X)
print("First row:", classifier.predict_labels(X[:1])[0])
print(f"F1 of test rows: {100 * spen.example_f1(Y, labels):.1f} (a row empty in both counts 1)")

# %% The energy scores any labelling: the truth should have less of it than another row's labels.
other = np.roll(Y, 1, axis=0)
differs = (other != Y).any(1)
lower = classifier.energy(X, Y)[differs] < classifier.energy(X, other)[differs]
print(f"The truth has less energy than another row's labels in {100 * lower.mean():.0f} % of rows")

# %% Tell it some labels, and it infers the others. Here every second label is known.
known = np.full(Y.shape, np.nan)
known[:, ::2] = Y[:, ::2]
hidden = np.where(np.isnan(known), Y, np.nan)  # what is scored; nan is left out
without = 100 * spen.example_f1(hidden, labels)
with_known = 100 * spen.example_f1(hidden, classifier.predict(X, known=known))
print(f"F1 of the other labels: {without:.1f} before, {with_known:.1f} when these are known")

# %% How inference went, and what was learned about labels.
print(classifier.diagnose(X, Y))
structure = classifier.structure()
print(structure)
for one, other, value in structure.pairs(6):
    print(f"{one} and {other}: {value:+.2f}", "(together)" if value < 0 else "(apart)")
structure.plot("yeast-structure.png")

# %% One file, no pickle; the command line reads it too: spen evaluate yeast.spen yeast
classifier.save("yeast.spen")
assert np.array_equal(spen.load("yeast.spen").predict_proba(X), probabilities)
print("Wrote yeast.spen and yeast-structure.png")
