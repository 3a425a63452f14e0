"""Records, settings, the protocol and the block scores."""

import json

import numpy as np
import pytest

import spen
from spen.data.synthetic import block_membership
from spen.estimators.scaling import AS_THEY_ARE
from spen_paper.records import Records
from spen_paper.tables import protocol, table3
from spen_paper.tables.protocol import Method, method, read_methods

LINEAR = {
    "title": "linear",
    "stages": [
        {
            "name": "local",
            "objective": {"name": "cross_entropy"},
            "parts": ["local"],
            "epochs": [3, 1],
            "lr": 0.1,
        }
    ],
}


def test_every_shipped_setting_builds():
    for name in ("table3", "structure"):
        for column in (0, 1):
            for one in read_methods(name, column).values():
                model = one.plan().build(64, one.domain(16), seed=0)
                assert model.domain.size == 16
                assert one.stages


def test_numbers_by_column():
    assert method(LINEAR, "x", 0).stages[0].epochs == 3
    assert method(LINEAR, "x", 1).stages[0].epochs == 1
    assert table3.methods_for(1500)["mlp"] != table3.methods_for(15000)["mlp"]
    assert table3.methods_for(200)["mlp"] == table3.methods_for(1500)["mlp"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"measurement": 4}, r"Unknown key 'measurement' in x. Did you mean 'measurements'"),
        ({"inference": {"rul": {}}}, "Did you mean 'rule'"),
        ({"inference": {"rule": {"momentun": 0.5}}}, "Did you mean 'momentum'"),
        ({"inference": {"rule": {"name": "miror"}}}, "Did you mean 'mirror'"),
        ({"stages": [{"name": "a"}]}, "Unknown objective in x stages ''"),
        ({"stages": [{"name": "a", "objective": {"name": "hinge", "detla": 1}}]}, "'delta'"),
        ({"stages": [{"objective": {"name": "hinge"}}]}, "The key 'name' is missing"),
    ],
)
def test_a_typo_in_settings_stops_with_a_suggestion(change, words):
    with pytest.raises(spen.InputError, match=words):
        method(LINEAR | change, "x")


def test_the_test_rows_do_not_touch_training():
    """Whatever the test rows are, the fitted model and its threshold are the same."""
    data = spen.exclusive_blocks(100, 50, seed=0)
    one = method(LINEAR, "x")
    fitted = one.fit(data.train, seed=0)
    again = one.fit(data.train, seed=0)
    before = {name: t.clone() for name, t in fitted.model.state_dict().items()}
    scores = protocol.evaluate(fitted, data.test)
    flipped = protocol.evaluate(fitted, spen.Split(data.test.X, 1 - data.test.Y))
    assert scores["f1"] > flipped["f1"]
    assert fitted.tuned == again.tuned
    for name, tensor in again.model.state_dict().items():
        assert tensor.equal(before[name])
        assert tensor.equal(fitted.model.state_dict()[name])


def test_scores_are_those_of_the_metrics():
    data = spen.exclusive_blocks(100, 50, seed=0)
    fitted = method(LINEAR, "x").fit(data.train, seed=0)
    soft = fitted.predictor(AS_THEY_ARE).solve(data.test.X).y.numpy()
    expected = 100 * spen.example_f1(data.test.Y, soft > fitted.tuned["threshold"])
    assert protocol.evaluate(fitted, data.test)["f1"] == pytest.approx(expected, abs=1e-3)


def test_the_oracle_predicts_one_label_per_block():
    data = spen.exclusive_blocks(200, 50, seed=0)
    fitted = table3.methods_for(1500)["oracle"].fit(data.train, seed=0)
    predictor = fitted.predictor(AS_THEY_ARE)
    labels = predictor.decode(predictor.solve(data.test.X).y)
    assert fitted.tuned == {}
    assert (labels.reshape(-1, 4, 4).sum(2) == 1).all()


def test_a_record_cut_off_in_mid_line_is_run_again_and_the_others_stay(tmp_path, monkeypatch):
    data = spen.exclusive_blocks(60, 30, seed=0)
    one = method(LINEAR, "x")
    records = Records(tmp_path)
    for seed in (0, 1):
        protocol.run("table3", "linear", one, data, seed, records)
    content = records.path.read_bytes()
    records.path.write_bytes(content[:-40])

    resumed = Records(tmp_path)
    seen, original = [], Method.fit

    def spy(self, *arguments):
        seen.append(self)
        return original(self, *arguments)

    monkeypatch.setattr(Method, "fit", spy)
    first = protocol.run("table3", "linear", one, data, 0, resumed)
    assert not seen, "the whole record is not run again"
    assert first["seed"] == 0
    second = protocol.run("table3", "linear", one, data, 1, resumed)
    assert seen, "the half one is"
    lines = records.path.read_text().splitlines()
    assert json.loads(lines[-1])["metrics"] == second["metrics"]
    assert json.loads(lines[0])["seed"] == 0
    other = method(LINEAR | {"title": "another"}, "x")
    seen.clear()
    protocol.run("table3", "linear", other, data, 0, Records(tmp_path))
    assert seen, "other settings are another run"


def test_records_kept_in_other_files_of_the_folder_are_found(tmp_path):
    kept = {"experiment": "table3", "method": "linear", "seed": 0, "metrics": {"f1": 80.0}}
    (tmp_path / "records-old.jsonl").write_text(json.dumps(kept) + "\n")
    records = Records(tmp_path)
    assert records.find({"experiment": "table3", "method": "linear", "seed": 0}) == kept
    records.add(kept | {"seed": 1})
    assert len(records.path.read_text().splitlines()) == 1, "new ones go to records.jsonl alone"


def test_block_scores():
    blocks = block_membership()
    rng = np.random.default_rng(0)
    assert table3.block_score(-3 * blocks) == pytest.approx(1.0)
    assert table3.block_span_score(blocks) == pytest.approx(1.0)
    mixed = rng.standard_normal((4, 4)) @ blocks
    assert table3.block_span_score(mixed) == pytest.approx(1.0)
    assert table3.block_score(mixed) < 0.95
    many = rng.standard_normal((5000, 4)) @ blocks
    assert table3.block_score(many) == pytest.approx(0.62, abs=0.01)
    noise = rng.standard_normal((5000, 16))
    assert table3.block_score(noise) == pytest.approx(0.15, abs=0.01)
    assert table3.block_span_score(noise) == pytest.approx(0.25, abs=0.01)
    assert table3.block_score(np.zeros((2, 16))) == 0.0


def test_structure_draws_and_measures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(table3, "CASES", (("relu", 100), ("hardtanh", 100)))
    table3.structure(seeds=1, out=tmp_path)
    shown = capsys.readouterr().out
    assert "ReLU" in shown
    assert "HardTanh" in shown
    for suffix in ("png", "svg"):
        assert (tmp_path / f"structure.{suffix}").stat().st_size > 5000
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert all(np.shape(record["measurements"]) == (4, 16) for record in records)
