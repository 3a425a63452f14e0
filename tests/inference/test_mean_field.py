"""Mean field against its definition: expectations by enumeration of all labelings."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import F, all_labelings, random_context, randomise

import spen
from spen.domains import Domain
from spen.energies.base import Energy, Problem
from spen.inference.base import Status
from spen.inference.rules import RULES

seeds = st.integers(0, 10_000)
models = st.sampled_from(["pairwise", "low-rank", "conditional", "conditional-2"])
nan = torch.nan


def crf(kind: str, n_labels: int, seed: int, scale: float = 1.0) -> Energy:
    """A random CRF: local scores, and pairs that do or do not depend on the features."""
    pairs = {
        "pairwise": lambda: spen.PairwiseEnergy(n_labels),
        "low-rank": lambda: spen.PairwiseEnergy(n_labels, rank=2),
        "conditional": lambda: spen.ConditionalPairwiseEnergy(F, n_labels),
        "conditional-2": lambda: spen.ConditionalPairwiseEnergy(F, n_labels, terms=2),
    }[kind]()
    return randomise(spen.LocalEnergy(F, n_labels) + pairs, seed, scale)


def mean_field(steps: int = 1, damping: float = 0.0) -> spen.Descent:
    return spen.Descent(spen.MeanField(damping), spen.Stopping(steps), spen.Unrolled())


def probability(y: torch.Tensor, labelings: torch.Tensor) -> torch.Tensor:
    """The probability of each labelling (m, L) under independent labels with means y (L,)."""
    return torch.where(labelings == 1, y, 1 - y).prod(1)


def energies(problem: Problem, row: int, labelings: torch.Tensor) -> torch.Tensor:
    one = problem.select(torch.tensor([row]))
    return torch.cat([one.value(each[None]) for each in labelings])


def by_definition(problem: Problem, y: torch.Tensor, tau: float, known=None) -> torch.Tensor:
    """q_i(1) ∝ exp(−⟨E | y_i = 1⟩ / τ), the others independent with means y."""
    labelings = all_labelings(spen.UnitBox(y.shape[1]))
    updated = y.clone()
    for row, label in torch.cartesian_prod(*map(torch.arange, y.shape)).tolist():
        if known is not None and not known[row, label].isnan():
            continue
        expected = []
        for state in (0.0, 1.0):
            given_state = y[row].clone()
            given_state[label] = state
            weights = probability(given_state, labelings)
            expected.append((weights * energies(problem, row, labelings)).sum())
        odds = torch.exp(-torch.stack(expected) / tau)
        updated[row, label] = odds[1] / odds.sum()
    return updated


def random_known(domain: Domain, rows: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + 1)
    draw = torch.rand(rows, domain.size, generator=generator, dtype=torch.float64)
    return torch.where(draw < 0.3, 0.0, torch.where(draw < 0.6, 1.0, nan))


@settings(max_examples=40)
@given(
    kind=models,
    n_labels=st.integers(1, 5),
    rows=st.integers(1, 3),
    tau=st.floats(0.3, 3.0),
    some_known=st.booleans(),
    seed=seeds,
)
def test_a_step_is_mean_field_by_enumeration(kind, n_labels, rows, tau, some_known, seed):
    domain = spen.UnitBox(n_labels)
    context, y = random_context(domain, rows, seed)
    problem = crf(kind, n_labels, seed, scale=0.7).bind(context)
    known = random_known(domain, rows, seed) if some_known else None
    smoothed = problem + spen.Entropy(domain, tau).bind(context)
    if known is not None:
        y = domain.hold(y, known)
    for steps in (1, 2):
        y_expected = y
        for _ in range(steps):
            y_expected = by_definition(problem, y_expected, tau, known)
        solution = mean_field(steps).solve(smoothed, domain, y, known)
        torch.testing.assert_close(solution.y, y_expected)
    if known is not None:
        assert (torch.isnan(known) | (solution.y == known)).all()


@settings(max_examples=15)
@given(kind=models, n_labels=st.integers(1, 5), tau=st.floats(0.3, 3.0), seed=seeds)
def test_the_objective_is_the_free_energy(kind, n_labels, tau, seed):
    """⟨E⟩ − τH by enumeration; it bounds −τ log Z from above."""
    domain = spen.UnitBox(n_labels)
    context, start = random_context(domain, 2, seed)
    problem = crf(kind, n_labels, seed, scale=0.7).bind(context)
    smoothed = problem + spen.Entropy(domain, tau).bind(context)
    solution = mean_field(2).solve(smoothed, domain, start)
    torch.testing.assert_close(solution.energy, smoothed.value(solution.y))
    labelings = all_labelings(domain)
    for row in range(2):
        q, energy = probability(solution.y[row], labelings), energies(problem, row, labelings)
        free = (q * energy).sum() + tau * torch.xlogy(q, q).sum()
        torch.testing.assert_close(solution.energy[row], free)
        assert free >= -tau * torch.logsumexp(-energy / tau, 0) - 1e-9


@pytest.mark.parametrize("some_known", [False, True])
@settings(max_examples=15)
@given(kind=models, n_labels=st.integers(2, 5), tau=st.floats(0.5, 2.0), seed=seeds)
def test_a_fixed_point_is_a_stationary_point_of_the_free_energy(
    some_known, kind, n_labels, tau, seed
):
    domain = spen.UnitBox(n_labels)
    context, _ = random_context(domain, 3, seed)
    problem = crf(kind, n_labels, seed, scale=0.4).bind(context)
    smoothed = problem + spen.Entropy(domain, tau).bind(context)
    known = random_known(domain, 3, seed) if some_known else None
    y = mean_field(400, damping=0.6).solve(smoothed, domain, known=known).y.detach()
    torch.testing.assert_close(mean_field(1).solve(smoothed, domain, y, known).y, y)
    free = torch.ones_like(y, dtype=torch.bool) if known is None else torch.isnan(known)
    (slope,) = torch.autograd.grad(smoothed.value(y.requires_grad_()).sum(), y)
    assert (slope[free].abs() < 1e-6).all()
    elsewhere = torch.where(free, 0.9 * y.detach() + 0.01, y.detach()).requires_grad_()
    (slope,) = torch.autograd.grad(smoothed.value(elsewhere).sum(), elsewhere)
    assert not free.any() or slope[free].abs().max() > 1e-3, "other points are not stationary"


def test_the_box_as_printed_is_not_mean_field():
    """P(y) ∝ exp(y·A y + C·y): the paper's box loses a factor of two, and D for D∘ȳ."""
    generator = torch.Generator().manual_seed(0)
    n_labels, options = 4, {"generator": generator, "dtype": torch.float64}
    A = torch.randn(n_labels, n_labels, **options)
    A = (A + A.T) / 2
    C, y = torch.randn(n_labels, **options), torch.rand(1, n_labels, **options)
    D = A.diagonal()
    domain = spen.UnitBox(n_labels)
    pairwise = spen.PairwiseEnergy(n_labels).double()
    with torch.no_grad():
        pairwise.weight.copy_(-A)
        pairwise.bias.copy_(-(C + D))  # y_i² = y_i: the diagonal counts as a local score
    context, _ = random_context(domain, 1, 0)
    problem = pairwise.bind(context)
    labelings = all_labelings(domain)
    written_out = torch.einsum("mi,ij,mj->m", labelings, A, labelings) + labelings @ C
    torch.testing.assert_close(-energies(problem, 0, labelings), written_out)

    smoothed = problem + spen.Entropy(domain, 1.0).bind(context)
    ours = mean_field(1).solve(smoothed, domain, y).y
    torch.testing.assert_close(ours, by_definition(problem, y, 1.0))
    torch.testing.assert_close(ours, torch.sigmoid(D + 2 * (y @ A - D * y) + C))
    as_printed = torch.sigmoid(y @ A - D + C)
    without_the_two = torch.sigmoid(D + (y @ A - D * y) + C)
    with_the_two = torch.sigmoid(2 * (y @ A) - D + C)
    for other in (as_printed, without_the_two, with_the_two):
        assert (ours - other).abs().max() > 0.05


