"""Reading a pairwise form: the same energy at every labelling, or a refusal in words."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise_models import (
    KINDS,
    energies_of_all,
    kinds,
    losses,
    nan,
    random_crf,
    random_known,
    seeds,
)
from problems import F, all_labelings, random_context, randomise

import spen
from spen.batch.context import Context
from spen.inference.discrete.pairwise import read_pairwise


@settings(max_examples=25)
@given(kind=kinds, n_labels=st.integers(1, 6), rows=st.integers(1, 3), loss=losses, seed=seeds)
def test_every_labelling_has_the_energy_of_the_problem(kind, n_labels, rows, loss, seed):
    problem, _ = random_crf(kind, n_labels, rows, seed, loss)
    form = read_pairwise(problem, "A solver")
    torch.testing.assert_close(energies_of_all(form, n_labels), energies_of_all(problem, n_labels))
    assert torch.equal(form.weights, form.weights.mT)
    assert (form.weights.diagonal(dim1=1, dim2=2) == 0).all()
    last = torch.tensor([rows - 1])
    y = torch.rand(1, n_labels, dtype=torch.float64)
    torch.testing.assert_close(form.select(last).value(y), form.value(y.expand(rows, -1))[-1:])


@settings(max_examples=20)
@given(kind=kinds, n_labels=st.integers(1, 6), rows=st.integers(1, 3), seed=seeds)
def test_known_labels_leave_the_energy_of_the_others(kind, n_labels, rows, seed):
    problem, domain = random_crf(kind, n_labels, rows, seed)
    known = random_known(rows, n_labels, seed)
    form = read_pairwise(problem, "A solver").condition(known)
    for labelling in all_labelings(domain):
        y = labelling.expand(rows, -1)
        torch.testing.assert_close(form.value(y), problem.value(domain.hold(y, known)))
    held = ~torch.isnan(known)
    assert (form.unary[held] == 0).all()
    assert (form.weights.expand(rows, -1, -1)[held] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_differentiable_in_the_parameters(kind):
    """At labels the form is the problem, so its gradient is too; also where all rows look alike."""
    domain = spen.UnitBox(4)
    energy = spen.LocalEnergy(F, 4) + KINDS[kind](4)
    randomise(energy, 3)
    if kind == "conditional":
        with torch.no_grad():
            energy.terms[1].feature_weight.zero_()
    context, _ = random_context(domain, 5, 3)
    y = domain.round(torch.rand(5, 4, dtype=torch.float64))
    parameters = list(energy.parameters())
    problem = energy.bind(context)
    wanted = torch.autograd.grad(problem.value(y).sum(), parameters)
    ours = torch.autograd.grad(
        read_pairwise(energy.bind(context), "A solver").value(y).sum(), parameters
    )
    for a, b in zip(ours, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_rows_share_their_weights_where_they_can():
    assert len(read_pairwise(random_crf("full", 3, 5, 0)[0], "").weights) == 1
    assert len(read_pairwise(random_crf("conditional", 3, 5, 0)[0], "").weights) == 5


def test_its_own_gradient():
    form = read_pairwise(random_crf("two-tables", 4, 3, 1)[0], "A solver")
    y = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    (wanted,) = torch.autograd.grad(form.value(y).sum(), y, retain_graph=True)
    torch.testing.assert_close(form.gradient(y), wanted)


SOLVERS = {
    "lp": spen.LinearRelaxation(),
    "lbp": spen.BeliefPropagation(),
    "milp": spen.Exact(method="milp"),
}


@pytest.mark.parametrize("solver", SOLVERS)
def test_what_is_not_pairwise_is_refused(solver):
    domain, inference = spen.UnitBox(4), SOLVERS[solver]
    context, _ = random_context(domain, 2, 0)

    class Own(spen.Energy):
        n_labels = 4

        def forward(self, features, y):
            return y.prod(1)

    refused = {
        "hardtanh": spen.LabelEnergy(4, 2, "hardtanh"),
        "NetworkProblem": Own(),
        "LogLossProblem": spen.LossAugmentation(domain, "log"),
    }
    for name, term in refused.items():
        problem = (spen.LocalEnergy(F, 4).double() + term.double()).bind(context)
        with pytest.raises(spen.InputError, match=f"pairwise energy of labels: .*{name}"):
            inference.solve(problem, domain)
    with pytest.raises(spen.InputError, match="received a constant"):
        inference.solve(spen.Form(constant=torch.zeros(2)), domain)
    smoothed = (spen.LocalEnergy(F, 4).double() + spen.Entropy(domain, 1.0)).bind(context)
    with pytest.raises(spen.InputError, match="Leave the entropy at 0"):
        inference.solve(smoothed, domain)
    local = spen.LocalEnergy(F, 4).double().bind(context)
    with pytest.raises(spen.InputError, match="sets of labels, on a UnitBox"):
        inference.solve(local, spen.Simplex(2, positions=2))
    with pytest.raises(spen.InputError, match="known must be a tensor of shape"):
        inference.solve(local, domain, known=torch.full((2, 3), nan))
    with pytest.raises(spen.InputError, match="known must hold only 0 and 1"):
        inference.solve(local, domain, known=torch.full((2, 4), 0.5))


def test_a_constant_beside_pairs_counts():
    pairs = randomise(spen.PairwiseEnergy(3), 0).bind(Context(torch.zeros(2, 1).double()))
    problem = pairs + spen.Form(constant=torch.tensor([1.0, 2.0], dtype=torch.float64))
    form = read_pairwise(problem, "A solver")
    torch.testing.assert_close(energies_of_all(form, 3), energies_of_all(problem, 3))
