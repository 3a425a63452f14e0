"""Tables of words, dates, text and missing cells, and classifiers that learn from them."""

import json
import math
import sys
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

import spen
from spen.errors import CheckpointError, InputError, MissingPackageError
from spen.estimators.tables import needs_encoder
from spen.files import read_tensors, write_tensors

ROWS = 40
FAST = {"hidden": (4,), "epochs": 2, "random_state": 0, "folds": 1}


def table(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    bodies = [" ".join(rng.choice(["sun", "sea", "snow", "rain", "wind"], 4)) for _ in range(rows)]
    return pd.DataFrame(
        {
            "age": np.where(np.arange(rows) % 9, rng.normal(40, 9, rows), np.nan),
            "colour": rng.choice(["red", "blue", None], rows),
            "member": rng.random(rows) < 0.5,
            "joined": pd.date_range("2023-05-01", periods=rows, freq="31h"),
            "born": [f"19{60 + i % 40}-0{1 + i % 9}-11" for i in range(rows)],
            "zip": [f"0{i % 3}001" for i in range(rows)],
            "body": [f"{body} number {i}" for i, body in enumerate(bodies)],
        }
    )


def dense(X):
    return X.toarray() if sparse.issparse(X) else X


def labels(frame):
    return np.stack([frame["member"], frame["body"].str.contains("sun")], axis=1).astype(int)


@pytest.fixture(scope="module")
def fitted():
    frame = table()
    encoder = spen.TableEncoder(categories="zip")
    return frame, spen.SPENClassifier(**FAST, encoder=encoder).fit(frame, labels(frame))


def test_every_kind_of_column_is_found_and_encoded():
    frame = table()
    encoder = spen.TableEncoder(categories="zip").fit(frame)
    X = dense(encoder.transform(frame))
    kinds = {column.name: type(column).__name__ for column in encoder.columns_}
    assert kinds == {
        "age": "NumberColumn",
        "colour": "CategoryColumn",
        "member": "NumberColumn",
        "joined": "DateColumn",
        "born": "DateColumn",
        "zip": "CategoryColumn",
        "body": "TextColumn",
    }
    assert X.dtype == np.float32
    features = dict(zip(encoder.feature_names, X.T, strict=True))
    age = frame["age"]
    np.testing.assert_allclose(
        features["age"], ((age - age.mean()) / age.std(ddof=0)).fillna(0), rtol=1e-5, atol=1e-6
    )
    assert (features["age is missing"] == age.isna()).all()
    assert (features["colour=red"] == (frame["colour"] == "red")).all()
    assert (features["colour is missing"] == frame["colour"].isna()).all()
    assert (features["zip=02001"] == (frame["zip"] == "02001")).all()
    assert "joined: hour" in features
    assert "born: hour" not in features
    for part in ("year", "month", "day", "day_of_week", "hour"):
        truth = getattr(frame["joined"].dt, part).to_numpy(float)
        scaled = (truth - truth.mean()) / (truth.std() or 1.0)
        name = "weekday" if part == "day_of_week" else part
        np.testing.assert_allclose(features[f"joined: {name}"], scaled, atol=1e-5)


@pytest.mark.parametrize("rows", [30, 150])
def test_text_is_weighed_as_scikit_learn_does(rows):
    texts = table(rows)["body"].tolist()
    encoder = spen.TableEncoder().fit(texts)
    oracle = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2 if rows >= 100 else 1)
    wanted = oracle.fit_transform(texts)
    assert encoder.feature_names == tuple(f"text: {t}" for t in oracle.get_feature_names_out())
    np.testing.assert_allclose(dense(encoder.transform(texts)), wanted.toarray(), atol=1e-6)


def test_rare_and_unknown_categories_share_a_feature():
    words = ["red"] * 60 + ["blue"] * 60 + ["mauve"]
    encoder = spen.TableEncoder().fit({"colour": words, "n": range(121)})
    assert encoder.feature_names == ("colour=blue", "colour=red", "colour is other", "n")
    new = encoder.transform({"colour": ["mauve", "green", None], "n": [60, 60, 60]})
    assert new.tolist() == [[0, 0, 1, 0]] * 3
    many = {"city": [f"c{i}" for i in range(150) for _ in range(2)]}
    assert sparse.issparse(spen.TableEncoder().fit_transform(many))


