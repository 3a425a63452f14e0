"""Mirror maps, projections and rounding."""

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given
from hypothesis import strategies as st

import spen

DOMAINS = [spen.UnitBox(5), spen.Simplex(5), spen.Simplex(3, positions=2)]
ids = [str(domain) for domain in DOMAINS]


def noise(domain, rows=20, scale=3.0, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(rows, domain.size, generator=generator, dtype=dtype)


@pytest.mark.parametrize("domain", DOMAINS, ids=ids)
def test_mirror_map_and_back(domain):
    y = domain.to_primal(noise(domain, scale=2.0))
    torch.testing.assert_close(domain.to_primal(domain.to_dual(y)), y)
    if isinstance(domain, spen.Simplex):
        sums = y.reshape(20, domain.positions, domain.n_classes).sum(2)
        torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("domain", DOMAINS, ids=ids)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_primal_is_strictly_inside_for_any_dual(domain, dtype):
    for scale in (1.0, 50.0, 1e6):
        y = domain.to_primal(noise(domain, 200, scale, dtype=dtype))
        assert (y > 0).all()
        assert (y < 1).all()
    vertex = domain.round(y)
    inside = domain.to_primal(domain.to_dual(vertex))
    assert (inside > 0).all()
    assert (inside < 1).all()
    assert torch.equal(domain.round(inside), vertex)


@pytest.mark.parametrize("domain", DOMAINS, ids=ids)
def test_projection_is_the_nearest_point(domain):
    points = noise(domain, rows=6)
    projected = domain.project(points)
    for point, ours in zip(points.numpy(), projected.numpy(), strict=True):
        constraints = []
        if isinstance(domain, spen.Simplex):
            for position in range(domain.positions):
                columns = slice(position * domain.n_classes, (position + 1) * domain.n_classes)
                constraints.append({"type": "eq", "fun": lambda y, c=columns: y[c].sum() - 1})
        best = scipy.optimize.minimize(
            lambda y, p=point: ((y - p) ** 2).sum(),
            np.full(domain.size, 1 / domain.size),
            bounds=[(0, 1)] * domain.size,
            constraints=constraints,
            method="SLSQP",
            options={"ftol": 1e-12},
        )
        np.testing.assert_allclose(ours, best.x, atol=1e-5)
    torch.testing.assert_close(domain.project(projected), projected)


@pytest.mark.parametrize("domain", DOMAINS, ids=ids)
def test_rounding_gives_vertices_and_leaves_them(domain):
    rounded = domain.round(domain.to_primal(noise(domain)))
    assert set(rounded.unique().tolist()) <= {0.0, 1.0}
    assert torch.equal(domain.round(rounded), rounded)
    if isinstance(domain, spen.Simplex):
        assert (rounded.sum(1) == domain.positions).all()


@pytest.mark.parametrize("domain", DOMAINS, ids=ids)
def test_entropy_is_largest_at_the_uniform_start(domain):
    centre = domain.uniform(torch.zeros(1, 1, dtype=torch.float64))
    others = domain.to_primal(noise(domain))
    assert (domain.negative_entropy(centre) < domain.negative_entropy(others)).all()
    vertex = domain.round(others)
    torch.testing.assert_close(
        domain.negative_entropy(vertex), torch.zeros(20, dtype=torch.float64)
    )


def test_log_loss_is_the_usual_one():
    box, simplex = spen.UnitBox(4), spen.Simplex(4)
    logits, target = noise(box), box.round(box.to_primal(noise(box, seed=1)))
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        logits, target, reduction="none"
    )
    torch.testing.assert_close(box.log_loss_of_dual(logits, target), expected)
    torch.testing.assert_close(box.log_loss(torch.sigmoid(logits), target), expected)
    classes = torch.randint(4, (20,), generator=torch.Generator().manual_seed(0))
    one_hot = torch.nn.functional.one_hot(classes, 4).double()
    expected = torch.nn.functional.cross_entropy(logits, classes, reduction="none")
    torch.testing.assert_close(simplex.log_loss_of_dual(logits, one_hot).sum(1), expected)
    torch.testing.assert_close(simplex.log_loss(torch.softmax(logits, 1), one_hot).sum(1), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_dual_at_its_limit_comes_back(dtype):
    """Also from the edge of the box, and with the slope that the mirror map has there."""
    box, limit = spen.UnitBox(2), torch.tensor([[15.0, -15.0]], dtype=dtype)
    close = torch.testing.assert_close
    for y in (box.to_primal(limit), box.to_primal(2 * limit), torch.tensor([[1, 0]], dtype=dtype)):
        close(box.to_dual(y), limit, rtol=0, atol=2e-6)
    y = box.to_primal(limit).requires_grad_()
    (slope,) = torch.autograd.grad(box.to_dual(y).sum(), y)
    close(slope, 1 / (y * (1 - y)).detach())
    inside = torch.linspace(-14, 14, 57, dtype=torch.float64)
    # Half the distance of two floats just below 1, in units of 1 − y.
    rounding = 1e-6 + 2**-23 * torch.exp(inside)
    found = box.to_dual(box.to_primal(inside.to(dtype))).double()
    assert ((found - inside).abs() <= rounding).all()


@given(st.integers(2, 4), st.integers(1, 3), st.integers(0, 1000))
def test_known_classes_complete_each_other(n_classes, positions, seed):
    """Whatever is known of a vertex, holding it keeps the point on the simplex."""
    domain = spen.Simplex(n_classes, positions)
    generator = torch.Generator().manual_seed(seed)
    vertex = domain.round(torch.rand(5, domain.size, generator=generator))
    hidden = torch.rand(5, domain.size, generator=generator) < 0.5
    known = domain.complete_known(torch.where(hidden, torch.nan, vertex))
    decided = ~torch.isnan(known)
    assert torch.equal(known[decided], vertex[decided])
    y = domain.hold(domain.to_primal(torch.randn(5, domain.size, generator=generator)), known)
    assert torch.equal(y[decided], vertex[decided])
    sums = y.reshape(5, positions, n_classes).sum(2)
    torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("make", [lambda: spen.UnitBox(0), lambda: spen.Simplex(1)])
def test_sizes_are_checked(make):
    with pytest.raises(spen.InputError, match="whole number"):
        make()
