"""The demo, on fewer rows."""

from spen.commands import demo as module


def test_the_demo_prints_its_table_and_draws_its_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "ROWS", 150)
    module.demo(out=tmp_path)
    shown = capsys.readouterr().out
    for words in ("linear", "3-layer MLP", "SPEN", "measurements.png"):
        assert words in shown
    assert (tmp_path / "measurements.png").stat().st_size > 5000
    assert (tmp_path / "measurements.svg").read_text().startswith("<?xml")
    before = (tmp_path / "records.jsonl").read_bytes()
    module.demo(out=tmp_path)
    assert capsys.readouterr().out == shown
    assert (tmp_path / "records.jsonl").read_bytes() == before
