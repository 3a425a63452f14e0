"""Skip-chains, forced transitions and language models over labels, against plain loops."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_positions import DESCENTS, OPEN, K, batch, noisy, sequences

import spen

ENERGIES = {
    "skips": lambda: spen.SkipChainEnergy(K, skips=(2, 5)),
    "language": lambda: spen.LanguageEnergy(K, window=2, hidden=5),
    "language of one": lambda: spen.LanguageEnergy(K, window=1, hidden=3, nonlinearity="sigmoid"),
    "language of words": lambda: spen.LanguageEnergy(K, window=9, hidden=4),
}


@pytest.mark.parametrize("name", ENERGIES)
@pytest.mark.parametrize("beside", [False, True])
def test_check_energy(name, beside):
    energy = ENERGIES[name]()
    if beside:
        energy = spen.LocalEnergy(3, K) + spen.ChainEnergy(K) + energy
    spen.check_energy(noisy(energy, torch.float64), OPEN)


def by_loops(energy, y):
    """The value for y (T, K), from the parameters."""
    length, value = len(y), 0.0
    if isinstance(energy, spen.SkipChainEnergy):
        for skip, table in zip(energy.skips, energy.transitions, strict=True):
            for t in range(length - skip):
                value = value + y[t] @ table @ y[t + skip]
        return torch.as_tensor(value, dtype=y.dtype)
    for t in range(length + 1):
        measured = energy.bias.clone()
        for back in range(1, energy.window + 1):
            if t - back >= 0:
                measured = measured + energy.measurements[:, energy.window - back] @ y[t - back]
        scores = energy.readout @ energy.nonlinearity.value(measured) + energy.frequency
        logs = torch.log_softmax(scores, 0)
        value = value - (logs[-1] if t == length else y[t] @ logs[:-1])
    return value


@pytest.mark.parametrize("name", ENERGIES)
@given(seed=st.integers(0, 100), length=st.integers(1, 7))
def test_value_by_plain_loops(name, seed, length):
    energy = noisy(ENERGIES[name](), torch.float64, seed)
    generator = torch.Generator().manual_seed(seed)
    y = torch.rand(length, K, generator=generator).double()
    found = energy.bind(spen.Context(torch.zeros(1, length, 1))).value(y.reshape(1, -1))
    torch.testing.assert_close(found[0], by_loops(energy, y))


@pytest.mark.parametrize("name", ["language", "language of one", "language of words"])
def test_all_rows_of_labels_together_are_certain(name):
    """The probabilities of all rows of up to so many labels, and of longer ones, sum to one."""
    energy = noisy(ENERGIES[name](), torch.float64)
    with torch.no_grad():
        energy.frequency[-1] += 2.0
        shares = []
        for length in range(1, 4):
            rows = itertools.product(range(K), repeat=length)
            y = torch.stack([torch.eye(K).double()[list(tags)].flatten() for tags in rows])
            value = energy.bind(spen.Context(torch.zeros(len(y), length, 1))).value(y)
            shares.append((-value).exp().sum())
            measured = energy.nonlinearity.value(energy.bias)
            first = torch.softmax(energy.readout @ measured + energy.frequency, 0)
        # Of all that is not empty, what has ended after one label, two, three: each a part.
        assert (torch.stack(shares) > 0).all()
        assert torch.stack(shares).sum() < 1 - first[-1]
        ones = torch.eye(K).double()
        of_ends = torch.stack([by_loops(energy, one[None]) for one in ones])
        torch.testing.assert_close((-of_ends).exp().sum(), shares[0])
        # What follows a given first label is certain: the end, or one of the others.
        follows = [(-by_loops(energy, ones[:1])).exp()]
        for k in range(K):
            both = -by_loops(energy, ones[[0, k]])
            measured = energy.bias + energy.measurements[:, -1] @ ones[k]
            if energy.window > 1:
                measured = measured + energy.measurements[:, -2] @ ones[0]
            scores = energy.readout @ energy.nonlinearity.value(measured) + energy.frequency
            follows.append((both - torch.log_softmax(scores, 0)[-1]).exp())
        torch.testing.assert_close(torch.stack(follows).sum(), first[0])


@pytest.mark.parametrize("name", ENERGIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_padding_and_neighbours_change_no_bit(name, dtype):
    lengths = [5, 1, 13, 8, 2, 21, 3, 9, 4]
    features = [part.astype(str(dtype).split(".")[1]) for part in sequences(lengths)]
    energy = noisy(spen.LocalEnergy(3, K) + ENERGIES[name](), dtype)

    def answers(context, row):
        problem, domain = energy.bind(context), OPEN.of_batch(context)
        columns = int(context.mask[row].sum()) * K
        for descent in DESCENTS[:2]:
            found = descent.solve(problem, domain)
            yield found.y[row, :columns], found.energy[row], problem.value(found.y)[row]
            yield problem.gradient(found.y)[row, :columns], found.steps[row]

    together = batch(features)
    for row in range(len(lengths)):
        alone, longer = batch(features[row : row + 1]), batch(features[row : row + 1], positions=36)
        for expected, *others in zip(
            answers(together, row), answers(alone, 0), answers(longer, 0), strict=True
        ):
            for other in others:
                assert all(torch.equal(a, b) for a, b in zip(expected, other, strict=True))


def test_a_language_model_learns_to_spell():
    words = torch.tensor([[0, 1, 2, 3], [3, 1, 0, 0]])
    target = torch.nn.functional.one_hot(words, K).float().flatten(1)
    energy = spen.LanguageEnergy(K, window=4, hidden=16)
    context = spen.Context(torch.zeros(2, 4, 1))
    optimiser = torch.optim.Adam(energy.parameters(), 0.1)
    for _ in range(60):
        loss = energy.bind(context).value(target).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    # Two words, alike likely: log 2.
    assert abs(loss.item() - 0.6931) < 0.02


@given(st.data())
def test_forced_transitions_are_the_only_ones(data):
    classes = data.draw(st.integers(2, 4))
    each = st.tuples(st.integers(-1, classes - 1), st.integers(-1, classes - 1))
    forced = data.draw(st.lists(each.filter(lambda pair: pair != (-1, -1)), max_size=4))
    table = spen.ChainEnergy(classes, forced=forced).forbidden
    for i, j in itertools.product(range(-1, classes), repeat=2):
        allowed = {b for a, b in forced if a == i}
        expected = bool(allowed) and j not in allowed and (i, j) != (-1, -1)
        assert (table is not None and bool(table[i, j])) == expected


def test_forced_and_forbidden_together():
    energy = spen.ChainEnergy(3, forbidden=[(1, 1)], forced=[(0, 2), (-1, 0)])
    problem = spen.Form(linear=torch.tensor([[5.0, 0, 0, 0, -9, 0, 3, 0, 2]]))
    problem = problem + energy.bind(spen.Context(torch.zeros(1, 3, 1)))
    found = spen.Viterbi().solve(problem, spen.Simplex(3, positions=3))
    assert found.y.reshape(3, 3).argmax(1).tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: spen.ChainEnergy(3, forced=[(0, 3)]), r"A forced .*or -1.*received \(0, 3\)"),
        (lambda: spen.SkipChainEnergy(3, skips=()), "at least one distance"),
        (lambda: spen.SkipChainEnergy(3, skips=(0,)), "skips must be a whole number"),
        (lambda: spen.LanguageEnergy(3, window=0), "window must be a whole number"),
        (lambda: spen.LanguageEnergy(3, hidden=0), "hidden must be a whole number"),
        (lambda: spen.LanguageEnergy(3).bind(spen.Context(torch.zeros(2, 3))), "with positions"),
    ],
)
def test_errors(make, words):
    with pytest.raises(spen.InputError, match=words):
        make()


def test_they_are_saved_and_described(tmp_path):
    energy = spen.LocalEnergy(3, K) + spen.SkipChainEnergy(K, (2,)) + spen.LanguageEnergy(K, 2, 3)
    energy = energy + spen.ChainEnergy(K, forced=[(0, 1)])
    model = spen.SPEN(spen.Identity(3), energy, OPEN, seed=0)
    model.save(tmp_path / "model.spen")
    loaded = spen.load(tmp_path / "model.spen")
    context = batch(sequences([3, 5]))
    y = OPEN.of_batch(context).uniform(context.features)
    assert torch.equal(loaded.energy.bind(context).value(y), model.energy.bind(context).value(y))
    described = spen.SkipChainEnergy.unsized(skips=(3,)) + spen.LanguageEnergy.unsized(window=4)
    assert described.size(3, OPEN).n_labels == K
