"""The generator is the paper's."""

import numpy as np
import pytest

import spen
from spen.batch.splits import Split, hold_out
from spen.data.synthetic import block_membership


def test_each_block_has_exactly_one_label_and_it_is_the_largest():
    data = spen.exclusive_blocks(300, 200, seed=3)
    weights = np.random.default_rng(np.random.SeedSequence(3).spawn(3)[0]).standard_normal((64, 16))
    for split in (data.train, data.test):
        scores = (split.X.astype(float) @ weights).reshape(-1, 4, 4)
        expected = scores == scores.max(2, keepdims=True)
        agreement = (expected.reshape(-1, 16) == split.Y).all(1).mean()
        assert agreement > 0.99, "one weight matrix for train and test, up to float32 rounding"
        assert (split.Y.reshape(-1, 4, 4).sum(2) == 1).all()
    assert abs(data.train.X.mean()) < 0.05
    assert abs(data.train.X.std() - 1) < 0.05


def test_the_seed_decides_everything_and_sizes_do_not_disturb_it():
    small, large = spen.exclusive_blocks(10, 50, seed=1), spen.exclusive_blocks(1000, 50, seed=1)
    np.testing.assert_array_equal(small.test.X, large.test.X)
    np.testing.assert_array_equal(small.test.Y, large.test.Y)
    np.testing.assert_array_equal(small.train.X, large.train.X[:10])
    other = spen.exclusive_blocks(10, 50, seed=2)
    assert not np.array_equal(small.test.X, other.test.X)


def test_shapes_can_be_chosen_and_are_checked():
    data = spen.exclusive_blocks(5, 5, n_features=3, n_blocks=2, block_size=3)
    assert data.train.X.shape == (5, 3)
    assert data.train.Y.shape == (5, 6)
    assert data.label_names[4] == "block1.1"
    assert block_membership(2, 3).tolist() == [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]
    with pytest.raises(spen.InputError, match="n_train"):
        spen.exclusive_blocks(0, 5)


@pytest.mark.parametrize("share", [0.0, 1.0, 1.5, -0.2, float("nan")])
def test_a_share_must_leave_rows_on_both_sides(share):
    rows = Split(np.zeros((10, 2)), np.zeros((10, 1)))
    with pytest.raises(spen.InputError, match="both sides"):
        hold_out(rows, share, seed=0)


@pytest.mark.parametrize("change", [{"seed": -1}, {"n_train": 10.5}, {"block_size": 0}])
def test_bad_sizes_of_the_task(change):
    with pytest.raises(spen.InputError, match="whole number"):
        spen.exclusive_blocks(**({"n_train": 5, "n_test": 5} | change))


def test_holding_out_splits_the_rows():
    rows = Split(np.arange(20).reshape(10, 2), np.arange(10)[:, None], np.arange(10))
    kept, held = hold_out(rows, 0.3, seed=0)
    assert sorted([*kept.Y[:, 0], *held.Y[:, 0]]) == list(range(10))
    assert len(held) == 3
    assert (kept.X[:, 0] == 2 * kept.Y[:, 0]).all()
    assert (kept.weight == kept.Y[:, 0]).all()
