"""Fits to rows that come part by part: from files, shards, datasets and loaders."""

import importlib.util
import json
import shutil
import tracemalloc

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import spen
from spen.batch.rows import SparseBatch
from spen.batch.splits import row_digests
from spen.batch.streams import stream_of
from spen.cli import main
from spen.estimators import encoded, streams
from spen.estimators import stored as opened
from spen.estimators.scaling import Scaling
from spen.training import store as stores
from spen.training import streamed
from spen.training.checkpoint import Run
from spen.training.store import RowStore, StoreWriter, copy_stream
from spen.training.streamed import Held, StreamedRows

DATA = spen.exclusive_blocks(n_train=240, n_test=60)
X, Y = DATA.train.X.round(3).astype(np.float32), np.asarray(DATA.train.Y, np.int8)
QUICK = {"hidden": (8,), "epochs": 2, "random_state": 0, "device": "cpu"}
NAMES = [f"x{i}" for i in range(X.shape[1])]


def fit(rows, folder=None, resume=False, **settings):
    return spen.SPENClassifier(**QUICK | settings).fit(rows, checkpoint=folder, resume=resume)


def bits(clf):
    """Return all that decides a prediction."""
    weights = {name: t.numpy().tobytes() for name, t in clf.model_.state_dict().items()}
    calibration = clf.predictor_.calibration
    weights["calibration"] = (calibration.scale, calibration.shift.tobytes())
    return weights, str(clf.tuned_), clf.held_out_score_


def dataset(*fields):
    return TensorDataset(*map(torch.as_tensor, fields))


def stored(folder, *fields, reads=lambda X: None):
    copy_stream(stream_of(dataset(*fields)).parts(), StoreWriter(folder, reads), lambda rows: None)
    return RowStore.open(folder)


