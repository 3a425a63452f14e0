"""Inputs of any kind pass through to the feature network as they are."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from passed_inputs import IDS, IMAGES, KINDS, ONES, TABLE, Encoder, N, Words, Y, convolution, some
from torch import nn

import spen
from spen.batch.inputs import InputBatch, Ragged, read_inputs
from spen.batch.splits import RowDigests, Split
from spen.training.rows import TrainingRows


def model_of(network, seed=0):
    energy = spen.LocalEnergy(6, 3) + spen.LabelEnergy(3, measurements=2)
    return spen.SPEN(network, energy, spen.UnitBox(3), seed=seed)


def stage_of(**settings):
    settings = {"epochs": 3, "batch_size": 7, "lr": 1e-2} | settings
    parts = ("features", "local")
    return spen.Stage("all", spen.CrossEntropy(), parts=parts, **settings)


class Seen(nn.Module):
    """Keeps what it was given."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, inputs):
        self.seen = inputs
        return self.scale * torch.ones(len(next(iter(inputs.values()))), 6)


# Reading ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.ones((3, 2), np.int16), torch.int64),
        (np.ones((3, 2), ">i4"), torch.int64),
        (np.ones((3, 2), np.uint64), torch.int64),
        (np.ones((3, 2), np.uint8), torch.uint8),
        (np.ones((3, 2), bool), torch.bool),
        (torch.ones(3, 2, dtype=torch.int32), torch.int64),
        (np.ones((3, 2, 2), np.float16), torch.float32),
        (np.ones((3, 2, 2), ">f8"), torch.float32),
        (torch.ones(3, 2, 2, dtype=torch.float64), torch.float32),
    ],
)
def test_whole_numbers_stay_whole_and_floats_take_the_type_of_the_model(value, dtype):
    rows = read_inputs(value).to(torch.float32, None)
    batch = rows[torch.tensor([2, 0])]
    assert batch.dtype == dtype
    assert batch.shape == (2, *value.shape[1:])
    assert (batch == 1).all()


@pytest.mark.parametrize(
    "value",
    [
        IDS,
        tuple(IDS),
        [np.array(row) for row in IDS],
        [torch.tensor(row) for row in IDS],
        [np.array(row, np.int32) for row in IDS],
        np.array([*map(np.array, IDS)], dtype=object),
        np.array(IDS, dtype=object),
    ],
)
def test_ragged_rows_are_the_same_in_any_container(value):
    rows, wanted = read_inputs(value), read_inputs(IDS)
    assert isinstance(rows.fields[""], Ragged)
    assert all(map(torch.equal, rows.parts(), wanted.parts()))


def test_rows_are_padded_by_the_batch_and_the_mask_says_where():
    batch = read_inputs([[7], [5, 6, 7], [8, 9]])[torch.tensor([2, 0])]
    assert batch.fields[""].tolist() == [[8, 9], [7, 0]]
    assert batch.mask.tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize("name", KINDS)
def test_rows_are_selected_joined_and_told_apart(name):
    rows = read_inputs(KINDS[name][1])
    order = np.random.default_rng(0).permutation(N)
    parts = rows.select(order[:10]).joined(rows.select(order[10:]))
    assert len(parts) == N
    back = parts.select(np.argsort(order))
    assert all(map(torch.equal, back.parts(), rows.parts()))
    assert len(rows.select(np.arange(N) % 2 == 0)) == N // 2
    assert len(rows.select(slice(3, 5))) == 2
    assert len(Split(rows, Y).rows(order[:3])) == 3
    held = RowDigests.of(rows.select(order[:10]))
    assert held.contains(rows)[order[:10]].all()
    assert held.contains(rows).sum() < N


@pytest.mark.parametrize("value", [[[0.5, 1.0]], np.eye(2), torch.eye(2), [1, 2], ["a b", "c"]])
def test_matrices_and_texts_are_left_to_others(value):
    assert read_inputs(value) is None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": IDS, "b": TABLE[:7]}, "as many rows; 'a' has 40, 'b' has 7"),
        ({"a": [[1, 2], [3]], "b": [[1, 2], [3, 4]]}, "row 1 has 1 entries in 'a' and 2 in 'b'"),
        ([[1, 2], []], "Row 1 of X is an empty list"),
        ([[1, 2], [0.5]], "row 1 holds 0.5"),
        ([["a", "word"], ["b"]], "row 0 holds 'a'.*numbers of a vocabulary"),
        ([[1, 2], 3], "row 1 is 3"),
        (np.array([[1, 2], {"a": 1}], dtype=object), "row 1 is {'a': 1}"),
        ({"a": np.array([{}, None])}, r"X\['a'\] must be an array of numbers, or lists of ids"),
        ({"a": np.array(["x"])}, r"X\['a'\] must be an array of numbers, or lists of ids"),
        ({}, "empty dict"),
        ({3: IDS}, "keys of X must be names; received 3"),
        ({"a": np.ones(())}, "must have rows"),
        (np.ones((0, 2, 2)), "no rows"),
        (np.full((2, 2, 2), np.nan), "finite numbers; row 0"),
        (np.full((1, 1), 2**64 - 1, np.uint64), "is the most"),
        (torch.ones(2, 2, 2, dtype=torch.complex64), "dense tensor of real numbers"),
        ([[[1, 2], [3]], [[1], [2]]], "must be an array of numbers"),
    ],
)
def test_what_is_wrong_with_inputs_is_said(value, said):
    with pytest.raises(spen.InputError, match=said):
        model_of(Seen()).solve(value)


