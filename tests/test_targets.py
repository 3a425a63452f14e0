"""Every form of Y that people pass comes to the same labels."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

import spen
from spen.estimators.predictor import dense
from spen.estimators.targets import align, align_known, label_weights, read_targets

MATRIX = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 1]])
NAMES = ["a", "b", "c"]


@pytest.mark.parametrize(
    "Y",
    [
        MATRIX,
        MATRIX.astype(bool),
        MATRIX.astype(np.int8),
        MATRIX.astype(float),
        MATRIX.tolist(),
        sparse.csr_matrix(MATRIX),
        sparse.coo_array(MATRIX),
        pd.DataFrame(MATRIX, columns=NAMES),
        pd.DataFrame(MATRIX, columns=NAMES).astype("Int64"),
        pd.DataFrame(MATRIX, columns=NAMES).astype("boolean"),
        [["a", "c"], [], ["c", "b"]],
        [{"a", "c"}, set(), {"b", "c"}],
        (("a", "c"), (), ("b", "c")),
        pd.Series([["a", "c"], [], ["b", "c"]]),
        [{0, 2}, set(), {1, 2}],
        [[0, 2], [], [1, 2]],
    ],
)
def test_all_forms_of_a_label_set_are_one(Y):
    targets = read_targets(Y)
    assert targets.matrix.toarray().tolist() == MATRIX.tolist()
    assert not targets.exclusive
    assert targets.names.tolist() in (NAMES, [0, 1, 2])


def test_names_can_be_given_and_must_fit():
    assert read_targets(MATRIX, NAMES).names.tolist() == NAMES
    with pytest.raises(spen.InputError, match="2 names for 3 columns"):
        read_targets(MATRIX, ["a", "b"])
    with pytest.raises(spen.InputError, match="same name"):
        read_targets(MATRIX, ["a", "b", "a"])
    with pytest.raises(spen.InputError, match="names its labels itself"):
        read_targets([["a"], []], ["a"])


@pytest.mark.parametrize("y", [["x", "y", "x"], np.array([3, 5, 3]), pd.Series(["x", "y", "x"])])
def test_one_dimension_means_classes(y):
    targets = read_targets(y)
    assert targets.exclusive
    assert targets.matrix.toarray().tolist() == [[1, 0], [0, 1], [1, 0]]


def test_a_column_of_zeros_and_ones_is_one_label_and_a_column_of_others_is_classes():
    assert not read_targets([[0], [1], [1]]).exclusive
    with pytest.warns(DataConversionWarning, match="column-vector"):
        assert read_targets(np.array([[0], [2], [1]])).exclusive
    with pytest.warns(DataConversionWarning, match="column-vector"):
        assert read_targets(np.array([["x"], ["y"]])).exclusive


@pytest.mark.parametrize(
    "Y",
    [
        np.array([[1, np.nan], [0, 1]]),
        pd.DataFrame({"a": [1, 0], "b": [None, 1]}),
        pd.DataFrame({"a": [1, 0], "b": pd.array([pd.NA, 1], dtype="Int64")}),
        [[1, None], [0, 1]],
        np.array([[1, None], [0, 1]], dtype=object),
        pd.DataFrame({"a": pd.array([True, False], "boolean"), "b": pd.array([pd.NA, True])}),
        np.ma.array([[1, 1], [0, 1]], mask=[[0, 1], [0, 0]]),
        np.ma.array([[1.0, 1.0], [0.0, 1.0]], mask=[[0, 1], [0, 0]]),
        np.ma.array([[True, False], [False, True]], mask=[[0, 1], [0, 0]]),
        np.ma.array([[1, 77], [0, 1]], mask=[[0, 1], [0, 0]]),
        np.ma.array([["1", "?"], ["0", "1"]], mask=[[0, 1], [0, 0]]),
        [np.ma.array([1, 1], mask=[0, 1]), np.array([0, 1])],
    ],
)
def test_missing_labels_stay_missing(Y):
    expected = [[1, np.nan], [0, 1]]
    assert np.array_equal(read_targets(Y).matrix, expected, equal_nan=True)
    names = np.array(["a", "b"], dtype=object)
    assert np.array_equal(align_known(Y, names, 2), expected, equal_nan=True)
    with pytest.raises(spen.InputError, match="none of them nan"):
        align(Y, names, False, 2)


def test_a_mask_that_hides_nothing_changes_nothing():
    for Y in (np.ma.array(MATRIX), np.ma.array(MATRIX.astype(bool), mask=np.zeros(MATRIX.shape))):
        targets = read_targets(Y)
        assert targets.matrix.toarray().tolist() == MATRIX.tolist()
        assert targets.dtype == Y.dtype
    assert read_targets(np.ma.array(["x", "y"])).names.tolist() == ["x", "y"]


@pytest.mark.parametrize("y", [np.array(["x", "y", "z"]), np.array([1, 2, 3]), np.arange(3.0)])
def test_a_hidden_class_is_refused(y):
    with pytest.raises(ValueError, match="NaN"):
        read_targets(np.ma.array(y, mask=[0, 1, 0]))


def test_hidden_weights_of_labels_are_refused():
    with pytest.raises(spen.InputError, match="finite numbers"):
        label_weights(np.ma.array([1.0, 2.0, 1.0], mask=[0, 1, 0]), read_targets(MATRIX))


@pytest.mark.parametrize("odd", [1 + 1e-9, 1e-300, np.longdouble(1) + np.longdouble(2) ** -60])
def test_what_is_nearly_a_label_is_not_rounded_to_one(odd):
    Y = MATRIX.astype(np.longdouble if isinstance(odd, np.longdouble) else float)
    Y[0, 1] = odd
    with pytest.raises(spen.InputError, match="only 0 and 1"):
        read_targets(Y)
    with pytest.raises(spen.InputError, match="only 1, 0, or nan"):
        align_known(Y, np.array(NAMES), 3)


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        (None, "requires y to be passed"),
        (np.array([[0, 2], [1, 1]]), r"row 0, column 1 holds 2.*1-D array"),
        (pd.DataFrame({"sun": [0, 1], "sea": [1, 3]}), r"row 1, column 1 \('sea'\) holds 3"),
        (sparse.csr_matrix([[0.0, 2.0]]), "other entries"),
        (sparse.csr_matrix([[0.0, np.nan]]), "need a dense Y"),
        (np.zeros((3, 0)), "no columns"),
        ([[], [], []], "no label at all"),
        ([["a"], [1, 2]], "all text or all numbers"),
        (np.full((2, 2), np.nan), "no label is known"),
        (["x", "x"], "one class only"),
        (np.array([["a", "b"], ["c", "d"]]), "only 0 and 1"),
        (np.array([[1, 0], [0, 1]], dtype=complex), "of type complex128"),
        (np.array([[10**400, 0], [0, 1]], dtype=object), "only 0 and 1"),
        (np.array([[1e300, 0], [0, 1]]), r"row 0, column 0 holds 1e\+300"),
        ([np.ones(2), np.ones(3)], "array of one or two dimensions"),
        ([0.5, 1.7, 2.2], "Unknown label type"),
        (pd.Series(["x", None, "y"]), "classes, and row 1 has none"),
        (pd.Series(["x;y", None, "y"]).str.split(";"), r"row 1 is (nan|None)\. .*fillna"),
        ([["x"], "y"], "row 1 is 'y'"),
    ],
)
def test_bad_labels_are_named(Y, message):
    with pytest.raises(ValueError, match=message):
        read_targets(Y)


def test_a_labelling_is_put_in_the_models_order():
    names = np.array(NAMES, dtype=object)
    frame = pd.DataFrame(MATRIX[:, [2, 0, 1]], columns=["c", "a", "b"])
    for Y in (frame, [["c", "a"], [], ["c", "b"]], MATRIX, sparse.csr_matrix(MATRIX)):
        assert dense(align(Y, names, False, 3)).tolist() == MATRIX.tolist()
    assert dense(align(["b", "a"], names, True, 2)).tolist() == [[0, 1, 0], [1, 0, 0]]
    with pytest.raises(spen.InputError, match="Did you mean 'a'"):
        align([["aa"], [], []], names, False, 3)
    with pytest.raises(spen.InputError, match="lacks 1 labels"):
        align(frame[["a", "b"]], names, False, 3)
    with pytest.raises(spen.InputError, match="'z' is no label of this model"):
        align(["b", "z"], names, True, 2)
    with pytest.raises(spen.InputError, match=r"shape \(3, 3\)"):
        align(MATRIX[:2], names, False, 3)
    with pytest.raises(spen.InputError, match="from 0 to 1"):
        align(MATRIX * np.nan, names, False, 3)


def test_known_labels_may_be_some_of_the_columns():
    names = np.array(NAMES, dtype=object)
    known = align_known(pd.DataFrame({"c": [1, 0, np.nan]}), names, 3)
    nan = np.nan
    expected = [[nan, nan, 1], [nan, nan, 0], [nan, nan, nan]]
    assert np.array_equal(known, expected, equal_nan=True)
    with pytest.raises(spen.InputError, match="must be dense"):
        align_known(sparse.csr_matrix(MATRIX), names, 3)
    with pytest.raises(spen.InputError, match="only 1, 0, or nan"):
        align_known(MATRIX * 2, names, 3)
    twice = pd.DataFrame([[1, 0]] * 3, columns=["c", "c"])
    with pytest.raises(spen.InputError, match="same name"):
        align_known(twice, names, 3)


def test_known_labels_may_be_dicts():
    names, nan = np.array(NAMES, dtype=object), np.nan
    same = align_known({"b": 1, np.str_("c"): False}, names, 2)
    assert np.array_equal(same, [[nan, 1, 0]] * 2, equal_nan=True)
    each = align_known([{"a": 1}, {}, {"b": None, "c": 0}], names, 3)
    expected = [[1, nan, nan], [nan, nan, nan], [nan, nan, 0]]
    assert np.array_equal(each, expected, equal_nan=True)
    assert np.isnan(align_known({}, names, 2)).all()
    for known, message in [
        ({"aa": 1}, "Did you mean 'a'"),
        ({"a": 2}, "only 1, 0, or nan"),
        ({"a": "yes"}, "known must hold"),
        ([{"a": 1}], r"shape \(2, 3\); received \(1, 3\)"),
        ([{"a": 1}, [1, 0, 0]], "a dict for each row"),
    ]:
        with pytest.raises(spen.InputError, match=message):
            align_known(known, names, 2)


def test_known_labels_may_be_a_series_or_an_array_of_dicts():
    rows, names = [{"sea": 1}, {"sun": 0}], np.array(["sea", "sun"])
    wanted = align_known(rows, names, 2)
    array = np.empty(2, object)
    array[:] = rows
    for known in (pd.Series(rows), array):
        np.testing.assert_array_equal(align_known(known, names, 2), wanted)


def test_a_label_that_a_row_names_twice_counts_once_and_is_told():
    with pytest.warns(DataConversionWarning, match=r"^Row 1 names 'b' twice; a label counts once"):
        twice = read_targets([["a"], ["b", "c", "b"]])
    assert twice.matrix.toarray().tolist() == [[1, 0, 0], [0, 1, 1]]
    with pytest.warns(DataConversionWarning, match="twice, and 1 other rows name some twice"):
        read_targets([["a", "a"], [], ["b", "c", "c"]])


@pytest.mark.parametrize(
    "Y",
    [
        [[np.str_("a")], [np.str_("b")]],
        [np.array(["a"]).tolist(), {np.str_("b")}],
        pd.DataFrame([[1, 0], [0, 1]], columns=np.array(["a", "b"])),
        [{np.int64(1)}, {np.int64(2)}],
        np.array([np.str_("a"), "b"], dtype=object),
        pd.Series(["a", "b"]),
        np.array([1, 2], dtype=np.int8),
    ],
)
def test_names_are_pythons_own(Y):
    assert {type(name) for name in read_targets(Y).names.tolist()} in ({str}, {int})
    given = read_targets(MATRIX, np.array(NAMES)).names
    assert [type(name) for name in given] == [str] * 3


def test_the_truth_may_hold_labels_that_were_never_seen_and_missing_ones():
    names = np.array(["a", "b"], dtype=object)
    lists = align([["a", "z"], [], ["b"]], names, False, 3, truth=True)
    assert lists.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert align([[], []], names, False, 2, truth=True).toarray().tolist() == [[0, 0]] * 2
    for classes in (["b", "z"], pd.Series(["b", "z"]), np.array([["b"], ["z"]])):
        found = align(classes, names, True, 2, truth=True)
        assert found.toarray().tolist() == [[0, 1, 0], [0, 0, 1]]
    frame = pd.DataFrame({"z": [0, 1], "b": [1, None], "a": [0, 1]})
    found = align(frame, names, False, 2, truth=True)
    assert np.array_equal(found, [[0, 1, 0], [1, np.nan, 1]], equal_nan=True)
    with pytest.raises(spen.InputError, match="only 0 and 1"):
        align([[0.5, 1.0]], names, False, 1, truth=True)


def test_weights_of_labels():
    targets = read_targets(MATRIX, NAMES)
    assert label_weights({"b": 3}, targets).tolist() == [1, 3, 1]
    assert label_weights([1, 2, 0], targets).tolist() == [1, 2, 0]
    assert label_weights(None, targets) is None
    for bad in ([1, 2], [1, 2, -1], [0, 0, 0], [1, 2, np.inf], "balance"):
        with pytest.raises(spen.InputError, match="label_weight"):
            label_weights(bad, targets)
    with pytest.raises(spen.InputError, match="which is no label"):
        label_weights({"d": 1}, targets)


def test_a_split_of_lists_is_not_held_out():
    columns = {"size": [1.0] * 8}
    for split in (spen.Split(columns, np.eye(8)), spen.Split(np.eye(8), [["x"]] * 8)):
        with pytest.raises(spen.InputError, match=r"of a split must be an array.*received a"):
            spen.hold_out(split, 0.25, seed=0)
