"""Closed-form gradients against autograd, batching, sums and the canonical form."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import KINKED, LEARNED, SUMS, F, fixed_terms, random_context, randomise

import spen
from spen.batch.context import Context
from spen.energies import form
from spen.energies.base import Problem, SumProblem
from spen.energies.scores import ConditionalScoreEnergy, ScoreEnergy, SurpriseEnergy

sizes = st.integers(1, 7)
seeds = st.integers(0, 10_000)


def assert_gradient(problem: Problem, y: torch.Tensor) -> None:
    point = y.clone().requires_grad_()
    (expected,) = torch.autograd.grad(problem.value(point).sum(), point)
    value, gradient = problem.value_and_gradient(y)
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(value, problem.value(y), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LEARNED)
@settings(max_examples=15, deadline=None)
@given(n_labels=sizes, rows=sizes, seed=seeds)
def test_gradient_of_learned_energies(name, n_labels, rows, seed):
    domain = spen.UnitBox(n_labels)
    energy = randomise(LEARNED[name](n_labels), seed)
    context, y = random_context(domain, rows, seed)
    assert_gradient(energy.bind(context), y)


@pytest.mark.parametrize("at_once", [1, form.MOVED_AT_ONCE])
@pytest.mark.parametrize("name", [*LEARNED, "entropy"])
def test_flips_are_differences_of_energies(name, at_once, monkeypatch):
    """However many labels are looked at together, and with an entropy, which labellings lack."""
    monkeypatch.setattr(form, "MOVED_AT_ONCE", at_once)
    domain = spen.UnitBox(5)
    energy = randomise(LEARNED["local+label" if name == "entropy" else name](5), 1)
    if name == "entropy":
        energy = energy + fixed_terms(domain)["entropy"]
    context, y = random_context(domain, 4, seed=2)
    problem, y = energy.bind(context), y.round()
    expected = torch.empty_like(y)
    for row in range(4):
        one = problem.select(torch.tensor([row] * 6))
        each = y[row] + torch.cat([torch.zeros(1, 5), torch.diag(1 - 2 * y[row])])
        values = one.value(each.to(y))
        expected[row] = values[1:] - values[0]
    torch.testing.assert_close(problem.flips(y), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LEARNED)
def test_stacked_problems_are_one_below_the_other(name):
    """Of two batches; what cannot be stacked says so."""
    domain = spen.UnitBox(4)
    energy = randomise(LEARNED[name](4), 0)
    (first, y), (second, other_y) = (random_context(domain, 3 - k, k) for k in range(2))
    problems = energy.bind(first), energy.bind(second)
    both = problems[0].stack(problems[1])
    assert (both is None) == (problems[0].form is None)
    if both is not None:
        found = both.value_and_gradient(torch.cat([y, other_y]))
        apart = zip(problems, (y, other_y), strict=True)
        expected = zip(*(problem.value_and_gradient(at) for problem, at in apart), strict=True)
        for one, parts in zip(found, expected, strict=True):
            torch.testing.assert_close(one, torch.cat(parts))


@pytest.mark.parametrize("term", ["hamming", "squared", "log", "entropy"])
@pytest.mark.parametrize("kind", ["box", "simplex"])
@settings(max_examples=15, deadline=None)
@given(n_labels=st.integers(2, 5), positions=st.integers(1, 3), rows=sizes, seed=seeds)
def test_gradient_of_fixed_terms_alone_and_in_sums(term, kind, n_labels, positions, rows, seed):
    domain = spen.UnitBox(n_labels) if kind == "box" else spen.Simplex(n_labels, positions)
    context, y = random_context(domain, rows, seed)
    fixed = fixed_terms(domain)[term]
    assert_gradient(fixed.bind(context), y)
    learned = randomise(spen.LocalEnergy(F, domain.size) + spen.PairwiseEnergy(domain.size), seed)
    assert_gradient((learned + fixed).bind(context), y)


@pytest.mark.parametrize("kind", ["box", "simplex"])
@pytest.mark.parametrize("delta", ["hamming", "squared", "log"])
def test_unobserved_labels_do_not_count_in_augmentation(kind, delta):
    domain = spen.UnitBox(4) if kind == "box" else spen.Simplex(2, positions=2)
    context, y = random_context(domain, 3, seed=1)
    observed = torch.tensor([[True, True, False, False]]).expand(3, -1)
    problem = spen.LossAugmentation(domain, delta).bind(
        Context(context.features, context.target, observed=observed)
    )
    assert_gradient(problem, y)
    moved = y.clone()
    moved[:, 2:] = y[:, 2:].flip(1)  # stays on the simplex
    torch.testing.assert_close(problem.value(moved), problem.value(y))


@pytest.mark.parametrize("name", LEARNED)
def test_gradient_can_be_differentiated_again(name):
    energy = randomise(LEARNED[name](4), 3)
    context, y = random_context(spen.UnitBox(4), 2, 5)
    problem = energy.bind(context)
    parameters = [p for p in energy.parameters() if p.requires_grad]
    closed = problem.gradient(y).square().sum()
    general = Problem.value_and_gradient(problem, y)[1].square().sum()
    options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    ours = torch.autograd.grad(closed, parameters, **options)
    theirs = torch.autograd.grad(general, parameters, **options)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", LEARNED)
def test_check_energy_accepts_ours(name):
    spen.check_energy(randomise(LEARNED[name](5), 0))


@pytest.mark.parametrize("name", ["hamming", "squared", "log", "entropy"])
def test_check_energy_accepts_fixed_terms(name):
    for domain in (spen.UnitBox(4), spen.Simplex(3, positions=2)):
        spen.check_energy(fixed_terms(domain)[name], domain)


def test_forms_merge_and_deep_energies_do_not():
    context, y = random_context(spen.UnitBox(5), 2, 0)
    merged = randomise(SUMS["local+conditional+low-rank"](5), 0).bind(context)
    assert merged.form is merged
    assert len(merged.form.blocks) == 2
    general = randomise(SUMS["local+deep+pairwise"](5), 0).bind(context)
    assert general.form is None
    assert isinstance(general, SumProblem)
    assert len(general.terms) == 3
    again = general + general
    assert isinstance(again, SumProblem)
    assert len(again.terms) == 5, "the two local forms become one"
    torch.testing.assert_close(again.value(y), 2 * general.value(y))


def test_values_by_hand():
    y = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]], dtype=torch.float64)
    context = Context(torch.tensor([[1.0, 2.0], [0.0, 1.0]], dtype=torch.float64))
    local = spen.LocalEnergy(2, 3).double()
    label = spen.LabelEnergy(3, 2, "hardtanh").double()
    pairs = spen.PairwiseEnergy(3).double()
    with torch.no_grad():
        local.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        local.bias.copy_(torch.tensor([0.5, 0.0, 0.0]))
        label.measurements.copy_(torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.5, 0.0]]))
        label.bias.copy_(torch.tensor([-2.5, 0.0]))
        label.readout.copy_(torch.tensor([2.0, -1.0]))
        pairs.weight.copy_(torch.tensor([[9.0, 1.0, 3.0], [1.0, 9.0, 2.0], [3.0, 2.0, 9.0]]))
        pairs.bias.copy_(torch.tensor([0.0, 0.0, 1.0]))
    # row 0: (1 + .5) + (1 + 2); row 1: 1 + (0 + 1)
    assert local.bind(context).value(y).tolist() == [4.5, 2.0]
    # both rows: hardtanh(2 - 2.5) * 2; row 1 also -hardtanh(.5)
    assert label.bind(context).value(y).tolist() == [-1.0, -1.5]
    # the diagonal is dropped: 2 * S_02 + 1 and 2 * S_12 + 1
    assert pairs.bind(context).value(y).tolist() == [7.0, 5.0]


G = {
    "relu": lambda z: np.maximum(z, 0),
    "hardtanh": lambda z: np.clip(z, -1, 1),
    "softplus": lambda z: np.logaddexp(0, z),
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
}
"""The nonlinearities, written down once more."""


def _formulas(p: dict[str, np.ndarray], g, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """The docstrings' formulas of one example, entry by entry, by the name of the energy."""
    soft = G["sigmoid"](x)
    if "weight" in p:
        return {"LocalEnergy": sum(y[i] * (p["weight"][i] @ x + p["bias"][i]) for i in range(4))}
    if "scale_bias" in p:
        scores = [(1 + p["scale_bias"][i]) * x[i] + p["bias"][i] for i in range(4)]
        return {"ScoreEnergy": -sum(y[i] * scores[i] for i in range(4))}
    C, d, c = p["measurements"], p["bias"], p["readout"]
    energies = {"LabelEnergy": sum(c[k] * g(C[k] @ y + d[k]) for k in range(3))}
    if "feature_weight" in p:
        D = p["feature_weight"]
        for name, seen in (("ConditionalEnergy", x), ("ConditionalScoreEnergy", soft)):
            energies[name] = sum(c[k] * g(C[k] @ y + D[k] @ seen + d[k]) for k in range(3))
    if "surprise_bias" in p:
        z = [C[k] @ y - p["surprise_bias"][k] * (C[k] @ soft) + d[k] for k in range(3)]
        energies["SurpriseEnergy"] = sum(c[k] * g(z[k]) for k in range(3))
    return energies


