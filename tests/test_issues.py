"""Labels that are probably wrong: log-odds by brute force, planted errors, who has seen what."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse, special

import spen
from spen.errors import InputError
from spen.estimators.issues import LabelIssues, Trust, evidence, log_odds_given

NAMES = np.array(["sea"], object)
DATA = spen.exclusive_blocks(n_train=300, n_test=200, seed=1)


def classifier(**settings):
    made = {"hidden": (), "device": "cpu", "random_state": 0, "folds": 1} | settings
    return spen.SPENClassifier(**made)


@pytest.fixture(scope="module")
def fitted():
    made = classifier(epochs=30)
    return made.fit(DATA.train.X, DATA.train.Y, label_names=DATA.label_names)


@pytest.fixture(scope="module")
def planted():
    """Test labels of which 5 % of the ones are removed and as many zeros added."""
    truth = np.asarray(DATA.test.Y).astype(float)
    rng, given = np.random.default_rng(0), truth.copy()
    ones, zeros = np.flatnonzero(truth), np.flatnonzero(truth == 0)
    count = len(ones) // 20
    wrong = np.concatenate([rng.choice(each, count, replace=False) for each in (ones, zeros)])
    given.flat[wrong] = 1 - given.flat[wrong]
    return SimpleNamespace(given=given, wrong=given != truth)


def as_set(issues):
    return {(int(r), int(c)) for r, c in zip(issues.row, issues.label, strict=True)}


def test_log_odds_are_differences_of_public_energies(fitted, planted):
    X, given = DATA.test.X[:6], planted.given[:6]
    parts = log_odds_given(fitted.predictor_, X, given)
    y, z, c = map(np.concatenate, zip(*parts, strict=True))
    assert np.array_equal(y, given)
    for j in range(given.shape[1]):
        on, off = given.copy(), given.copy()
        on[:, j], off[:, j] = 1, 0
        expected = fitted.energy(X, off) - fitted.energy(X, on)
        assert c[:, j] == pytest.approx(expected, abs=1e-4)
    assert np.abs(z - c).max() > 0.1


def test_trust_finds_the_weights_that_labels_were_drawn_by():
    rng = np.random.default_rng(0)
    z, d = rng.normal(0, 2, (2, 20_000, 3))
    shift = np.array([-1.0, 0.0, 0.5])
    given = (rng.random(z.shape) < special.expit(0.6 * z + 1.4 * d + shift)).astype(float)
    given[:, 0][::2] = np.nan
    trust = Trust.of(given, z, z + d)
    assert (trust.own, trust.others) == pytest.approx((0.6, 1.4), rel=0.05)
    assert trust.shift == pytest.approx(shift, abs=0.1)
    odds = trust.log_odds(z, z + d)
    assert odds == pytest.approx(trust.own * z + trust.others * d + trust.shift)


def test_trust_stays_neutral_where_nothing_speaks_against_it():
    nothing = np.full((1, 2), np.nan)
    trust = Trust.of(nothing, np.ones((1, 2)), np.zeros((1, 2)))
    assert (trust.own, trust.others, *trust.shift) == pytest.approx((1, 1, 0, 0))


def test_evidence_is_that_of_the_counts():
    given = np.array([[1, 0, 0, 0], [np.nan, 1, 0, 0]])
    if_one, if_zero = evidence(given, 0.1)
    added = 0.1 * 2 / 5
    assert (if_one, if_zero) == pytest.approx((np.log(0.9 / added), np.log(0.1 / (1 - added))))
    assert evidence(sparse.csr_array(np.nan_to_num(given)), 0.1)[0] > if_one  # a zero more


def test_planted_errors_come_first_and_the_other_labels_help(fitted, planted):
    count = int(planted.wrong.sum())
    issues = fitted.label_issues(DATA.test.X, planted.given, unseen=True, top=count)
    assert len(issues) == count
    assert (np.diff(issues.probability) <= 0).all()
    assert np.array_equal(issues.given, planted.given[issues.row, issues.label])
    assert len(as_set(issues)) == count
    found = planted.wrong[issues.row, issues.label].mean()
    soft = fitted.predict_proba(DATA.test.X)
    doubt = np.where(planted.given == 1, 1 - soft, soft)
    alone = planted.wrong.ravel()[np.argsort(-doubt.ravel())[:count]].mean()
    assert found > alone + 0.1
    assert found > 10 * planted.wrong.mean()


def test_what_is_returned_by_default_is_more_probable_than_not(fitted, planted):
    every = fitted.label_issues(DATA.test.X, planted.given, unseen=True, top=planted.given.size)
    issues = fitted.label_issues(DATA.test.X, planted.given, unseen=True)
    assert 0 < len(issues) < len(every) == planted.given.size
    assert len(issues) == (every.probability > 0.5).sum()
    assert as_set(issues) == as_set(every.head(len(issues)))


@pytest.mark.parametrize("top", [None, 20])
def test_chunks_and_containers_change_nothing(fitted, planted, top, monkeypatch):
    def found(X, Y):
        return fitted.label_issues(X, Y, unseen=True, top=top)

    whole = found(DATA.test.X, planted.given)
    others = [found(DATA.test.X, sparse.csr_matrix(planted.given))]
    names = [[DATA.label_names[j] for j in np.flatnonzero(row)] for row in planted.given]
    others.append(found(DATA.test.X, names))
    monkeypatch.setattr(spen.limits, "chunk", 1)
    others.append(found(DATA.test.X, planted.given))
    for other in others:
        assert np.array_equal(other.row, whole.row)
        assert np.array_equal(other.label, whole.label)
        assert other.probability == pytest.approx(whole.probability, abs=1e-4)
    assert whole.label_names.tolist() == [DATA.label_names[j] for j in whole.label]


def test_a_missing_label_is_no_issue_and_stands_at_what_is_inferred(fitted, planted):
    given = planted.given.copy()
    given[:, 3] = np.nan
    issues = fitted.label_issues(DATA.test.X, given, unseen=True, top=given.size)
    assert len(issues) == given.size - len(given)
    assert 3 not in issues.label
    parts = log_odds_given(fitted.predictor_, DATA.test.X, given)
    _, _, c = map(np.concatenate, zip(*parts, strict=True))
    filled = given.copy()
    scaled = fitted.predictor_.scale(DATA.test.X)
    filled[:, 3] = fitted.predictor_.solve(scaled, given.astype("f4")).y[:, 3]
    on, off = filled.copy(), filled.copy()
    on[:, 5], off[:, 5] = 1, 0
    expected = fitted.energy(DATA.test.X, off) - fitted.energy(DATA.test.X, on)
    assert c[:, 5] == pytest.approx(expected, abs=1e-4)


def test_each_row_is_judged_by_a_model_that_has_not_seen_it(monkeypatch):
    rows, labels = DATA.train.X[:60], DATA.train.Y[:60]
    seen, judged, fit = [], [], spen.SPENClassifier.fit

    def watched(self, X, y, **settings):
        seen.append({row.tobytes() for row in np.asarray(X)})
        return fit(self, X, y, **settings)

    def asked(predictor, X, Y):
        judged.append((len(seen), {row.tobytes() for row in np.asarray(X)}))
        return log_odds_given(predictor, X, Y)

    monkeypatch.setattr(spen.SPENClassifier, "fit", watched)
    monkeypatch.setattr("spen.estimators.issues.log_odds_given", asked)
    own = classifier(epochs=2, warm_start=True)
    issues = own.label_issues(rows, labels, folds=3, top=10**6)
    assert len(seen) == 3
    assert not hasattr(own, "model_")
    for fold, some in judged:
        assert len(some) == 20
        assert not some & seen[fold - 1]
    assert set.union(*(some for _, some in judged)) == {row.tobytes() for row in rows}
    everything = {(i, j) for i in range(60) for j in range(labels.shape[1])}
    assert as_set(issues) == everything
    assert np.array_equal(issues.given, np.asarray(labels)[issues.row, issues.label])
    again = own.label_issues(rows, labels, folds=3, top=7)
    assert as_set(again) == as_set(issues.head(7))


def test_names_come_from_the_labels_or_else_from_the_fit(fitted):
    lists = [["sea", "sun"], ["sun"], [], ["sea"]] * 10
    own = classifier(epochs=2)
    X = DATA.train.X[:40]
    assert set(own.label_issues(X, lists, folds=2, top=80).label_names) == {"sea", "sun"}
    matrix = DATA.train.Y[:40]
    assert own.label_issues(X, matrix, folds=2, top=1).names.tolist() == list(range(16))
    short = fitted.label_issues(X, matrix, folds=2, top=1)
    assert short.names.tolist() == list(DATA.label_names)


def test_tables_are_encoded():
    pytest.importorskip("pandas")
    words = {"text": ["sun and sand", "rain again"] * 20, "number": list(range(40))}
    labels = [["warm"], ["wet"]] * 20
    issues = classifier(epochs=2).label_issues(words, labels, folds=2, top=3)
    assert len(issues) == 3


def test_issues_can_be_gone_through_and_made_a_frame(fitted, planted):
    issues = fitted.label_issues(DATA.test.X, planted.given, unseen=True, top=5)
    frame = issues.to_frame()
    assert list(frame.columns) == ["row", "label", "given", "probability"]
    assert frame["label"].tolist() == issues.label_names.tolist()
    assert [tuple(issue) for issue in issues] == list(frame.itertuples(index=False, name=None))


def test_the_longest_lists_are_cut_when_printed():
    count = 12
    numbers = np.arange(count)
    issues = LabelIssues(numbers, numbers * 0, numbers % 2, np.linspace(0.9, 0.6, count), NAMES)
    lines = str(issues).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "and 2 more"


def test_what_cannot_be_ranked_is_refused_in_words(fitted):
    X, Y = DATA.test.X, np.asarray(DATA.test.Y)
    for wrong, words in (
        ({"top": 0}, "top"),
        ({"wrong": 1.0}, "wrong must be"),
        ({"wrong": "x"}, "wrong must be"),
        ({"folds": 1}, "folds"),
    ):
        with pytest.raises(InputError, match=words):
            fitted.label_issues(X, Y, **wrong)
    with pytest.raises(InputError, match="one class for each row"):
        fitted.label_issues(X, np.arange(len(X)) % 3)
    with pytest.raises(InputError, match="only 0 and 1"):
        fitted.label_issues(X, Y * 0.5, unseen=True)
    hidden = Y.astype(float)
    hidden[0, 0] = np.nan
    with pytest.raises(InputError, match="need a dense Y"):
        fitted.label_issues(X, sparse.csr_matrix(hidden), unseen=True)
    with pytest.raises(InputError, match="at least four rows"):
        fitted.label_issues(X[:3], Y[:3])
    with pytest.raises(InputError, match="as many rows"):
        fitted.label_issues(X[:-1], Y)
    classes = classifier(epochs=1).fit(DATA.train.X, np.arange(300) % 3)
    with pytest.raises(InputError, match="one class for each row"):
        classes.label_issues(X, Y, unseen=True)