@pytest.mark.parametrize("kind", ["pairwise", "conditional"])
def test_gradient_through_five_steps_against_finite_differences(kind):
    domain = spen.UnitBox(3)
    energy = crf(kind, 3, 2, scale=0.5)
    context, _ = random_context(domain, 2, 2)
    model = spen.SPEN(spen.Identity(F), energy, domain)
    objective = spen.UnrolledLikelihood(entropy=1.0)
    inference = spen.Descent(spen.MeanField(), spen.Stopping(5))

    def loss() -> torch.Tensor:
        return objective.loss(model, inference, context).sum()

    parameters = list(energy.parameters())
    gradients = torch.autograd.grad(loss(), parameters)
    step = 1e-6
    for parameter, gradient in zip(parameters, gradients, strict=True):
        flat = parameter.detach().view(-1)
        for index, slope in enumerate(gradient.flatten().tolist()):
            with torch.no_grad():
                flat[index] += step
                above = loss().item()
                flat[index] -= 2 * step
                below = loss().item()
                flat[index] += step
            assert slope == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-7)
    assert all(gradient.abs().max() > 1e-3 for gradient in gradients)


@pytest.mark.parametrize("kind", ["pairwise", "conditional"])
def test_without_pairs_one_step_is_the_sigmoid_of_each_label(kind):
    domain = spen.UnitBox(5)
    new = {
        "pairwise": spen.PairwiseEnergy(5),
        "conditional": spen.ConditionalPairwiseEnergy(F, 5),
    }[kind].double()
    local = randomise(spen.LocalEnergy(F, 5), 0)
    context, _ = random_context(domain, 7, 0)
    problem = (local + new + spen.Entropy(domain, 1.0)).bind(context)
    expected = torch.sigmoid(-local.scores(context))
    for steps in (1, 5):
        assert torch.equal(mean_field(steps).solve(problem, domain).y, expected)