@pytest.mark.parametrize("nonlinearity", G)
@pytest.mark.parametrize(
    "kind",
    [
        spen.LocalEnergy,
        ScoreEnergy,
        spen.LabelEnergy,
        spen.ConditionalEnergy,
        ConditionalScoreEnergy,
        SurpriseEnergy,
    ],
)
def test_energies_are_the_formulas_of_their_docstrings(kind, nonlinearity):
    """Every parameter counts, biases too, and none counts twice."""
    sizes = {spen.LocalEnergy: (4, 4), ScoreEnergy: (4,), spen.ConditionalEnergy: (4, 4, 3)}
    given = sizes.get(kind, (4, 3))
    plain = kind in (spen.LocalEnergy, ScoreEnergy)
    energy = randomise(kind(*given) if plain else kind(*given, nonlinearity=nonlinearity), 1)
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randn(5, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    found = energy.bind(Context(x)).value(y.sigmoid()).detach()
    parameters = {name: p.detach().numpy() for name, p in energy.named_parameters()}
    rows = zip(x.numpy(), y.sigmoid().numpy(), strict=True)
    wanted = [_formulas(parameters, G[nonlinearity], *row)[kind.__name__] for row in rows]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "made",
    [
        lambda L: spen.LabelEnergy(L, 40),
        lambda L: spen.ConditionalEnergy(F, L, 40),
        lambda L: spen.ConvexEnergy(F, L, 40),
    ],
)
def test_measurements_begin_as_large_whatever_the_number_of_labels(made):
    """Of independent labels they then vary alike: by 1.2 times a label's own deviation."""
    for n_labels in (100, 900):
        measurements = made(n_labels).measurements.detach()
        assert measurements.square().sum(1).mean().sqrt().item() == pytest.approx(1.2, rel=0.03)


