"""Chains on the GPU against general tensor operations: in Triton's interpreter where there is no
GPU, and there, with a GPU, against all taggings too."""

import os
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import spen
from spen.inference.discrete import viterbi
from spen.kernels.cuda import chains

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU and "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are imported, by the first test
pytest.importorskip("triton")

pytestmark = [
    pytest.mark.skipif(
        not HAS_GPU and os.environ.get("TRITON_INTERPRET") != "1",
        reason="triton was imported before its interpreter could be asked for",
    ),
    # Classes that no tagging reaches have minus infinity less minus infinity, which is not used.
    pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning"),
]

DEVICE = "cuda" if HAS_GPU else "cpu"


@settings(max_examples=12)
@given(
    rows=st.integers(1, 4),
    classes=st.integers(2, 9),
    longest=st.integers(1, 5),
    by_row=st.booleans(),
    by_position=st.booleans(),
    barred=st.booleans(),
    steep=st.sampled_from([1.0, 300.0]),
    seed=st.integers(0, 999),
)
def test_kernels_say_what_tensor_operations_say(
    rows, classes, longest, by_row, by_position, barred, steep, seed
):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return (steep * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(DEVICE)

    unary = draw(rows, longest, classes)
    positions = max(longest - 1, 1) if by_position else 1
    pairs = draw(rows if by_row else 1, positions, classes, classes)
    if barred:
        # Class 0 is always left.
        ruled_out = torch.rand(pairs.shape, generator=generator).to(DEVICE) < 0.3
        ruled_out[..., 0] = False
        pairs = pairs.masked_fill(ruled_out, -torch.inf)
    lengths = torch.randint(1, longest + 1, (rows,), generator=generator).to(DEVICE)
    mask = torch.arange(longest, device=DEVICE) < lengths[:, None]
    weights = draw(rows)
    expected = viterbi._sum_of_logs(unary, pairs, mask)
    forward, logs = chains.sum_forwards(unary, pairs, lengths)
    torch.testing.assert_close(logs, expected.logs)
    for of_pairs in (False, True):
        found = chains.sum_backwards(unary, pairs, lengths, forward, weights, of_pairs)
        wanted = expected.marginals(weights, of_pairs)
        torch.testing.assert_close(found[0], wanted[0])
        if of_pairs and longest > 1:
            torch.testing.assert_close(found[1], wanted[1])
    tags, best = chains.best_paths(unary, pairs, lengths)
    chain = viterbi.Chain(unary.new_zeros(rows), unary, pairs, mask)
    places, scores = viterbi._best_taggings(chain, 1)
    torch.testing.assert_close(best, scores[:, 0])
    assert torch.equal(tags, places[:, 0].masked_fill(~mask, 0))
    n = 1 + seed % 5
    lists, scores = chains.best_lists(unary, pairs, lengths, n)
    places, wanted = viterbi._best_taggings(chain, n)
    torch.testing.assert_close(scores, wanted)
    there = (wanted > -torch.inf)[:, :, None] & mask[:, None]
    assert torch.equal(lists.where(there, 0), places.where(there, 0))
    assert not lists.masked_fill(mask[:, None], 0).any()


@pytest.mark.skipif(not HAS_GPU, reason="there is no GPU here")
@settings(max_examples=40)
@given(data=st.data())
def test_answers_on_the_gpu_equal_brute_force(data):
    from chain_models import cases

    case = data.draw(cases())
    if any(not case.taggings(row) for row in range(len(case.lengths))):
        return
    context, known = case.context, case.context.known
    model = case.model.cuda()
    held = None if known is None else known.cuda()
    there = spen.Context(context.features.cuda(), context.target.cuda(), mask=context.mask.cuda())
    problem, domain = model.energy.bind(there), model.domain.of_batch(there)
    best = spen.Viterbi().solve(problem, domain, known=held)
    soft = spen.ForwardBackward().solve(problem, domain, known=held)
    assert best.backend == soft.backend == "chain-triton"
    found = spen.ForwardBackward().log_partition(problem, domain, held).sum()
    gradients = torch.autograd.grad(found, list(model.parameters()))
    model.cpu()
    here = spen.ForwardBackward().log_partition(case.problem, domain, known).sum()
    for mine, theirs in zip(
        gradients, torch.autograd.grad(here, list(model.parameters())), strict=True
    ):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-3, atol=1e-3)
    for row in range(len(case.lengths)):
        energies = case.energies(row)
        close = {"rtol": 2e-4, "atol": 2e-4}
        torch.testing.assert_close(best.energy[row].cpu().double(), energies.min(), **close)
        log = torch.logsumexp(-energies, 0)
        torch.testing.assert_close(soft.energy[row].cpu().double(), -log, **close)
        marginals = torch.softmax(-energies, 0) @ case.points(row).double()
        torch.testing.assert_close(soft.y[row].cpu().double(), marginals, **close)


def test_which_scores_the_kernels_take():
    assert not chains.knows_chains(torch.zeros(2, 3, 4))
    if HAS_GPU:
        assert chains.knows_chains(torch.zeros(2, 3, 4, device=DEVICE))
        assert not chains.knows_chains(torch.zeros(2, 3, 129, device=DEVICE))
        assert not chains.knows_chains(torch.zeros(2, 3, 4, device=DEVICE).half())


@pytest.mark.parametrize("spread", [1.0, 5.0])
def test_kernels_lose_no_digits_along_a_sentence(spread):
    """In float32, against tensor operations in float64."""
    generator = torch.Generator().manual_seed(0)
    longest, classes = 45, 25
    unary = spread * torch.randn(3, longest, classes, generator=generator).to(DEVICE)
    pairs = spread * torch.randn(1, 1, classes, classes, generator=generator).to(DEVICE)
    lengths = torch.tensor([longest, 1, 31], device=DEVICE)
    mask = torch.arange(longest, device=DEVICE) < lengths[:, None]
    weights = torch.ones(3, device=DEVICE)
    expected = viterbi._sum_of_logs(unary.double(), pairs.double(), mask)
    forward, logs = chains.sum_forwards(unary, pairs, lengths)
    found = chains.sum_backwards(unary, pairs, lengths, forward, weights, of_pairs=True)
    wanted = expected.marginals(weights.double(), of_pairs=True)
    for mine, exact in zip((logs, *found), (expected.logs, *wanted), strict=True):
        scale = exact.abs().max().item()
        torch.testing.assert_close(mine.double(), exact, rtol=0, atol=2e-6 * scale)
