"""Find labels that are probably wrong

People overlook labels and give wrong ones. `label_issues` ranks the labels of your own table by how
probably each is wrong or missing; it looks at what the features say *and* at the row's other
labels. Here some labels are spoilt on purpose, so that it can be counted how many are found.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import spen

data = spen.exclusive_blocks(n_train=600, n_test=1, seed=0)
X, clean = data.train.X, data.train.Y
draws = np.random.default_rng(0)
given = clean.copy()
for value in (1, 0):  # 60 labels are taken away, and 60 put where there was none
    places = draws.choice(np.flatnonzero(clean == value), 60, replace=False)
    given.flat[places] = 1 - value
spoilt = given != clean
print(f"{spoilt.sum()} of {spoilt.size:,} labels are wrong")

# %% [markdown]
# ## Rank them
# Nothing has to be fitted before. `label_issues` fits copies of the classifier, so that each row is
# judged by a model that has not seen it; of a classifier that is fitted, `unseen=True` judges rows
# that are new to it, at once.

# %%
clf = spen.SPENClassifier(hidden=(), random_state=0)  # linear features, so that it is soon done
issues = clf.label_issues(X, given, top=300)
print(issues.head(5))

# %% [markdown]
# *Given 1*: this label is probably wrong. *Given 0*: it is probably missing. `issues.row`,
# `issues.label`, `issues.given` and `issues.probability` are arrays, the most probable first.

# %%
# How many of the spoilt labels are among the first ones
found = np.cumsum(spoilt[issues.row, issues.label])
looked = np.arange(1, len(found) + 1)
figure, axis = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
axis.plot(looked, found, label="label_issues")
axis.plot(looked, looked * spoilt.mean(), label="labels in any order")
axis.axhline(spoilt.sum(), color="gray", linestyle=":", label="all that are wrong")
axis.set(xlabel="labels looked at", ylabel="wrong ones found")
axis.legend()
plt.show()
first, chance = spoilt.sum(), spoilt.mean() * spoilt.sum()
print(f"Of the first {first} there are {found[first - 1]} wrong; by chance {chance:.1f}")

# %% [markdown]
# ## Mend them
# Show a person the first ones, and stop where most of them are right. Do not change labels without
# looking: what is rare is not wrong.

# %%
mended = given.copy()
for row, label in zip(issues.row[:first], issues.label[:first], strict=True):
    mended[row, label] = clean[row, label]  # a person looks, and says what is true
print(f"{spoilt.sum()} wrong labels before, {(mended != clean).sum()} after {first} looks")

# %% [markdown]
# [The classifier](../classifier.md#labels-that-are-probably-wrong) says how a label is judged, and
# how that compares with cleanlab on real tables.