def test_low_rank_pairs_are_the_table_that_they_stand_for():
    energy = randomise(spen.PairwiseEnergy(6, rank=2), 0)
    table = energy.pairs()
    assert torch.equal(table.diagonal(), torch.zeros(6, dtype=torch.float64))
    context, y = random_context(spen.UnitBox(6), 4, 0)
    expected = ((y @ table + energy.bias) * y).sum(1)
    torch.testing.assert_close(energy.bind(context).value(y), expected)


@pytest.mark.parametrize(
    "made",
    [
        spen.LabelEnergy(6, 3),
        spen.ConditionalEnergy(F, 6, 3),
        spen.ConvexEnergy(F, 6, 3),
        spen.PairwiseEnergy(6),
        spen.PairwiseEnergy(6, rank=2),
    ],
    ids=lambda energy: type(energy).__name__,
)
def test_a_new_energy_begins_as_seed_0_draws_it(made):
    weights = {name: weight.clone() for name, weight in made.state_dict().items()}
    made.reset(torch.Generator().manual_seed(0))
    again = made.state_dict()
    assert all(torch.equal(weights[name], each) for name, each in again.items())
    made.reset(torch.Generator().manual_seed(1))
    drawn = [
        name for name, each in made.state_dict().items() if not torch.equal(weights[name], each)
    ]
    assert drawn or type(made) is spen.PairwiseEnergy