@pytest.mark.parametrize(
    ("fitted", "given", "said"),
    [
        (IDS, IMAGES, r"must be lists of ids, as in the fit; received numbers \(n, 3, 8, 8\)"),
        (IMAGES, IMAGES[:, :, 1:], r"numbers \(n, 3, 8, 8\), as in the fit; received .* 7, 8\)"),
        (IMAGES, (IMAGES > 0), r"must be numbers .* received True and False"),
        (np.ones((3, 4), int), IDS, r"whole numbers \(n, 4\).*lists of ids\. Fit and predict with"),
        ({"a": IDS}, {"b": IDS}, "a dict of 'a': lists of ids, as in the fit; .* dict of 'b'"),
        ({"a": IDS}, IDS, "a dict of 'a'"),
        ({"a": IDS, "b": TABLE}, {"a": IDS, "b": IDS}, r"X\['b'\] must be numbers \(n, 2\)"),
    ],
)
def test_other_rows_than_those_of_the_fit_are_refused(fitted, given, said):
    with pytest.raises(spen.InputError, match=said):
        read_inputs(fitted).kind.conform(read_inputs(given))


def test_an_array_of_ids_is_as_good_as_lists_of_ids():
    rows = read_inputs(IDS).kind.conform(read_inputs(np.array([[4, 5], [6, 7]])))
    assert torch.equal(rows.fields[""].offsets, torch.tensor([0, 2, 4]))


# Calling ----------------------------------------------------------------------------------------


def test_a_dict_comes_as_keywords_where_forward_names_them_and_as_a_dict_otherwise():
    seen = Seen()
    model_of(seen).solve({"b": TABLE, "a": IDS})
    assert {name: tensor.dtype for name, tensor in seen.seen.items()} == {
        "b": torch.float32,
        "a": torch.int64,
    }
    with pytest.raises(spen.InputError, match=r"X holds 'words', and Encoder\.forward takes"):
        model_of(Encoder()).solve({"input_ids": IDS, "words": TABLE})


def test_networks_of_ones_own_kind_take_dicts_and_masks():
    class Own(spen.Features):
        n_features = 6

        def __init__(self):
            super().__init__()
            self.words = Words()

        def forward(self, inputs, generator=None, mask=None):
            return self.words(inputs, mask)

    assert model_of(Own()).solve(IDS).y.shape == (N, 3)


def test_forward_may_take_any_keyword():
    class Loose(Encoder):
        def forward(self, **inputs):
            return super().forward(**inputs)

    X = {"input_ids": IDS, "attention_mask": ONES}
    tight, loose = model_of(Encoder()), model_of(Loose())
    loose.load_state_dict(tight.state_dict())
    assert torch.equal(tight.solve(X).y, loose.solve(X).y)


# Training and predicting ------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_models_of_any_inputs_train_and_predict_each_row_alone(name):
    network, X = KINDS[name]
    torch.manual_seed(0)
    model = model_of(network())
    history = spen.train(model, [stage_of()], (X, Y), (X, Y), seed=0)
    assert history.epochs[-1].loss < history.epochs[0].loss
    soft = model.solve(X).y
    alone = torch.cat([model.solve(some(X, slice(k, k + 1))).y for k in range(N)])
    assert torch.allclose(soft, alone, atol=1e-5)
    assert torch.allclose(soft, model.solve(X, batch_size=3).y, atol=1e-5)
    energies = model.energy_of(X, Y)
    assert torch.allclose(energies[5:6], model.energy_of(some(X, slice(5, 6)), Y[5:6]), atol=1e-5)
    known = np.full(Y.shape, np.nan)
    known[:, 1] = 1
    assert (model.solve(X, known=known).y[:, 1] == 1).all()
    assert sum(rows for _, rows in model.contexts(X, batch_size=9)) == N


def test_padding_changes_nothing_of_a_module_that_heeds_its_mask():
    torch.manual_seed(0)
    model = model_of(Words())
    short = model.solve([[3, 4]]).y
    beside = model.solve([[3, 4], list(range(1, 30))]).y[:1]
    assert torch.allclose(short, beside, atol=1e-6)


def test_the_same_rows_in_other_containers_train_the_same_model():
    runs = []
    for rows in (IDS, [torch.tensor(row) for row in IDS]):
        torch.manual_seed(0)
        model = model_of(Words())
        spen.train(model, [stage_of()], (rows, Y), seed=0)
        runs.append(model.solve(IDS).y)
    assert torch.equal(*runs)


def test_a_frozen_network_is_computed_once_batch_by_batch(monkeypatch):
    network = convolution().requires_grad_(False)
    model, calls = model_of(network), []
    network.register_forward_hook(lambda *_: calls.append(1))
    monkeypatch.setattr("spen.batch.rows.LARGEST_PASSED_BATCH", 16 * 3 * 8 * 8)
    spen.train(model, [stage_of(epochs=4)], (IMAGES, Y))
    assert len(calls) == 3


def test_a_digest_knows_names_and_rows():
    model = model_of(Seen())
    one, other, renamed = (
        TrainingRows.of(model, (X, Y), "train").digest()
        for X in ({"a": IDS}, {"a": IDS[1:] + IDS[:1]}, {"b": IDS})
    )
    assert len({one, other, renamed}) == 3


def test_a_batch_has_rows_and_entries():
    batch = InputBatch({"a": torch.zeros(4, 3, 2), "b": torch.zeros(4, 5)})
    assert batch.shape == (4, 11)
    assert read_inputs({"a": IMAGES, "b": TABLE}).shape == (N, 3 * 8 * 8 + 2)
    assert read_inputs(SimpleNamespace(columns=["a"])) is None
