"""Inference on two labels

Two labels that seldom go together, and a row whose features speak a little for both. Inference
starts in the middle and goes down the energy; told that one label is on, it goes down the edge that
is left. The pictures draw the energy of every point, and the way that inference takes.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.animation import FuncAnimation, PillowWriter

import spen

# %% [markdown]
# The energy has a part for each label by itself (below zero: the features speak for it) and one for
# both together: y₁ y₂ costs 5. Entropy keeps answers soft, so that they are probabilities.

# %%
alone, together = spen.LocalEnergy(1, 2), spen.PairwiseEnergy(2)
with torch.no_grad():
    alone.weight.zero_()
    alone.bias.copy_(torch.tensor([-1.6, -1.2]))  # sun is a little more likely than rain
    together.weight.copy_(torch.tensor([[0.0, 2.5], [2.5, 0.0]]))
model = spen.SPEN(spen.Identity(1), alone + together, spen.UnitBox(2))
row = torch.zeros(1, 1)


def way(known=None):
    """Return where inference is after each of 45 steps, (46, 2)."""
    rule, stopping = spen.MirrorDescent(lr=0.25, momentum=0.0), spen.Stopping(45, 0, 0)
    descent = spen.Descent(rule, stopping, trace=True)
    trace = model.solve(row, descent, known=known, entropy=1.0).trace
    assert trace is not None  # it was asked for
    return trace.y[:, 0].numpy()


nan = torch.nan
ways = {
    "nothing is known": way(),
    "rain is known to be on": way(torch.tensor([[nan, 1.0]])),
    "rain is known to be off": way(torch.tensor([[nan, 0.0]])),
}
for name, points in ways.items():
    print(f"{name}: sun {points[-1, 0]:.2f}, rain {points[-1, 1]:.2f}")

# %% [markdown]
# The energy of every point, entropy included, as inference sees it.

# %%
# Inference goes down the energy; dark is low
side = np.linspace(0.003, 0.997, 101, dtype=np.float32)
sun, rain = np.meshgrid(side, side)
points = torch.from_numpy(np.stack([sun.ravel(), rain.ravel()], 1))
energy = model.energy + spen.Entropy(spen.UnitBox(2))
with torch.no_grad():
    surface = energy(row.expand(len(points), 1), points).reshape(sun.shape)

figure, axes = plt.subplots(1, 3, figsize=(9, 3.5), layout="constrained")
moving = []
for axis, (name, points) in zip(axes, ways.items(), strict=True):
    axis.contourf(sun, rain, surface, 30, cmap="viridis")
    axis.set(title=name, xlabel="sun", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    (line,) = axis.plot(*points.T, "o-", color="orange", markersize=3, linewidth=1, clip_on=False)
    (head,) = axis.plot(*points[-1:].T, "o", color="red", markersize=10, clip_on=False)
    moving.append((line, head, points))
axes[0].set_ylabel("rain")


def frame(step):
    """Draw the way up to a step; the last one stands for a while."""
    for line, head, points in moving:
        line.set_data(*points[: step + 1].T)
        head.set_data(*points[min(step, len(points) - 1)][:, None])
    return [part for line, head, _ in moving for part in (line, head)]


FuncAnimation(figure, frame, frames=56).save("energy-surface.gif", PillowWriter(fps=8), dpi=75)
plt.show()

# %% [markdown]
# The file that this writes is the moving picture of [what a SPEN is](../explanation.md).