def test_an_energy_that_does_not_look_at_y_has_a_gradient_of_zeros():
    class Bias(spen.Energy):
        def __init__(self):
            super().__init__()
            self.n_labels, self.weight = 3, torch.nn.Parameter(torch.ones(()))

        def forward(self, features, y):
            return self.weight.expand(len(features))

    problem = Bias().bind(Context(torch.zeros(2, F)))
    value, gradient = problem.value_and_gradient(torch.full((2, 3), 0.5))
    assert torch.equal(value, torch.ones(2))
    assert torch.equal(gradient, torch.zeros(2, 3))


def test_factors_begin_as_large_whatever_the_number_of_labels():
    for n_labels in (100, 900):
        factors = spen.PairwiseEnergy(n_labels, rank=40).factors.detach()
        assert factors.square().sum(1).mean().item() == pytest.approx(1.0, rel=0.1)


def test_counting_measurements_begin_as_shares_of_labels():
    measurements = spen.LabelEnergy(24, 50, initial="counting").measurements.detach()
    assert measurements.min() >= 0
    assert 0.45 < measurements.max() < 12 / 24


def test_a_new_pairwise_energy_is_zero():
    context, y = random_context(spen.UnitBox(4), 2, 0)
    for rank in (None, 2):
        value = spen.PairwiseEnergy(4, rank).double().bind(context).value(y)
        assert torch.equal(value, torch.zeros(2, dtype=torch.float64))


def test_augmentation_counts_wrong_labels_on_vertices():
    for domain, wrong in ((spen.UnitBox(4), [2.0]), (spen.Simplex(2, positions=2), [1.0])):
        target = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
        guess = torch.tensor([[0.0, 1.0, 1.0, 0.0]])
        context = Context(torch.zeros(1, 1), target)
        for delta in ("hamming", "squared"):
            problem = spen.LossAugmentation(domain, delta, margin=3.0).bind(context)
            assert (-problem.value(guess) / 3).tolist() == wrong
            assert problem.value(target).tolist() == [0.0]


class Cosine(spen.Energy):
    """An energy as a user would write it: forward alone."""

    def __init__(self, n_labels):
        super().__init__()
        self.n_labels = n_labels
        self.n_features = F
        self.weight = torch.nn.Parameter(torch.ones(n_labels, F))

    def forward(self, features, y):
        return torch.cos(y * (features @ self.weight.T)).sum(1)


def test_an_energy_of_forward_alone_works_everywhere():
    spen.check_energy(Cosine(4))
    energy = spen.LocalEnergy(F, 4) + Cosine(4)
    spen.check_energy(energy)
    model = spen.SPEN(spen.Identity(F), energy, spen.UnitBox(4), seed=0)
    assert model.solve(torch.zeros(2, F)).y.shape == (2, 4)


class _WrongGradientProblem(Problem):
    def __init__(self, features):
        self.features = features

    def value(self, y):
        return y.square().sum(1)

    def value_and_gradient(self, y):
        return self.value(y), y  # the factor of two is missing

    def select(self, rows):
        return _WrongGradientProblem(self.features[rows])

    @property
    def rows_like(self):
        return self.features


