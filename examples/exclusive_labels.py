"""Train a SPEN on labels that exclude each other, then ask it what no feed-forward model answers.

Run it with: python examples/exclusive_labels.py
"""

import numpy as np

import spen

data = spen.exclusive_blocks(n_train=1500, n_test=2000, seed=7)
train, valid = spen.hold_out(data.train, share=0.2, seed=7)

# An energy is a sum of terms: one that looks at x, one that looks at the labels together.
energy = spen.LocalEnergy(64, 16) + spen.LabelEnergy(16, measurements=8, initial="counting")
model = spen.SPEN(spen.Identity(64), energy, spen.UnitBox(16), seed=0)
inference = spen.Descent(spen.MirrorDescent(lr=0.05, momentum=0.8), spen.Stopping(max_steps=40))

history = spen.train(
    model,
    stages=[
        spen.Stage(
            "local",
            spen.CrossEntropy(),
            parts=("local",),
            epochs=60,
            lr=0.1,
            schedule="cosine",
            weight_decay=2e-4,
        ),
        spen.Stage(
            "global", spen.Hinge(), inference, parts=("global",), epochs=10, lr=0.03, clip=1
        ),
        spen.Stage("all", spen.Hinge(), inference, epochs=10, lr=0.01, clip=1),
    ],
    train=train,
    valid=valid,
    seed=0,
)
for stage in ("local", "global", "all"):
    best = history.stage(stage)[history.best_epoch(stage) - 1]
    print(f"{stage:>6}: best epoch {best.epoch}, held-out F1 {best.score:.3f}")

# Predict: minimise the energy, then apply a threshold that was tuned on held-out rows.
long = spen.Descent(spen.MirrorDescent(lr=0.05, momentum=0.8), spen.Stopping(max_steps=300))
threshold, _ = spen.tune_threshold(valid.Y, model.solve(valid.X, long).y)
solution = model.solve(data.test.X, long)
predicted = (solution.y > threshold).numpy()
print(f"\ntest F1 {spen.example_f1(data.test.Y, predicted):.3f}. {solution.describe()}")

# The energy of any labelling: how often does the truth score better than what was found?
truth = model.energy_of(data.test.X, data.test.Y)
print(f"search errors: {spen.search_error_rate(truth, solution.energy):.1%}")

# Tell the model one label of each block that is off. It infers the rest better than before.
rng = np.random.default_rng(0)
known = np.full(data.test.Y.shape, np.nan)
for row, labels in enumerate(data.test.Y.reshape(-1, 4, 4)):
    for block, members in enumerate(labels):
        known[row, 4 * block + rng.choice(np.flatnonzero(members == 0))] = 0
told = model.solve(data.test.X, long, known=known).y.numpy()
hidden = np.isnan(known)
for name, soft in (("told nothing", solution.y.numpy()), ("told one in each block", told)):
    wrong = ((soft > threshold) != data.test.Y)[hidden].mean()
    print(f"{name}: {wrong:.1%} of the hidden labels wrong")
