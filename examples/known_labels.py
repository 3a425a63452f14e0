"""Known labels, and which label to ask about

Somebody knows a part of the labels of a row: tell the model, and it infers the others from them.
And if somebody can be asked, the model says which label to ask about, so that the answer says most
about all others. The picture counts what is still wrong after each answer.
"""

# %% [markdown]
# The labels here are 16 in four blocks; in each block exactly one is on. Nobody tells the model
# that, it has to be learned from 600 rows.

# %%
import matplotlib.pyplot as plt
import numpy as np

import spen

data = spen.exclusive_blocks(n_train=600, n_test=200, seed=0)
X, Y = data.test.X, data.test.Y
clf = spen.SPENClassifier(hidden=(), random_state=0)  # linear features, so that it is soon done
clf.fit(data.train.X, data.train.Y, label_names=data.label_names)
print(f"F1 of test rows, nothing known: {clf.score(X, Y):.2f}")

# %% [markdown]
# ## Tell it what is known
# By name, for all rows; or a dict for each row; or a matrix of 1, 0, and `nan` for what is to be
# inferred. `predict`, `predict_proba`, `predict_labels` and `predict_top` take it.

# %%
row = X[:1]
for known in ({}, {"block0.2": 1}, {"block0.3": 0}):
    soft = clf.predict_proba(row, known=known)[0, :4]
    print(f"{known or 'nothing known'!s:34} block0: {soft.round(2)}")

# %% [markdown]
# With `block0.2` on, `block0.3` becomes less probable; with `block0.3` off, `block0.2` more: that
# labels of a block exclude each other was learned. A label that is known is never changed.
#
# ## Ask
# `next_question` ranks labels by what their answer is expected to tell about the *others*, in nats.

# %%
for question in clf.next_question(row, k=3)[0]:
    print(question)

# %% [markdown]
# ## Is a good question worth it?
# A person who knows the truth answers one question a row after the other: the one that the model
# proposes, the label that is most uncertain, or any. To see what answers say about *other* labels,
# a random half of each row's labels is never asked about, and only mistakes among those count.

# %%
draws = np.random.default_rng(0)
never = draws.permuted(np.tile([True, False], (len(Y), 8)), axis=1)


def most_uncertain(known):
    doubt = -np.abs(clf.predict_proba(X, known=known) - 0.5)
    return np.where(np.isnan(known) & ~never, doubt, -np.inf).argmax(1)


ways = {
    "next_question": lambda known: [
        best.index for [best] in clf.next_question(X, known=known, among=~never, k=1)
    ],
    "most uncertain": most_uncertain,
    "at random": lambda known: (draws.random(Y.shape) * np.isnan(known) * ~never).argmax(1),
}
wrong, rows = {}, np.arange(len(Y))
for name, choose in ways.items():
    known, wrong[name] = np.full(Y.shape, np.nan), []
    for _ in range(7):
        labels = clf.decode(clf.predict_proba(X, known=known), "half")
        wrong[name].append(((labels != Y) & never).sum(1).mean())
        asked = choose(known)
        known[rows, asked] = Y[rows, asked]

# %%
# Labels, never asked about, that are still wrong after each answer
figure, axis = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
for name, counts in wrong.items():
    axis.plot(counts, "o-", label=name)
axis.set(xlabel="questions answered", ylabel="wrong labels, of 8 a row")
axis.legend()
plt.show()
for name, counts in wrong.items():
    print(f"{name:>15}: {counts[0]:.2f} wrong before, {counts[4]:.2f} after four answers")

# %% [markdown]
# ## Elsewhere
# In a terminal, `spen ask model.spen rows.csv` asks a person. In the page of `spen report` a button
# proposes the label to set. [The classifier](../classifier.md#which-label-to-ask-next) has the
# formula, and measurements on real data; [why known labels
# help](../explanation.md#why-known-labels-help) has the reason.
