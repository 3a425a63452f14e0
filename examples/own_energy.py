"""An energy of your own

You know something about labels that a small table cannot teach: here, that sixteen labels are four
groups, and of each group exactly one is on. Write it down as an energy, a number for each row that
is small where your rule holds; gradients, batches and sums come by themselves. The picture compares
what is learned from 100 rows with your rule and without it.
"""

# %% [markdown]
# ## Write it
# `forward(features, y)` takes what the network makes of each row, which this rule has no need of,
# and soft labels between 0 and 1, (rows, labels); it returns a number for each row. What training
# is to learn is a parameter. `spen.register` gives the class a name, by which model files know it.

# %%
import matplotlib.pyplot as plt
import torch

import spen


@spen.register("one-of-each-group")
class OneOfEachGroup(spen.Energy):
    """weight · Σ over groups of (labels that are on − 1)²"""

    def __init__(self, n_labels, size):
        super().__init__()
        self.n_labels, self.size = n_labels, size
        self.strength = torch.nn.Parameter(torch.zeros(()))

    def forward(self, features, y):
        weight = torch.nn.functional.softplus(self.strength)  # never below zero
        groups = y.unflatten(1, (-1, self.size))
        return weight * ((groups.sum(2) - 1) ** 2).sum(1)


# %% [markdown]
# ## Check it
# Inference relies on a few things: one number for each row, no row that looks at its neighbours,
# gradients that agree with differences. `check_energy` looks, and says in words what is wrong.

# %%
spen.check_energy(OneOfEachGroup(n_labels=16, size=4))


class Wrong(OneOfEachGroup):
    """One number for the whole batch."""

    def forward(self, features, y):
        return super().forward(features, y).mean()


try:
    spen.check_energy(Wrong(n_labels=16, size=4))
except spen.EnergyCheckError as problem:
    print(problem)

# %% [markdown]
# ## Use it
# A classifier adds it to the scores of single labels. How many labels there are only the table
# knows, so describe yours without: what is called `n_labels` (or `n_features`, the width of
# `features`) is filled in, and `unsized` takes everything else. Columns of y are in the order of
# the classifier's `label_names_`. The metric says that whole rows are to be right.

# %%
data = spen.exclusive_blocks(n_train=100, n_test=1000, seed=0)
X, Y = data.test.X, data.test.Y
energies = {
    "no energy": "local",
    "a learned energy": "label",
    "your rule": OneOfEachGroup.unsized(size=4),
}
models, obeyed = {}, {}
for name, energy in energies.items():
    clf = spen.SPENClassifier(energy=energy, metric="subset", hidden=(), random_state=0)
    models[name] = clf.fit(data.train.X, data.train.Y)
    predicted = clf.predict(X)
    obeyed[name] = (predicted.reshape(-1, 4, 4).sum(2) == 1).mean()
    f1 = spen.example_f1(Y, predicted)
    print(f"{name:>16}: F1 {f1:.2f}, whole rows right {clf.score(X, Y):.1%}")

# %%
# Groups with exactly one label
figure, axis = plt.subplots(figsize=(6.5, 2.6), layout="constrained")
bars = axis.barh(list(obeyed), [100 * share for share in obeyed.values()])
axis.bar_label(bars, fmt="%.0f %%", padding=3)
axis.set(xlabel="groups with exactly one label, test rows, %", xlim=(0, 110))
plt.show()

# %% [markdown]
# ## Keep it
# A model file holds no code: it names the class, by what `register` called it. Whoever loads the
# file imports the module of that class first.

# %%
models["your rule"].save("groups.spen")
again = spen.load("groups.spen")
print((again.predict(X) == models["your rule"].predict(X)).all())

# %% [markdown]
# With a closed-form gradient it is faster, and with a canonical form the compiled kernels run it:
# [the parts](../guide.md#write-your-own-energy) and [the reference](../reference.md) say how.