def write_csv(path, X=X, Y=Y):
    lines = [",".join([*NAMES, *DATA.label_names])]
    lines += [",".join(f"{v:g}" for v in (*x, *y)) for x, y in zip(X, Y, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def small_blocks(monkeypatch):
    """Many blocks and buffers, as of a large file."""
    monkeypatch.setattr(stores, "BLOCK", 4000)
    monkeypatch.setattr(streamed, "BUFFER", 16_000)


def rows_of(model, store, share=0.2):
    held = Held(share)
    kept = [int((~held.among(store.digests(*span))).sum()) for span in store.spans()]
    return StreamedRows(model, store, lambda X: X, held, np.array(kept))


def linear(width=X.shape[1], labels=Y.shape[1]):
    energy = spen.LocalEnergy(width, labels)
    return spen.SPEN(spen.Identity(width), energy, spen.UnitBox(labels), seed=0)


def epoch(rows, seed=0, size=20):
    batches = rows.batches(size, torch.Generator().manual_seed(seed))
    found = [rows.context(rows.model, batch, None) for batch in batches]
    assert len(found) == len(batches)
    return [context.features.numpy() for context in found]


def as_set(rows):
    return {row.tobytes() for row in rows}


def test_an_epoch_has_each_row_once_and_none_that_is_held_out(tmp_path, small_blocks):
    numbered = np.hstack([np.arange(240)[:, None], X]).astype(np.float32)
    with stored(tmp_path / "rows", numbered, Y) as store:
        rows = rows_of(linear(65), store)
        first, again, other = epoch(rows), epoch(rows), epoch(rows, seed=1)
        assert len(store.spans()) > 10
        assert len(rows.batches(20, torch.Generator())._buffers) > 3
        held = [store.digests(*span) for span in store.spans()]
        held = Held(0.2).among(np.concatenate(held))
    assert 20 < held.sum() < 80
    numbers = np.concatenate(first)[:, 0]
    assert sorted(numbers) == np.flatnonzero(~held).tolist()
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(numbers, np.concatenate(other)[:, 0])
    assert max(map(len, first)) <= 2 * min(map(len, first))
    # Rows that lie side by side do not come side by side.
    assert (np.abs(np.diff(numbers)) == 1).mean() < 0.1


def test_what_is_held_out_depends_neither_on_the_order_nor_on_the_file(tmp_path):
    order = np.random.default_rng(0).permutation(240)
    found = []
    for name, part in (("a", np.arange(240)), ("b", order), ("c", order[:120])):
        with stored(tmp_path / name, X[part], Y[part]) as store:
            found.append(as_set(streams._held(store, Held(0.2), streams.AS_THEY_ARE).X))
    whole, shuffled, half = found
    assert whole == shuffled
    assert half == {row for row in whole if row in as_set(X[order[:120]])}


def test_held_out_labels_change_nothing_that_was_trained_without_them(small_blocks):
    held = Held(0.2).among(row_digests(X))
    other = np.where(held[:, None], 1 - Y, Y)
    first, second = fit(dataset(X, Y)), fit(dataset(X, other))
    assert first.held_out_score_ != second.held_out_score_
    for name, tensor in first.model_.state_dict().items():
        assert torch.equal(tensor, second.model_.state_dict()[name]), name


@pytest.mark.parametrize("share", [0.5, 0.1])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_columns_are_measured_in_parts_as_at_once(share, as_sparse):
    rng = np.random.default_rng(1)
    rows = (10.0 ** rng.integers(-3, 4, 12) * rng.normal(3, 1, (500, 12))).astype(np.float32)
    rows[rng.random(rows.shape) > share] = 0
    rows[:, 3] = 7
    rows = sparse.csr_array(rows) if as_sparse else rows
    cuts = [rows[:1], rows[1:40], rows[40:]]
    found, wanted = (
        Scaling.of_blocks(lambda: iter(cuts), 500, 12, (rows != 0).sum()),
        Scaling.of(rows),
    )
    assert found.length == wanted.length
    np.testing.assert_allclose(found.scale, wanted.scale, rtol=1e-9)
    if wanted.shift is not None:
        np.testing.assert_allclose(found.shift, wanted.shift, rtol=1e-9)


def test_a_fit_of_a_stream_is_a_spen_that_predicts_and_is_saved(tmp_path, small_blocks):
    clf = fit(dataset(X, Y), epochs=20)
    assert [term.kind.__name__ for term in clf.plan_.energy.terms] == ["LocalEnergy", "LabelEnergy"]
    memory = spen.SPENClassifier(**QUICK | {"epochs": 20, "cross_fit": False, "folds": 1})
    memory.fit(X, Y)
    assert clf.score(DATA.test.X, DATA.test.Y) > memory.score(DATA.test.X, DATA.test.Y) - 0.1
    assert clf.refit_history_ is None
    assert clf.n_features_in_ == X.shape[1]
    known = clf.predict_proba(DATA.test.X, known={0: 1})
    assert (known[:, 0] == 1).all()
    assert not np.allclose(known[:, 1:], clf.predict_proba(DATA.test.X)[:, 1:])
    clf.save(tmp_path / "m.spen")
    again = spen.load(tmp_path / "m.spen")
    assert np.array_equal(again.predict(DATA.test.X), clf.predict(DATA.test.X))


def test_datasets_loaders_files_and_shards_give_the_same_bits(tmp_path, small_blocks):
    wanted = bits(fit(dataset(X, Y)))
    before = torch.get_rng_state()
    assert bits(fit(DataLoader(dataset(X, Y), batch_size=37))) == wanted
    assert torch.equal(torch.get_rng_state(), before)
    assert bits(fit(DataLoader(dataset(X, Y), batch_size=64, num_workers=1))) == wanted
    csv = fit(spen.open_rows(write_csv(tmp_path / "a.csv"), labels=-16))
    assert bits(csv) == wanted
    assert csv.label_names_.tolist() == list(DATA.label_names)
    assert csv.feature_names_ == tuple(NAMES)
    shards = tmp_path / "shards"
    shards.mkdir()
    for k, part in enumerate((slice(0, 5), slice(5, 100), slice(100, None))):
        write_csv(shards / f"{k}.csv", X[part], Y[part])
        np.savez(shards / f"{k}.npz", X=X[part], Y=Y[part])
    assert bits(fit(spen.open_rows(f"{shards}/*.csv", labels=-16))) == wanted
    assert bits(fit(spen.open_rows(f"{shards}/*.npz"))) == wanted
    with pytest.raises(spen.InputError, match=r"several kinds: \.csv, \.npz"):
        spen.open_rows(shards)


def write_sparse(folder, rows=300):
    """Write rows of many absent features as XMC, LIBSVM and shards of LIBSVM."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(rows):
        columns = np.sort(rng.choice(5000, 6, replace=False))
        labels = sorted({int(c) % 4 for c in columns})
        pairs = " ".join(f"{c}:{v:.3f}" for c, v in zip(columns, rng.random(6) + 0.5, strict=True))
        lines.append(f"{','.join(map(str, labels))} {pairs}")
    (folder / "a.txt").write_text("\n".join([f"{rows} 5000 4", *lines]) + "\n")
    (folder / "a.svm").write_text("\n".join(lines) + "\n")
    (folder / "shards").mkdir()
    for k in range(3):
        part = lines[100 * k : 100 * k + 100]
        (folder / "shards" / f"{k}.svm").write_text("\n".join(part) + "\n")


def test_sparse_rows_stay_sparse(tmp_path, small_blocks):
    write_sparse(tmp_path)
    clf = fit(spen.open_rows(tmp_path / "a.txt"), tmp_path / "run")
    held = sum(file.stat().st_size for file in (tmp_path / "run" / "rows").iterdir())
    assert held < 300 * 250
    with RowStore.open(tmp_path / "run" / "rows") as store:
        assert store.about.sparse
        model = linear(5000, 4)
        rows = rows_of(model, store)
        batch = next(iter(rows.batches(10, torch.Generator())))
        assert isinstance(batch.rows.inputs[batch.index], SparseBatch)
    sizes = {"n_features": 5000, "zero_based": True}
    assert bits(fit(spen.open_rows(tmp_path / "a.svm", **sizes))) == bits(clf)
    assert bits(fit(spen.open_rows(tmp_path / "shards", **sizes))) == bits(clf)


def test_tables_with_words_are_learned_from_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(encoded, "SAMPLE", 100)
    rng = np.random.default_rng(0)
    cities = np.array(["Oslo", "Rome", "Lima", ""])[rng.integers(0, 4, 300)]
    rows = [
        {"city": city or None, "heat": round(float(heat), 3), "tags": ["cold"] * int(heat < 0)}
        for city, heat in zip(cities, rng.normal(size=300), strict=True)
    ]
    for row in rows:
        row["tags"] += ["sea"] * int(row["city"] in ("Lima", "Oslo"))
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    clf = fit(spen.open_rows(tmp_path / "a.jsonl"), epochs=40)
    assert clf.encoder_.kinds == {"city": "category", "heat": "number"}
    tables = {"city": ["Lima", "Rome"], "heat": [2.0, -2.0]}
    assert clf.predict_labels(tables) == [["sea"], ["cold"]]
    # The sample is the same in whatever order and in whatever files.
    shards = tmp_path / "shards"
    shards.mkdir()
    for k in range(3):
        (shards / f"{k}.jsonl").write_text("\n".join(lines[100 * k : 100 * k + 100]) + "\n")
    assert bits(fit(spen.open_rows(shards), epochs=40)) == bits(clf)
    columns = [(column.name, column.names) for column in clf.encoder_.columns_]
    turned = tmp_path / "b.jsonl"
    turned.write_text("\n".join(reversed(lines)) + "\n")
    other = fit(spen.open_rows(turned)).encoder_.columns_
    assert [(column.name, column.names) for column in other] == columns


def test_what_can_be_gone_through_once_is_enough():
    class Once(IterableDataset):
        rows = iter(list(zip(X, Y, strict=True)) * 5)

        def __iter__(self):
            return self.rows

    assert fit(Once()).notes_["training rows"] == "1,200"


def test_missing_labels_weights_and_label_weights(tmp_path, small_blocks):
    holes = Y.astype(np.float32)
    holes[np.random.default_rng(0).random(holes.shape) < 0.2] = np.nan
    assert fit(dataset(X, holes)).predict(X).shape == Y.shape
    # A row that counts nothing is as one that is not there.
    weight = np.ones(240, np.float32)
    weight[::3] = 0
    some = fit(dataset(X, Y, weight))
    assert bits(some) == bits(fit(dataset(X[weight > 0], Y[weight > 0])))
    assert some.notes_["training rows"] == "160"
    heavier = fit(dataset(X, Y, np.where(np.arange(240) % 2, 3.0, 1.0)))
    assert bits(heavier) != bits(fit(dataset(X, Y)))
    # Only ratios count.
    assert bits(heavier) == bits(fit(dataset(X, Y, np.where(np.arange(240) % 2, 6.0, 2.0))))
    assert fit(dataset(X, Y), label_weight="balanced").predict(X).shape == Y.shape


def test_classes_are_whole_numbers():
    numbers = np.array([7, -2, 30])[Y[:, :4].argmax(1) % 3]
    clf = fit(dataset(X, numbers), epochs=10)
    assert clf.classes_.tolist() == [-2, 7, 30]
    np.testing.assert_allclose(clf.predict_proba(X).sum(1), 1, rtol=1e-5)
    assert (clf.predict(X) == numbers).mean() > 0.5
    with pytest.raises(spen.InputError, match="one class only"):
        fit(dataset(X, np.zeros(240, int)))


def test_a_network_of_ones_own_takes_images(tmp_path, small_blocks):
    images = X.reshape(240, 1, 8, 8)

    def network():
        return torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten())

    rows = TensorDataset(torch.tensor(images), torch.tensor(Y))
    clf = spen.SPENClassifier(features=network, epochs=2, random_state=0).fit(rows)
    assert clf.predict(images).shape == Y.shape
    tokens = (X[:, :12] * 3).astype(np.int64)

    class Bag(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(20, 4)

        def forward(self, ids):
            assert ids.dtype == torch.int64
            return self.table(ids).mean(1)

    clf = spen.SPENClassifier(features=Bag, epochs=1, random_state=0)
    assert clf.fit(dataset(np.abs(tokens), Y)).predict(np.abs(tokens)).shape == Y.shape


def test_early_stopping_and_rows_of_ones_own_to_tune_by():
    stopped = fit(dataset(X, Y), epochs=60, lr=0.1, early_stopping=2)
    assert len(stopped.history_.epochs) < 60
    own = spen.SPENClassifier(**QUICK)
    own.fit(dataset(X, Y), eval_set=(DATA.test.X, DATA.test.Y), feature_names=NAMES)
    memory = spen.SPENClassifier(**QUICK, cross_fit=False)
    memory.fit(X, Y, eval_set=(DATA.test.X, DATA.test.Y))
    assert abs(own.held_out_score_ - memory.held_out_score_) < 0.15


def test_callbacks_and_remembered_rows():
    seen = []
    clf = spen.SPENClassifier(**QUICK, remember_rows=True)
    clf.fit(dataset(X, Y), callbacks=[seen.append])
    assert [each.epoch for each in seen] == [1, 2]
    assert clf.seen_in_training(X).all()
    assert not clf.seen_in_training(X + 0.5).any()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"cross_fit": True}, "cross_fit=True needs all rows in memory"),
        ({"members": 3}, "members=3"),
        ({"linear_member": True}, "linear_member=True"),
        ({"base": "forest"}, "base='forest'"),
        ({"folds": 3}, "folds=3"),
        ({"warm_start": True}, "warm_start=True"),
        ({"missing": "auto"}, "missing=0.1"),
        ({"encoder": spen.TableEncoder()}, "these rows are numbers"),
        ({"metric": "accuracy"}, "is for classes"),
    ],
)
def test_what_needs_all_rows_is_refused(settings, said):
    read = []

    class Watched(TensorDataset):
        def __getitem__(self, number):
            read.append(number)
            return super().__getitem__(number)

    rows = Watched(torch.tensor(X).repeat(9, 1), torch.tensor(Y).repeat(9, 1))
    with pytest.raises(spen.InputError, match=said):
        fit(rows, **settings)
    assert len(read) <= 1024 < len(rows)


def test_bad_rows_are_refused_in_words(tmp_path):
    bad = X.copy()
    bad[200, 3] = np.nan
    with pytest.raises(spen.InputError, match=r"among rows 0 to 239 some are missing"):
        fit(dataset(bad, Y))
    with pytest.raises(spen.InputError, match=r"only 0 and 1.*it holds 2"):
        fit(dataset(X, 2 * Y))
    with pytest.raises(spen.InputError, match="pair"):
        fit(dataset(X))
    with pytest.raises(spen.InputError, match="classes, and must be whole"):
        fit(dataset(X, Y[:, 0].astype(float)))
    with pytest.raises(spen.InputError, match="bring their labels"):
        spen.SPENClassifier().fit(dataset(X, Y), Y)
    with pytest.raises(spen.InputError, match="of one shape"):
        fit(DataLoader([(X[0], Y[0]), (X[0, 1:], Y[0])], batch_size=1))
    with pytest.raises(spen.InputError, match="Set shuffle=False"):
        fit(DataLoader(dataset(X, Y), batch_size=9, shuffle=True))
    with pytest.raises(spen.InputError, match="no rows to learn from"):
        fit(dataset(X[:0], Y[:0]))
    with pytest.raises(spen.InputError, match="would be held out"):
        fit(dataset(X[:1], Y[:1]))
    np.savez(tmp_path / "a.npz", X=X, Y=Y, train=np.arange(200), test=np.arange(200, 240))
    with pytest.raises(spen.InputError, match="for training and which for tests"):
        fit(spen.open_rows(tmp_path / "a.npz"))
    for part in ("train", "test"):
        write_csv(tmp_path / f"{part}.csv")
    shutil.rmtree(tmp_path / "folder", ignore_errors=True)
    (tmp_path / "a.npz").unlink()
    with pytest.raises(spen.InputError, match="parts of one data set"):
        spen.open_rows(tmp_path, labels=-16)


def test_a_fit_goes_on_and_reads_files_once(tmp_path, monkeypatch):
    path = write_csv(tmp_path / "a.csv")
    first = fit(spen.open_rows(path, labels=-16), tmp_path / "run")
    with pytest.raises(spen.CheckpointError, match="resume=True"):
        fit(spen.open_rows(path, labels=-16), tmp_path / "run")
    read = []
    monkeypatch.setattr(opened, "copy_stream", lambda *given: read.append(given))
    assert bits(fit(spen.open_rows(path, labels=-16), tmp_path / "run", True)) == bits(first)
    assert not read


def test_rows_that_changed_are_read_again_and_refused(tmp_path):
    path = write_csv(tmp_path / "a.csv")
    first = fit(spen.open_rows(path, labels=-16), tmp_path / "run")
    # Written again, but the same.
    write_csv(path)
    assert bits(fit(spen.open_rows(path, labels=-16), tmp_path / "run", True)) == bits(first)
    # The same rows from elsewhere are the same rows.
    names = {"label_names": DATA.label_names}
    clf = spen.SPENClassifier(**QUICK)
    clf.fit(dataset(X, Y), checkpoint=tmp_path / "run", resume=True, **names)
    assert bits(clf) == bits(first)
    write_csv(path, X[::-1], Y[::-1])
    with pytest.raises(spen.CheckpointError, match="differs in its rows, or in their order"):
        fit(spen.open_rows(path, labels=-16), tmp_path / "run", True)
    write_csv(path)
    with pytest.raises(spen.CheckpointError, match="differs in settings"):
        fit(spen.open_rows(path, labels=-16), tmp_path / "run", True, epochs=3)
    assert sorted(p.name for p in (tmp_path / "run").iterdir() if p.name[0] != ".")[-1] == "rows"


def test_a_store_that_was_cut_is_named(tmp_path):
    path = write_csv(tmp_path / "a.csv")
    fit(spen.open_rows(path, labels=-16), tmp_path / "run")
    values = tmp_path / "run" / "rows" / "X.values"
    values.write_bytes(values.read_bytes()[:-4])
    with pytest.raises(spen.CheckpointError, match=r"rows is damaged: X\.values has"):
        fit(spen.open_rows(path, labels=-16), tmp_path / "run", True)


def test_of_a_stream_that_fails_nothing_is_left(tmp_path):
    path = write_csv(tmp_path / "a.csv")
    path.write_text(path.read_text() + "1,2,3\n")
    with pytest.raises(spen.InputError, match="line 242"):
        fit(spen.open_rows(path, labels=-16), tmp_path / "run")
    assert not list(tmp_path.glob("run/*"))


def test_the_command_streams(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shards = tmp_path / "rows"
    shards.mkdir()
    write_csv(shards / "0.csv", X[:120], Y[:120])
    write_csv(shards / "1.csv", X[120:], Y[120:])
    quick = ["--hidden", "8", "--epochs", "2", "--device", "cpu", "--labels", "-16"]
    main(["fit", "rows", "--stream", "--out", "m.spen", "--json", *quick])
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["features"], told["labels"]) == (240, 64, 16)
    clf = spen.load("m.spen")
    assert np.array_equal(clf.predict(X), fit(dataset(X, Y)).predict(X))
    write_csv(tmp_path / "words.csv")
    text = (tmp_path / "words.csv").read_text().replace("x0,", "city,", 1).split("\n")
    text[1:] = [
        f"{'Oslo' if k % 2 else 'Rome'},{line.split(',', 1)[1]}"
        for k, line in enumerate(text[1:-1])
    ]
    (tmp_path / "words.csv").write_text("\n".join(text) + "\n")
    main(
        ["fit", "words.csv", "--stream", "--out", "w.spen", "--json", "--checkpoint", "run", *quick]
    )
    assert json.loads(capsys.readouterr().out)["columns"]["city"] == "category"
    with pytest.raises(SystemExit):
        main(["fit", "yeast", "--stream"])
    assert "Leave --stream out" in capsys.readouterr().err


def test_parquet_names_its_extra_where_it_is_missing(tmp_path, monkeypatch):
    usual = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyarrow" else usual(name)
    )
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and what follows")
    with pytest.raises(spen.MissingPackageError, match=r"pip install 'spen\[parquet\]'"):
        spen.open_rows(tmp_path / "a.parquet")


def test_a_fit_that_is_stopped_within_an_epoch_goes_on_there(tmp_path, small_blocks, monkeypatch):
    class StoppedError(Exception):
        pass

    save, step, left, steps = Run.save, StreamedRows.context, 0, 0

    def save_or_stop(run):
        nonlocal left
        save(run)
        left -= 1
        if left == 0:
            raise StoppedError

    def counted(*given):
        nonlocal steps
        steps += 1
        return step(*given)

    monkeypatch.setattr(Run, "save", save_or_stop)
    monkeypatch.setattr(StreamedRows, "context", counted)
    monkeypatch.setattr("spen.training.checkpoint.SAVED_TIMES", 0)
    settings = {"epochs": 3, "batch_size": 16, "dropout": 0.5}
    wanted, taken = bits(fit(dataset(X, Y), **settings)), steps
    assert taken > 30
    for saves in (3, 1, 14, 1, 5):
        left, steps = saves, 0
        with pytest.raises(StoppedError):
            fit(dataset(X, Y), tmp_path / "run", True, **settings)
        assert steps <= saves
    left = steps = 0
    assert bits(fit(dataset(X, Y), tmp_path / "run", True, **settings)) == wanted
    assert 0 < steps < taken - 15


class Drawn(IterableDataset):
    """As many rows as are asked for, none of which stays."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        draws = np.random.default_rng(0)
        for _ in range(self.rows):
            x = draws.normal(size=40).astype(np.float32)
            yield x, (x[:6] > 0.5).astype(np.int8)


def test_memory_does_not_grow_with_the_rows(monkeypatch):
    monkeypatch.setattr(stores, "BLOCK", 2**13)
    monkeypatch.setattr(streamed, "BUFFER", 2**17)
    monkeypatch.setattr(streams, "MOST_HELD", 2**11)
    monkeypatch.setattr(streams, "FEWEST_HELD", 300)
    fit(Drawn(1000), hidden=(), epochs=1)  # what is imported and remembered once
    peaks = []
    for rows in (1500, 6000):
        tracemalloc.start()
        clf = fit(Drawn(rows), hidden=(), epochs=1, batch_size=64)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert clf.notes_["training rows"] == f"{rows:,}"
    small, large = peaks
    assert large < small + 6000 * 40 * 4 / 2, f"{peaks}; all rows are {6000 * 40 * 4}"
