"""The model: sizes, seeds, bad input, and clamped prediction."""

import numpy as np
import pytest
import torch

import spen


def model(seed: int | None = 0, n_inputs: int = 5) -> spen.SPEN:
    energy = spen.LocalEnergy(4, 3) + spen.LabelEnergy(3, 2)
    return spen.SPEN(spen.MLP(n_inputs, 6, 4, dropout=0.5), energy, spen.UnitBox(3), seed=seed)


def test_the_seed_decides_all_weights():
    torch.manual_seed(0)
    first = model(seed=3).state_dict()
    torch.manual_seed(1)
    second = model(seed=3).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = model(seed=4).state_dict()
    assert not torch.equal(first["features.weights.0"], other["features.weights.0"])


def test_no_seed_keeps_the_weights_that_came_in():
    energy = spen.LocalEnergy(2, 3)
    with torch.no_grad():
        energy.weight.fill_(7.0)
    kept = spen.SPEN(spen.Identity(2), energy, spen.UnitBox(3))
    assert (kept.energy.weight == 7).all()


def test_sizes_must_fit():
    with pytest.raises(spen.InputError, match=r"looks at 4 features.*gives 5"):
        spen.SPEN(spen.Identity(5), spen.LocalEnergy(4, 3), spen.UnitBox(3))
    with pytest.raises(spen.InputError, match=r"scores 3 labels.*has 4"):
        spen.SPEN(spen.Identity(4), spen.LocalEnergy(4, 3), spen.UnitBox(4))


X = np.zeros((4, 5))
Y = np.zeros((4, 3))


def with_entry(array, value):
    array = array.copy()
    array[2, 1] = value
    return array


BAD = [
    ((with_entry(X, np.nan), Y), "X must hold finite numbers; row 2, column 1 holds nan"),
    ((with_entry(X, np.inf), Y), "row 2, column 1 holds inf"),
    ((X[:, :4], Y), "X must have 5 columns, as the model has; received 4"),
    ((X[0], Y), "X must have two dimensions"),
    ((X[:0], Y[:0]), "X is empty"),
    (([["a"] * 5] * 4, Y), "X must be an array of numbers"),
    (([[1.0], [1.0, 2.0]], Y), "X must be an array of numbers"),
    ((X, with_entry(Y, 2)), "Y must hold only 0 and 1 .* row 2, column 1 holds 2"),
    ((X, with_entry(Y, -1)), "row 2, column 1 holds -1"),
    ((X, with_entry(Y, np.inf)), "row 2, column 1 holds inf"),
    ((X, Y[:3]), "Y must have 4 rows; received 3"),
    ((X, Y[:, :2]), "Y must have 3 columns"),
    ((X, np.array([0, 1, 2, 1])), "class numbers"),
]


@pytest.mark.parametrize(("data", "words"), BAD)
def test_bad_data_is_refused_in_words_and_changes_nothing(data, words):
    one = model()
    before = {name: tensor.clone() for name, tensor in one.state_dict().items()}
    with pytest.raises(spen.InputError, match=words):
        spen.train(one, [spen.Stage("local", spen.CrossEntropy())], data)
    with pytest.raises(ValueError, match=words):
        one.context(data[0], target=data[1])
    assert all(torch.equal(before[name], t) for name, t in one.state_dict().items())


def test_a_single_row_and_the_same_row_in_a_batch_agree():
    one = model()
    inputs = np.random.default_rng(0).standard_normal((50, 5))
    whole = one.solve(inputs).y
    for row in range(0, 50, 7):
        torch.testing.assert_close(
            one.solve(inputs[row : row + 1]).y[0], whole[row], atol=1e-5, rtol=0
        )