def test_what_a_column_is_can_be_said():
    plain = {"a": ["up on", "up on", "off"], "n": [1, 2, 1], "when": ["5", "6", "7"]}
    encoder = spen.TableEncoder(text=["a"], categories=("n",), drop="when").fit(plain)
    assert encoder.feature_names == ("a: off", "a: on", "a: up", "a: up on", "n=1", "n=2")
    # Numbers that are names: 1, 1.0 and "1" are the same one.
    for ones in ([1.0, 2.0], [1, 2], ["1", "2"]):
        rows = dense(encoder.transform({"a": ["", ""], "n": ones}))
        assert rows[:, -2:].tolist() == [[1, 0], [0, 1]]
    with pytest.raises(InputError, match=r"drop names the column 'wen'.*Did you mean 'when'"):
        spen.TableEncoder(drop="wen").fit(plain)
    with pytest.raises(InputError, match="Both text and drop name the column 'a'"):
        spen.TableEncoder(text="a", drop="a")


def test_rows_do_not_depend_on_their_neighbours_or_on_the_order_of_columns(fitted):
    frame, clf = fitted
    whole = dense(clf.encoder_.transform(frame))
    mixed = frame.assign(more=1)[["more", *frame.columns[::-1]]]
    for row in (0, 7, ROWS - 1):
        assert (dense(clf.encoder_.transform(mixed.iloc[[row]]))[0] == whole[row]).all()
    strings = frame.astype({"age": str}).replace({"age": {"nan": None}})
    assert (dense(clf.encoder_.transform(strings)) == whole).all(), "numbers that are spelled"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda f: f.drop(columns="age"), "X lacks the column 'age'"),
        (lambda f: f.assign(age="old"), "Column 'age' holds 'old' in row 0; expected a number"),
        (lambda f: f.assign(age=np.inf), "holds inf in row 0, which is too large"),
        (lambda f: f.assign(colour=1.5), "Column 'colour' holds numbers; expected words such as"),
        (lambda f: f.assign(body=3.0), "Column 'body' holds 3.0 in row 0; expected text"),
        (lambda f: f.assign(born="2024-13-01"), "expected a date such as"),
        (lambda f: f.to_numpy(), "A table must be a DataFrame.*Received ndarray of shape"),
        (lambda f: pd.concat([f, f["age"]], axis=1), "Two columns of the table are called 'age'"),
    ],
)
def test_tables_that_do_not_fit_are_refused_in_sentences(fitted, change, what):
    frame, clf = fitted
    with pytest.raises(InputError, match=what):
        clf.predict(change(frame))


def test_tables_that_cannot_be_learned_from():
    almost = {"n": [*map(str, range(20)), "x7"]}
    with pytest.raises(InputError, match="Column 'n' holds numbers, but also 'x7'"):
        spen.TableEncoder().fit(almost)
    with pytest.raises(InputError, match="A cell holds a list"):
        spen.TableEncoder().fit({"n": [["a"], ["b"]]})
    with pytest.raises(InputError, match="No column of the table holds anything"):
        spen.TableEncoder().fit({"n": [None, np.nan]})
    with pytest.raises(InputError, match="equally long"):
        spen.TableEncoder().fit({"n": [1], "m": [1, 2]})
    with pytest.raises(InputError, match=r"encoder must be a spen\.TableEncoder"):
        spen.SPENClassifier(encoder="words").fit(["a b"], [[1]])


def test_a_classifier_learns_from_a_table_and_its_file_gives_the_same_answers(fitted, tmp_path):
    frame, clf = fitted
    path = tmp_path / "m.spen"
    clf.save(path)
    back = spen.load(path)
    assert back.feature_names_ == clf.encoder_.feature_names == back.encoder_.feature_names
    assert back.encoder.categories == ("zip",)
    first, second = (dense(c.encoder_.transform(frame)) for c in (clf, back))
    assert first.tobytes() == second.tobytes()
    assert (back.predict_proba(frame) == clf.predict_proba(frame)).all()
    assert (back.predict(frame.iloc[[3]]) == clf.predict(frame)[3]).all()
    assert clf.energy(frame, labels(frame)).shape == (ROWS,)
    assert clf.diagnose(frame, labels(frame)).steps.shape == (ROWS,)
    found = clf.compare(frame, labels(frame), against="logistic")
    assert [entry.name for entry in found.entries] == ["SPENClassifier", "logistic"]
    again = spen.SPENClassifier(**FAST, encoder=clf.encoder).fit(frame, labels(frame))
    assert (again.predict_proba(frame) == clf.predict_proba(frame)).all()
    assert not hasattr(clf.encoder, "columns_"), "a setting is left as it is"


def test_texts_alone_are_a_table():
    texts = table()["body"].tolist()
    assert spen.TableEncoder().fit(["sun"] * 9).feature_names == ("text: sun",)
    for X in (texts, pd.Series(texts), np.array(texts)):
        clf = spen.SPENClassifier(**FAST).fit(X, [["sun"] if "sun" in t else [] for t in texts])
        assert clf.encoder_.feature_names[0].startswith("text: ")
        assert clf.predict(X[:3]).shape == (3, 1)