def test_on_a_simplex_a_step_is_the_softmax_of_expected_energies():
    """Of each position's classes, the other positions independent; pairs join positions only."""
    domain = spen.Simplex(3, positions=2)
    energy = crf("conditional", 6, 1)
    with torch.no_grad():
        energy.terms[1].weight[:, :3, :3] = 0
        energy.terms[1].weight[:, 3:, 3:] = 0
    context, y = random_context(domain, 4, 1)
    problem = energy.bind(context)
    smoothed = problem + spen.Entropy(domain, 0.7).bind(context)
    known = torch.full_like(y, nan)
    known[1, 0], known[2, 4] = 0.0, 1.0
    known = domain.complete_known(known)
    start = domain.hold(y, known)
    solution = mean_field(1).solve(smoothed, domain, start, known)
    one_hot = torch.eye(3, dtype=torch.float64)
    for row, position in torch.cartesian_prod(torch.arange(4), torch.arange(2)).tolist():
        here = slice(3 * position, 3 * position + 3)
        there = slice(3 - 3 * position, 6 - 3 * position)
        expected = torch.zeros(3, dtype=torch.float64)
        for mine, other in torch.cartesian_prod(torch.arange(3), torch.arange(3)).tolist():
            labelling = torch.zeros(1, 6, dtype=torch.float64)
            labelling[0, here], labelling[0, there] = one_hot[mine], one_hot[other]
            expected[mine] += start[row, there][other] * energies(problem, row, labelling)[0]
        odds = torch.where(known[row, here] == 0, 0.0, torch.exp(-expected / 0.7))
        torch.testing.assert_close(solution.y[row, here], odds / odds.sum())


def test_damped_it_is_mirror_descent_and_undamped_its_limit():
    domain, tau, damping = spen.UnitBox(4), 0.8, 0.3
    context, start = random_context(domain, 3, 0)
    problem = (crf("conditional", 4, 0) + spen.Entropy(domain, tau)).bind(context)

    def mirror(lr: float) -> torch.Tensor:
        rule = spen.MirrorDescent(lr, momentum=0.0)
        descent = spen.Descent(rule, spen.Stopping(4), spen.Unrolled())
        return descent.solve(problem, domain, start).y

    damped = mean_field(4, damping).solve(problem, domain, start).y
    torch.testing.assert_close(damped, mirror((1 - damping) / (damping * tau)))
    plain = mean_field(4).solve(problem, domain, start).y
    torch.testing.assert_close(plain, mirror(1e12))
    assert (plain - damped).abs().max() > 0.01


def test_labels_that_repel_each_other_cycle_unless_damped():
    """Two labels are wanted and exclude each other: both yield at once, then both return."""
    pairwise = spen.PairwiseEnergy(2).double()
    with torch.no_grad():
        pairwise.weight.copy_(torch.tensor([[0.0, 5.0], [5.0, 0.0]]))
        pairwise.bias.fill_(-5.0)
    domain = spen.UnitBox(2)
    context, _ = random_context(domain, 1, 0)
    problem = (pairwise + spen.Entropy(domain, 1.0)).bind(context)
    start = torch.tensor([[0.6, 0.6]], dtype=torch.float64)
    stopping = spen.Stopping(100, 0.0, 1e-9)
    cycling = spen.Descent(spen.MeanField(), stopping).solve(problem, domain, start)
    assert cycling.status.item() == Status.MAX_STEPS
    assert cycling.energy <= problem.value(start), "the best iterate is kept"
    settled = spen.Descent(spen.MeanField(damping=0.8), stopping).solve(problem, domain, start)
    assert settled.converged.all()
    assert settled.energy <= cycling.energy


def test_it_refuses_to_work_without_entropy():
    domain = spen.UnitBox(3)
    model = spen.SPEN(spen.Identity(F), spen.LocalEnergy(F, 3), domain, seed=0)
    inference = spen.Descent(spen.MeanField(), spen.Stopping(5))
    with pytest.raises(spen.InputError, match=r"above zero .* received none. .* entropy=1.0"):
        model.solve(torch.zeros(2, F), inference)
    local = spen.Form(linear=torch.zeros(2, 3))
    zero = spen.Form(tau=torch.tensor([1.0, 0.0]), domain=domain)
    for backward in (spen.Detached(), spen.Unrolled()):
        with pytest.raises(spen.InputError, match="received 0"):
            spen.Descent(spen.MeanField(), backward=backward).solve(local + zero, domain)


def test_settings():
    assert RULES["mean_field"] is spen.MeanField
    with pytest.raises(spen.InputError, match="damping must be at least 0 and below 1"):
        spen.MeanField(damping=1.0)
    with pytest.raises(TypeError, match="lr"):
        spen.MeanField(lr=0.1)  # a setting that would do nothing
