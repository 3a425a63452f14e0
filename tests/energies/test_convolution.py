"""Windows over y, against plain loops and autograd; descent from the chain's marginals."""

from dataclasses import replace

import pytest
import torch
from chain_models import make_case
from hypothesis import given
from hypothesis import strategies as st
from test_positions import DESCENTS, OPEN, F, K, batch, noisy, sequences

import spen

ENERGIES = {
    "window of 1": lambda: spen.ConvolutionEnergy(K, window=1, measurements=3),
    "window of 2": lambda: spen.ConvolutionEnergy(K, window=2, measurements=5),
    "window of 3": lambda: spen.ConvolutionEnergy(K, 3, 2, "sigmoid"),
    "window of 6": lambda: spen.ConvolutionEnergy(K, window=6, measurements=5),
    "with features": lambda: spen.ConditionalConvolutionEnergy(F, K, 3, 4),
}


@pytest.mark.parametrize("name", ENERGIES)
@pytest.mark.parametrize("beside", [False, True])
def test_check_energy(name, beside):
    energy = ENERGIES[name]()
    if beside:
        energy = spen.LocalEnergy(F, K) + spen.ChainEnergy(K) + energy
    spen.check_energy(noisy(energy, torch.float64), OPEN)


@pytest.mark.parametrize("name", ENERGIES)
@given(seed=st.integers(0, 100), length=st.integers(1, 7))
def test_value_by_plain_loops(name, seed, length):
    energy = noisy(ENERGIES[name](), torch.float64, seed)
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(1, length, F, generator=generator).double()
    y = torch.rand(length, K, generator=generator).double()
    expected = 0.0
    for t in range(length):
        measured = energy.bias.clone()
        if isinstance(energy, spen.ConditionalConvolutionEnergy):
            measured = measured + energy.feature_weight @ features[0, t]
        for m in range(energy.window):
            if 0 <= (place := t + m - energy.window // 2) < length:
                measured = measured + energy.measurements[:, m] @ y[place]
        expected = expected + energy.readout @ energy.nonlinearity.value(measured)
    found = energy.bind(spen.Context(features)).value(y.reshape(1, -1))
    torch.testing.assert_close(found[0], expected)


@pytest.mark.parametrize("name", ENERGIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_padding_and_neighbours_change_no_bit(name, dtype):
    lengths = [5, 1, 13, 8, 2, 21, 3, 9, 4]
    features = [part.astype(str(dtype).split(".")[1]) for part in sequences(lengths)]
    parts = spen.LocalEnergy(F, K) + spen.ChainEnergy(K, [(0, 1)]) + ENERGIES[name]()
    model = spen.SPEN(spen.Identity(F), noisy(parts, dtype), OPEN)

    def answers(context, row):
        columns = int(context.mask[row].sum()) * K
        for descent in DESCENTS:
            found = model.solve_context(context, descent, "chain", entropy=0.4)
            assert (found.y[row, columns:] == 0).all()
            yield found.y[row, :columns], found.energy[row], found.steps[row]

    together = batch(features)
    for row in range(len(lengths)):
        alone, longer = batch(features[row : row + 1]), batch(features[row : row + 1], positions=36)
        for expected, *others in zip(
            answers(together, row), answers(alone, 0), answers(longer, 0), strict=True
        ):
            for other in others:
                assert all(torch.equal(a, b) for a, b in zip(expected, other, strict=True))


def test_descent_starts_at_the_chains_marginals():
    """With a convolution that says nothing, the start is what the chain says, known tags held."""
    case = make_case(3, [4, 2, 5], some_known=True)
    chain = case.model.energy
    energy = chain + spen.ConvolutionEnergy(3).double()
    model = spen.SPEN(spen.Identity(F), energy, case.model.domain)
    expected = spen.ForwardBackward().solve(case.problem, case.domain, known=case.context.known)
    assert torch.equal(model.starting_point(case.context, "chain"), expected.y)
    assert torch.equal(model.pose(case.context, "chain", 0.5)[1], expected.y)
    with pytest.raises(spen.InputError, match="needs a ChainEnergy"):
        spen.SPEN(spen.Identity(F), chain.terms[0], case.model.domain).starting_point(
            case.context, "chain"
        )


@pytest.mark.parametrize(
    "objective",
    [
        spen.EndToEnd("log", "last", entropy=1.0, start="chain"),
        spen.UnrolledLikelihood(entropy=1.0, start="chain"),
        spen.Hinge(start="chain"),
    ],
    ids=lambda objective: type(objective).__name__,
)
def test_a_convolution_learns_what_no_chain_can(objective):
    """A tag repeats the one three positions before, which the features of the first three tell."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(2, (40, 3), generator=generator)
    tags = first.repeat(1, 3)
    target = torch.nn.functional.one_hot(tags, 2).float().flatten(1)
    features = torch.zeros(40, 9, 2)
    features[:, :3] = torch.nn.functional.one_hot(first, 2).float()
    context = spen.Context(features, target)
    # The last six tags are held in turns: what stands three before and after tells the others.
    known = target.clone()
    known[:, 6:12] = torch.nan
    context = replace(context, known=known)
    energy = spen.LocalEnergy(2, 2) + spen.ChainEnergy(2)
    energy = energy + spen.ConvolutionEnergy(2, window=7, measurements=16)
    model = spen.SPEN(spen.Identity(2), energy, spen.Simplex(2, positions=None), seed=0)
    optimiser = torch.optim.Adam(model.parameters(), 0.05)
    descent = spen.Descent(spen.MirrorDescent(0.5, 0.5), spen.Stopping(15))
    for _ in range(80):
        loss = objective.loss(model, descent, context).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    solved = objective.predict(model, descent, context)
    assert torch.equal(model.domain.round(solved.y), target)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: spen.ConvolutionEnergy(3, window=0), "window"),
        (lambda: spen.ConvolutionEnergy(3, measurements=0), "measurements"),
        (lambda: spen.ConvolutionEnergy(3, nonlinearity="relus"), "Did you mean 'relu'"),
        (lambda: spen.ConvolutionEnergy(3).bind(spen.Context(torch.zeros(2, 3))), "positions"),
        (
            lambda: spen.Viterbi().solve(
                spen.ConvolutionEnergy(3).bind(spen.Context(torch.zeros(2, 4, 3))),
                spen.Simplex(3, positions=4),
            ),
            "needs a chain: .*received WindowProblem",
        ),
    ],
)
def test_errors(make, words):
    with pytest.raises(spen.InputError, match=words):
        make()


def test_a_saved_convolution_comes_back(tmp_path):
    energy = spen.LocalEnergy(F, K) + spen.ConditionalConvolutionEnergy(F, K, 2, 3, "sigmoid")
    model = spen.SPEN(spen.Identity(F), noisy(energy, torch.float32), OPEN)
    model.save(tmp_path / "model.spen")
    context = batch(sequences([3, 4]))
    y = OPEN.of_batch(context).uniform(context.features)
    loaded = spen.load(tmp_path / "model.spen")
    assert torch.equal(loaded.energy.bind(context).value(y), model.energy.bind(context).value(y))
