"""The catalogue: what it says about the files, and where it looks for them."""

import subprocess
import sys
from pathlib import Path

import pytest

import spen
from spen.data import catalog
from spen.data.catalog import ENTRIES, cache_folder, data_folders, difference, find, locate


@pytest.fixture
def places(tmp_path, monkeypatch):
    """``$SPEN_DATA`` and the cache, both empty."""
    monkeypatch.setenv("SPEN_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(catalog, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "data", tmp_path / "cache"


def put(folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True)
    for file in ENTRIES[name].files:
        (folder / name / file.name).touch()


TAGGED = ["conll2000", "ocr_letters", "twitter_pos"]
VERIFIED = ["bibtex", "conll2000", "delicious", "twitter_pos", "yeast"]


@pytest.mark.parametrize("name", VERIFIED)
def test_the_checksums_are_those_of_the_real_files(name):
    folder = find(name)
    if folder is None:
        pytest.skip(f"the real files of {name} are not here")
    for file in ENTRIES[name].files:
        assert file.sha256
        assert difference(folder / file.name, file) is None


def test_entries_are_consistent():
    assert sorted(ENTRIES) == sorted({*VERIFIED, *TAGGED, "bookmarks"})
    for name, entry in ENTRIES.items():
        assert entry.name == name
        assert entry.sentence.endswith(".")
        assert bool(entry.parts) == (name in TAGGED)
        for file in entry.files:
            mirrored = entry.address(file, "https://example.org/")
            assert mirrored == f"https://example.org/{name}/{file.name}"
            if name not in TAGGED:
                assert entry.address(file) == f"{catalog.MULAN}/{name}/{file.name}"
        if name not in TAGGED:
            assert sum(file.name.endswith(".xml") for file in entry.files) == 1
    twitter = ENTRIES["twitter_pos"]
    assert [file.name for file in twitter.files_of("train")] == ["oct27.train", "oct27.dev"]
    at = "/data/twpos-data-v0.3/oct27.splits/oct27.train"
    assert twitter.address(twitter.files[0]).endswith(at)
    bookmarks = ENTRIES["bookmarks"]
    assert bookmarks.row_split == (48000, 12000, 27856)
    assert (bookmarks.n_train, bookmarks.n_test) == (48000 + 12000, 27856)


def test_the_named_folder_comes_before_the_cache(places):
    data, cache = places
    put(cache, "yeast")
    assert locate("yeast") == cache / "yeast"
    put(data, "yeast")
    assert locate("yeast") == data / "yeast"
    (data / "yeast" / "yeast.xml").unlink()
    assert locate("yeast") == cache / "yeast", "a folder that lacks a file does not count"


def test_a_missing_set_says_what_to_get_and_where_to_put_it(places):
    data, cache = places
    put(data, "yeast")
    (data / "yeast" / "yeast-test.arff").unlink()
    with pytest.raises(spen.InputError) as caught:
        locate("yeast")
    text = str(caught.value)
    assert f"{data / 'yeast'} or {cache / 'yeast'}" in text
    assert "spen data fetch yeast" in text
    assert f"{catalog.MULAN}/yeast/yeast-test.arff into the folder {data / 'yeast'}" in text
    assert "yeast-train.arff" not in text, "it is there already"


def test_an_unknown_name_gets_a_hint(places):
    with pytest.raises(spen.UnknownNameError, match="Did you mean 'delicious'"):
        locate("delicous")


@pytest.mark.parametrize(
    ("platform", "xdg", "folder"),
    [
        ("linux", "", "/home/me/.cache/spen"),
        ("linux", "relative", "/home/me/.cache/spen"),
        ("linux", "/var/me", "/var/me/spen"),
        ("darwin", "", "/home/me/Library/Caches/spen"),
    ],
)
def test_the_cache_is_where_the_system_keeps_such_things(monkeypatch, platform, xdg, folder):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    assert cache_folder() == Path(folder)
    monkeypatch.setenv("SPEN_DATA", " ")
    assert data_folders() == [Path(folder)]
    monkeypatch.setenv("SPEN_DATA", "~/sets")
    assert data_folders() == [Path("/home/me/sets"), Path(folder)]


def test_the_catalogue_is_light():
    program = (
        "import sys, spen.data.catalog; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["conll2000", "ocr_letters"])
def test_what_has_no_address_is_told_in_words(places, name):
    data, _ = places
    with pytest.raises(catalog.FetchError, match="has no files that can be fetched; put ") as told:
        catalog.fetch(name)
    assert ENTRIES[name].by_hand in str(told.value)
    assert not data.exists()
    with pytest.raises(spen.InputError, match=r"\. Put .* into the folder") as told:
        locate(name)
    assert "spen data fetch" not in str(told.value)