def test_numbers_take_the_path_of_numbers():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 3)), rng.integers(0, 2, (30, 2))
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(a=pd.array(range(30), dtype="Int64"))
    assert not needs_encoder(frame)
    clf = spen.SPENClassifier(**FAST).fit(frame, Y)
    assert clf.encoder_ is None
    assert list(clf.feature_names_in_) == ["a", "b", "c"]
    plain = spen.SPENClassifier(**FAST).fit(frame.to_numpy(float), Y)
    assert (plain.predict_proba(frame.to_numpy(float)) == clf.predict_proba(frame)).all()
    frame.loc[3, "b"] = np.nan
    assert needs_encoder(frame)
    missing = spen.SPENClassifier(**FAST).fit(frame, Y)
    assert missing.feature_names_ == ("a", "b", "b is missing", "c")
    assert missing.predict(frame).shape == (30, 2)


def lengths(texts):
    return np.array([[len(text), text.count("s")] for text in texts])


def test_an_encoder_of_sentences_of_your_own(tmp_path):
    texts = table()["body"].tolist()
    encoder = spen.TableEncoder(text_encoder=lengths)
    assert (encoder.fit_transform(texts) == lengths(texts)).all()
    clf = spen.SPENClassifier(**FAST, encoder=encoder).fit(texts, [[i % 2] for i in range(ROWS)])
    with pytest.raises(InputError, match="cannot keep a text_encoder that is a function"):
        clf.save(tmp_path / "m.spen")
    with pytest.raises(InputError, match="must return finite numbers of shape"):
        spen.TableEncoder(text_encoder=lambda texts: np.zeros(5)).fit(texts)
    with pytest.raises(InputError, match="text_encoder must be None, the name"):
        spen.TableEncoder(text_encoder=3)


def test_an_encoder_of_sentences_by_name(tmp_path, monkeypatch):
    texts = table()["body"].tolist()
    encoder = spen.TableEncoder(text_encoder="tiny/model")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"spen\[text\]"):
        encoder.fit(texts)

    class SentenceTransformer:
        def __init__(self, name):
            assert name == "tiny/model"

        encode = staticmethod(lengths)

    module = ModuleType("sentence_transformers")
    module.SentenceTransformer = SentenceTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    clf = spen.SPENClassifier(**FAST, encoder=encoder).fit(texts, [[i % 2] for i in range(ROWS)])
    clf.save(tmp_path / "m.spen")
    back = spen.load(tmp_path / "m.spen")
    assert back.encoder_.text_encoder == "tiny/model"
    assert (back.predict_proba(texts) == clf.predict_proba(texts)).all()


def test_damaged_encoders_are_refused(fitted, tmp_path):
    _, clf = fitted
    path = tmp_path / "m.spen"
    clf.save(path)
    tensors, header = read_tensors(path)
    [idf] = [name for name in tensors if name.startswith("encoder/")]
    columns = header["encoder"]["columns"]
    places = {column["kind"]: i for i, column in enumerate(columns)}
    damages = [
        (places["number"], {"kind": "picture"}),
        (places["number"], {"means": {"tuple": ["x"]}}),
        (places["number"], {"spreads": {"tuple": [0.0]}}),
        (places["number"], {"spreads": {"tuple": [math.inf]}}),
        (places["number"], {"has_missing": 3.5}),
        (places["date"], {"means": {"tuple": [0.0]}}),
        (places["category"], {"values": {"tuple": ["a", 3]}}),
        (places["category"], {"values": {"tuple": ["red"]}}),
        (places["text"], {"vocabulary": {"tuple": ["sun"]}}),
        (places["text"], {"kind": "embedded", "width": 10**12}),
        (places["text"], {"name": None}),
    ]
    for place, change in damages:
        bad = json.loads(json.dumps(header))
        bad["encoder"]["columns"][place] |= change
        write_tensors(path, tensors, bad)
        with pytest.raises(CheckpointError, match="cannot be used"):
            spen.load(path)
    for weights in (tensors[idf][1:], tensors[idf].float(), -tensors[idf], tensors[idf] * math.inf):
        write_tensors(path, tensors | {idf: weights}, header)
        with pytest.raises(CheckpointError):
            spen.load(path)
    write_tensors(path, tensors, header | {"encoder": {"settings": {"class": "Descent"}}})
    with pytest.raises(CheckpointError):
        spen.load(path)
