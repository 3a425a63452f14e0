"""Tags of a sequence

Each position of a sequence has a tag, and what follows what is learned: a chain in the energy,
whose best tagging and whose probabilities are found exactly. The picture shows how
sure the model is of a sequence that it has not seen.
"""

# %% [markdown]
# Names in made-up sentences: `B` begins one, `I` goes on, `O` is outside. The signal of a position
# is noisy, so that neighbours have to help.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch

import spen
from spen.batch.positions import pad

TAGS = ("B", "I", "O")
FOLLOWS = np.array([[0.0, 0.9, 0.1], [0.0, 0.5, 0.5], [0.3, 0.0, 0.7]])


def sentences(count, seed):
    """Return numbers (T, 3) and tags (T,) of so many sequences of different lengths."""
    rng = np.random.default_rng(seed)
    signals, tags = [], []
    for _ in range(count):
        walk = [2]
        for _ in range(rng.integers(5, 14)):
            walk.append(rng.choice(3, p=FOLLOWS[walk[-1]]))
        tags.append(walk)
        signals.append((np.eye(3)[walk] + rng.normal(0, 0.8, (len(walk), 3))).tolist())
    return signals, tags


def batch(signals, tags):
    """Return one-hot tags (n, 3T), which positions there are (n, T), and both in a context."""
    target, mask = pad(tags)
    one_hot = torch.nn.functional.one_hot(target, 3).float() * mask[:, :, None]
    features = torch.zeros(*mask.shape, 3)
    for row, signal in enumerate(signals):
        features[row, : len(signal)] = torch.tensor(signal)
    truth = one_hot.flatten(1)
    return truth, mask, spen.Context(features, truth, mask=mask)


_, _, train = batch(*sentences(200, seed=0))
truth, mask, test = batch(*sentences(200, seed=1))

# %% [markdown]
# ## Train a chain
# The likelihood of a chain is exact. `forbidden_transitions` reads from the names of the tags that
# `I` cannot follow `O`.

# %%
domain = spen.Simplex(3, positions=None)
energies = {
    "each by itself": spen.LocalEnergy(3, 3),
    "in a chain": spen.LocalEnergy(3, 3)
    + spen.ChainEnergy(3, forbidden=spen.forbidden_transitions(TAGS)),
}
models = {}
for name, energy in energies.items():
    model = spen.SPEN(spen.Identity(3), energy, domain, seed=0)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(60):
        loss = spen.Likelihood().loss(model, spen.Viterbi(), train).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    best = model.solve_context(test, spen.Viterbi())
    right = (best.y * truth).sum() / mask.sum()
    models[name] = model
    print(f"{name:>15}: {right:.1%} of the tags right")

# %% [markdown]
# ## Look at one
# `ForwardBackward` has the probability of each tag at each position.

# %%
# How probable each tag of a new sequence is; crosses are the truth
soft = models["in a chain"].solve_context(test, spen.ForwardBackward())
length = int(mask[0].sum())
shown = soft.y[0].reshape(-1, 3)[:length].T.numpy()
figure, axis = plt.subplots(figsize=(6.5, 2.4), layout="constrained")
image = axis.imshow(shown, cmap="Blues", vmin=0, vmax=1, aspect="auto")
axis.plot(range(length), truth[0].reshape(-1, 3)[:length].argmax(1), "x", color="tomato")
axis.set(yticks=range(3), yticklabels=TAGS, xlabel="position")
figure.colorbar(image)
plt.show()

# %% [markdown]
# [Sequences](../sequences.md) begins with a CoNLL file, and goes on to energies that no chain can
# hold.
