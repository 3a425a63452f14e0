"""The paper's synthetic task, from its parts

Labels that exclude each other, trained as the paper does: an energy is put together from terms,
trained in three stages, and then asked what no feed-forward model answers: how good any labelling
is, and what the others are when some are known. The picture shows that its measurements have found
the four blocks.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import spen

data = spen.exclusive_blocks(n_train=1500, n_test=2000, seed=7)
train, valid = spen.hold_out(data.train, share=0.2, seed=7)

# %% [markdown]
# ## An energy
# A sum of terms: one looks at x and at each label alone, the other at the labels together. The
# domain says where soft labels live, and the inference how the energy is minimised.

# %%
labels = spen.LabelEnergy(16, measurements=8, initial="counting")
energy = spen.LocalEnergy(64, 16) + labels
model = spen.SPEN(spen.Identity(64), energy, spen.UnitBox(16), seed=0)
inference = spen.Descent(spen.MirrorDescent(lr=0.05, momentum=0.8), spen.Stopping(max_steps=40))

# %% [markdown]
# ## Three stages
# First the local energy, label by label, which needs no inference; then the label energy with the
# local one held; then both. Each stage ends with the weights of its best epoch on held-out rows.

# %%
local = {"parts": ("local",), "epochs": 60, "lr": 0.1, "schedule": "cosine", "weight_decay": 2e-4}
together = {"parts": ("global",), "epochs": 10, "lr": 0.03, "clip": 1}
stages = [
    spen.Stage("local", spen.CrossEntropy(), **local),
    spen.Stage("global", spen.Hinge(), inference, **together),
    spen.Stage("all", spen.Hinge(), inference, epochs=10, lr=0.01, clip=1),
]
history = spen.train(model, stages, train, valid, seed=0)
for stage in ("local", "global", "all"):
    best = history.stage(stage)[history.best_epoch(stage) - 1]
    print(f"{stage:>6}: best epoch {best.epoch}, held-out F1 {best.score:.3f}")

# %%
# The measurement matrix: labels of a block are weighed alike
weights = labels.measurements.detach().numpy()
figure, axis = plt.subplots(figsize=(6.5, 3), layout="constrained")
image = axis.imshow(weights, cmap="RdBu_r", vmin=-abs(weights).max(), vmax=abs(weights).max())
axis.set(xlabel="label (four blocks of four)", ylabel="measurement")
for edge in (3.5, 7.5, 11.5):
    axis.axvline(edge, color="black", linewidth=0.8)
figure.colorbar(image, shrink=0.8)
plt.show()

# %% [markdown]
# ## Predict
# Minimise the energy, then apply a threshold that was tuned on held-out rows.

# %%
X, Y = data.test.X, data.test.Y
long = spen.Descent(spen.MirrorDescent(lr=0.05, momentum=0.8), spen.Stopping(max_steps=300))
threshold, _ = spen.tune_threshold(valid.Y, model.solve(valid.X, long).y)
solution = model.solve(X, long)
print(f"test F1 {spen.example_f1(Y, (solution.y > threshold).numpy()):.3f}. {solution.describe()}")

# %% [markdown]
# ## Ask
# The energy of any labelling: how often is the truth better than what was found?

# %%
print(f"search errors: {spen.search_error_rate(model.energy_of(X, Y), solution.energy):.1%}")

# %% [markdown]
# One label of each block is told to be off. The others are inferred better than before.

# %%
rng = np.random.default_rng(0)
known = np.full(Y.shape, np.nan)
for row, blocks in enumerate(Y.reshape(-1, 4, 4)):
    for block, members in enumerate(blocks):
        known[row, 4 * block + rng.choice(np.flatnonzero(members == 0))] = 0
told = model.solve(X, long, known=known).y.numpy()
hidden = np.isnan(known)
for name, soft in (("told nothing", solution.y.numpy()), ("told one in each block", told)):
    print(f"{name}: {((soft > threshold) != Y)[hidden].mean():.1%} of the hidden labels wrong")