def test_dropout_is_only_drawn_with_a_generator():
    one = model()
    inputs = torch.randn(10, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(one.features(inputs), one.features(inputs))
    dropped = [one.features(inputs, torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(dropped[0], dropped[1])
    assert not torch.equal(dropped[0], dropped[2])
    many = torch.ones(2000, 50)
    kept = spen.features.drop(many, 0.3, torch.Generator().manual_seed(0))
    assert kept.mean().item() == pytest.approx(1.0, abs=0.02)
    assert (kept == 0).double().mean().item() == pytest.approx(0.3, abs=0.01)


def test_known_labels_inform_the_others():
    """Two labels that exclude each other: telling one decides the other."""
    label = spen.LabelEnergy(2, 1, "relu")
    one = spen.SPEN(spen.Identity(1), spen.LocalEnergy(1, 2) + label, spen.UnitBox(2))
    local = one.energy.terms[0]
    with torch.no_grad():
        local.weight.zero_()
        local.bias.copy_(torch.tensor([-1.0, -0.8]))
        label.measurements.fill_(1.0)
        label.bias.fill_(-1.0)
        label.readout.fill_(3.0)
    x = [[0.0]]
    assert one.domain.round(one.solve(x).y).tolist() == [[1.0, 0.0]]
    nan = float("nan")
    assert one.solve(x, known=[[nan, 1]]).y.round().tolist() == [[0.0, 1.0]]
    assert one.solve(x, known=[[0, nan]]).y.round().tolist() == [[0.0, 1.0]]
    with pytest.raises(spen.InputError, match="known must hold only 0 and 1"):
        one.solve(x, known=[[0.5, nan]])


@pytest.mark.parametrize("batch_size", [1, 3, 4])
def test_each_row_keeps_its_own_known_labels_in_batches_of_any_size(batch_size):
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((10, 5))
    known = rng.choice([0.0, 1.0, np.nan], size=(10, 3))
    whole = model().solve(inputs, known=known).y
    held = torch.from_numpy(~np.isnan(known))
    assert torch.equal(whole[held], torch.from_numpy(known).float()[held])
    parts = model().solve(inputs, known=known, batch_size=batch_size).y
    assert torch.equal(parts, whole)


def test_energy_of_any_labelling():
    one = model()
    inputs = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    y = torch.rand(3, 3, generator=torch.Generator().manual_seed(1))
    expected = one.energy(one.features(inputs), y)
    torch.testing.assert_close(one.energy_of(inputs, y), expected.detach())
    solution = one.solve(inputs)
    torch.testing.assert_close(one.energy_of(inputs, solution.y), solution.energy)
    with pytest.raises(spen.InputError, match="y must have 3 columns"):
        one.energy_of(inputs, y[:, :2])


def test_targets_on_a_simplex_are_checked():
    one = spen.SPEN(spen.Identity(2), spen.LocalEnergy(2, 3), spen.Simplex(3), seed=0)
    inputs = [[0.0, 0.0]]
    nan = float("nan")
    for bad in ([[0, 0, 0]], [[1, 1, 0]]):
        with pytest.raises(spen.InputError, match="exactly one"):
            one.context(inputs, target=bad)
    decided = one.context(inputs, target=[[0, 0, nan]])
    assert decided.target.tolist() == [[0.0, 0.0, 1.0]]
    assert decided.observed is None
    open_ = one.context(inputs, target=[[0, nan, nan]])
    assert open_.observed.tolist() == [[True, False, False]]


def test_masks_and_weights_are_checked():
    one = model()
    missing = with_entry(Y, np.nan)
    both = one.context(X, target=missing, observed=np.ones((4, 3)))
    assert not both.observed[2, 1]
    with pytest.raises(spen.InputError, match="observed must have"):
        one.context(X, target=Y, observed=np.ones((4, 2)))
    with pytest.raises(spen.InputError, match=r"weight must have shape \(4,\)"):
        one.context(X, weight=np.ones(7))


@pytest.mark.parametrize("batch_size", [0, -1, 2.5])
def test_batch_sizes_are_checked(batch_size):
    with pytest.raises(spen.InputError, match="batch_size"):
        model().solve(X, batch_size=batch_size)


def test_terms_of_another_domain_are_refused():
    energy = spen.LocalEnergy(2, 4) + spen.Entropy(spen.UnitBox(4))
    with pytest.raises(spen.InputError, match="Entropy was made for UnitBox"):
        spen.SPEN(spen.Identity(2), energy, spen.Simplex(4))


@pytest.mark.parametrize(
    "make",
    [
        lambda: spen.LocalEnergy(0, 3),
        lambda: spen.LabelEnergy(3, 0),
        lambda: spen.LabelEnergy(3, 2, hidden=(0,)),
        lambda: spen.ConditionalEnergy(2, 3, 2.5),
        lambda: spen.PairwiseEnergy(3, rank=0),
        lambda: spen.Identity(-4),
        lambda: spen.MLP(5, 0),
        lambda: spen.SPEN(spen.Identity(2), spen.LocalEnergy(2, 3), spen.UnitBox(3), seed=-1),
    ],
)
def test_sizes_are_whole_numbers(make):
    with pytest.raises(spen.InputError, match="whole number"):
        make()


@pytest.mark.parametrize(
    "inputs",
    [
        X.astype(">f8"),
        X.astype(np.longdouble),
        X.astype(np.int8),
        X.astype(bool),
        X.tolist(),
        torch.zeros(4, 5, dtype=torch.float16),
        torch.zeros(4, 5, requires_grad=True),
        np.broadcast_to(np.zeros((1, 5)), (4, 5)),
    ],
)
def test_any_array_of_numbers_will_do(inputs):
    expected = model().solve(X).y
    torch.testing.assert_close(model().solve(inputs).y, expected)


def test_what_a_masked_array_hides_is_missing():
    hidden = np.array([[False, True, False], [True, False, True]])
    labels = np.ma.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]], mask=hidden)
    rows, missing = np.ones((2, 5)), labels.filled(np.nan)
    context, expected = (model().context(rows, each) for each in (labels, missing))
    assert torch.equal(context.observed, torch.from_numpy(~hidden))
    assert torch.equal(context.target, expected.target)
    y, expected = (model().solve(rows, known=each).y for each in (labels, missing))
    assert torch.equal(y, expected)
    with pytest.raises(spen.InputError, match="row 1, column 0 holds nan"):
        model().solve(np.ma.array(rows, mask=[[False] * 5, [True] + [False] * 4]))