class _Broken(spen.Energy):
    n_labels = 3

    def __init__(self, fault):
        super().__init__()
        self.fault = fault

    def bind(self, context, generator=None):
        if self.fault == "gradient":
            return _WrongGradientProblem(context.features)
        return super().bind(context, generator)

    def forward(self, features, y):
        if self.fault == "shape":
            return y
        if self.fault == "neighbours":
            return y.mean() + y.sum(1)
        if self.fault == "type":
            return y.sum(1).float()
        if self.fault == "width":
            return features @ torch.ones(2, dtype=y.dtype) + y.sum(1)
        if self.fault == "numpy":
            return torch.from_numpy(y.detach().numpy().sum(1))
        return torch.rand(y.shape[0], dtype=y.dtype) * 0 + y.sum(1)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("gradient", "gradient differs from autograd"),
        ("shape", "one number per row"),
        ("neighbours", "neighbours"),
        ("type", "changes the type"),
        ("width", r"features of width 1, .* write self\.n_features = n_features"),
        ("numpy", "has no gradient"),
        ("global random state", "global random state"),
    ],
)
def test_check_energy_names_the_fault(fault, words):
    with pytest.raises(spen.EnergyCheckError, match=words) as caught:
        spen.check_energy(_Broken(fault))
    assert isinstance(caught.value, AssertionError)


def test_a_size_by_another_name_is_told_how_it_is_called():
    class Other(spen.Energy):
        def __init__(self, labels, most):
            super().__init__()
            self.n_labels, self.most = labels, most

    with pytest.raises(spen.InputError, match="called n_features, n_labels, domain"):
        Other.unsized(most=2).size(3, spen.UnitBox(4))


def test_an_energy_that_does_not_say_its_size_is_told_how():
    class NoSize(spen.Energy):
        def __init__(self, n_labels):
            super().__init__()

        def forward(self, features, y):
            return y.sum(1)

    for use in (spen.check_energy, lambda energy: spen.LocalEnergy(3, 4) + energy):
        with pytest.raises(AttributeError, match=r"NoSize .* self.n_labels = n_labels"):
            use(NoSize(4))
    assert not hasattr(NoSize(4), "n_labels")


def test_sums_must_agree_on_sizes():
    with pytest.raises(spen.InputError, match="same labels: LocalEnergy has 4, LabelEnergy has 5"):
        spen.LocalEnergy(3, 4) + spen.LabelEnergy(5, 2)
    with pytest.raises(spen.InputError, match="same features"):
        spen.LocalEnergy(3, 4) + spen.ConditionalEnergy(2, 4, 2)


def test_unknown_nonlinearity_suggests_the_nearest():
    with pytest.raises(spen.UnknownNameError, match="Did you mean 'hardtanh'"):
        spen.LabelEnergy(3, 2, "hardtan")
    with pytest.raises(ValueError, match="Choose from"):
        spen.LabelEnergy(3, 2, None)


def test_kinked_energies_are_not_smooth_at_their_kinks():
    """The gradient tests draw random points; make sure that kinks are really crossed."""
    energy = randomise(KINKED["label-hardtanh"](6), 1, scale=2.0)
    context, y = random_context(spen.UnitBox(6), 200, 1)
    block = energy.bind(context).form.blocks[0]
    measured = y @ block.measurements.T + block.bias
    inside = (measured.abs() < 1).double().mean()
    assert 0.1 < inside < 0.9


def test_step_rates_add_nothing_to_any_labelling():
    problem = spen.StepRates(3, steps=2).bind(Context(torch.zeros(2, F)))
    for y in (torch.zeros(2, 3), torch.ones(2, 3)):
        assert problem.value(y).tolist() == [0.0, 0.0]
        assert problem.gradient(y).tolist() == torch.zeros(2, 3).tolist()