def test_numpy_numbers_are_numbers():
    spen.Stopping(np.int64(10), np.float32(1e-4))
    spen.MLP(np.int64(5), np.int32(4))
    spen.MirrorDescent(np.float32(0.1))
    assert spen.UnitBox(np.int64(3)).size == 3


@pytest.mark.parametrize(
    "inputs", [torch.zeros(4, 5).to_sparse(), torch.zeros(4, 5, dtype=torch.complex64)]
)
def test_tensors_that_are_not_dense_and_real_are_refused(inputs):
    with pytest.raises(spen.InputError, match="dense tensor of real numbers"):
        model().solve(inputs)


def test_a_trace_over_several_batches_is_refused():
    with pytest.raises(spen.InputError, match="raise batch_size"):
        model().solve(X, spen.Descent(trace=True), batch_size=2)
    trace = model().solve(X, spen.Descent(trace=True)).trace
    assert trace is not None
    assert trace.y.shape[1:] == (4, 3), "the rows that fill a tile up are not shown"


def test_entropy_softens():
    one = model()
    inputs = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    hard, soft = one.solve(inputs).y, one.solve(inputs, entropy=2.0).y
    assert (soft - 0.5).abs().mean() < 0.5 * (hard - 0.5).abs().mean()


def test_starting_at_the_local_output():
    """For a local energy with entropy 1 that start is the answer, so one step sees it."""
    local = spen.SPEN(spen.Identity(5), spen.LocalEnergy(5, 3), spen.UnitBox(3), seed=0)
    inputs = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    started = local.solve(inputs, entropy=1.0, start="local")
    assert (started.steps == 1).all()
    context = local.context(inputs)
    torch.testing.assert_close(started.y, torch.sigmoid(-local.local_scores(context)).detach())
    assert local.solve(inputs, entropy=1.0).steps.double().mean() > 2


class Halved(spen.LocalEnergy):
    """A local energy that binds in its own way: a form whose linear part is not its scores."""

    def bind(self, context, generator=None):
        half = self.scores(context) / 2
        return spen.Form(linear=half, quadratic=2 * half)


@pytest.mark.parametrize("local", [spen.LocalEnergy, Halved])
@pytest.mark.parametrize("entropy", [0.0, 0.7])
def test_posing_gives_the_smoothed_problem_and_its_start(local, entropy):
    energy = local(4, 3) + spen.LabelEnergy(3, 2) + local(4, 3)
    one = spen.SPEN(spen.Identity(4), energy, spen.UnitBox(3), seed=0)
    context = one.context(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)))
    problem, start = one.pose(context, "local", entropy)
    y = torch.rand(6, 3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(problem.value(y), one.smoothed(context, entropy).value(y))
    assert torch.equal(start, one.starting_point(context, "local"))
    assert torch.equal(start, torch.sigmoid(-one.local_scores(context)).detach())
    assert one.pose(context, "uniform", entropy)[1] is None
    with pytest.raises(spen.InputError, match="Unknown start 'centre'"):
        one.pose(context, "centre", entropy)
    with pytest.raises(spen.InputError, match="entropy must be a number above zero"):
        one.pose(context, "local", -1.0)


def test_a_local_start_needs_a_local_energy():
    one = spen.SPEN(spen.Identity(4), spen.LabelEnergy(3, 2), spen.UnitBox(3), seed=0)
    with pytest.raises(spen.InputError, match="needs a LocalEnergy"):
        one.solve(np.zeros((1, 4)), start="local")
    assert one.solve(np.zeros((1, 4))).y.shape == (1, 3)


def test_float64_on_request():
    one = model().double()
    solution = one.solve(X)
    assert solution.y.dtype == torch.float64


def test_features_check_their_settings():
    with pytest.raises(spen.InputError, match="width of each layer"):
        spen.MLP(5)
    with pytest.raises(spen.InputError, match="dropout"):
        spen.MLP(5, 4, dropout=1.0)
    assert spen.Linear(5, 2, 7).n_features == 7
    assert (spen.MLP(5, 4)(torch.randn(3, 5)) >= 0).all()
    deep = spen.Linear(2, 3, 1)
    inputs = torch.randn(4, 2)
    torch.testing.assert_close(
        deep(inputs) - deep(torch.zeros(4, 2)), -(deep(-inputs) - deep(torch.zeros(4, 2)))
    )
