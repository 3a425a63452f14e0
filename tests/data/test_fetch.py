"""Downloads from a server that serves well, cuts off, lies, or is not there."""

import hashlib
import io
import threading
from pathlib import Path
from urllib.request import Request

import numpy as np
import pytest
from local_server import Server

import spen
from spen.data import catalog
from spen.data.catalog import Entry, FetchError, RemoteFile

BYTES = np.random.default_rng(0).integers(0, 256, 300_000, dtype=np.uint8).tobytes()
OTHER = BYTES[::-1]
SHA = hashlib.sha256(BYTES).hexdigest()
FILE = RemoteFile("set.arff", len(BYTES), SHA)
UNKNOWN = RemoteFile("set.xml", None, None)


def good(handler, content=BYTES, stop=None):
    """Serve the file, from where it was asked for; ``stop`` cuts it off at that byte."""
    begin = handler.begin()
    part = {"Content_Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"} if begin else {}
    handler.answer(206 if begin else 200, Content_Length=len(content) - begin, **part)
    handler.body(content[begin:stop])


def cut_at(byte):
    return lambda handler: good(handler, stop=byte)


def ignores_range(handler):
    handler.answer(200, Content_Length=len(BYTES))
    handler.body(BYTES)


def wrong_part(handler):
    handler.answer(206, Content_Length=10, Content_Range=f"bytes 5-14/{len(BYTES)}")
    handler.body(BYTES[5:15])


def announces(length, content=BYTES):
    def behave(handler):
        handler.answer(200, Content_Length=length)
        handler.body(content)

    return behave


def endless(handler):
    handler.answer(200, Connection="close")
    for _ in range(1000):
        handler.body(OTHER)


def status(code, **headers):
    return lambda handler: handler.answer(code, Content_Length=0, **headers)


def hangs_up(handler):
    pass


def chunked(content, finish=True):
    def behave(handler):
        handler.answer(200, Transfer_Encoding="chunked")
        handler.body(b"%x\r\n%s\r\n" % (len(content), content) + (b"0\r\n\r\n" if finish else b""))

    return behave


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(catalog, "PAUSE", 0.001)
    monkeypatch.setattr(catalog, "TIMEOUT", 5.0)


@pytest.fixture
def serve(monkeypatch):
    servers = []

    def start(*behaviours, files=(FILE,)):
        entry = Entry("set", "For tests.", n_train=1, n_test=1, n_labels=1, files=files)
        monkeypatch.setitem(catalog.ENTRIES, "set", entry)
        servers.append(Server(*behaviours))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def get(server, folder, **options):
    return catalog.fetch("set", folder, base_url=server.url, **options)


def assert_in_place(folder: Path, content=BYTES, name="set.arff"):
    assert (folder / name).read_bytes() == content
    assert [path.name for path in folder.iterdir()] == [name]


def assert_fails(server, folder, words, left=()):
    with pytest.raises(FetchError, match=words) as caught:
        get(server, folder)
    assert "download https://raw.githubusercontent.com" in str(caught.value)
    assert str(folder) in str(caught.value)
    assert sorted(path.name for path in folder.iterdir()) == sorted(left)


def test_a_good_server(serve, tmp_path):
    server = serve(good)
    seen = []
    folder = tmp_path / "new" / "set"
    (done,) = get(server, folder, progress=lambda file, have: seen.append((file.name, have)))
    assert_in_place(folder)
    assert (done.path, done.size) == (folder / "set.arff", len(BYTES))
    assert done.verified
    assert done.downloaded
    assert seen[0] == ("set.arff", 0)
    assert seen[-1] == ("set.arff", len(BYTES))
    assert seen == sorted(seen)


def test_what_is_there_and_whole_is_not_fetched_again(serve, tmp_path):
    server = serve(good)
    get(server, tmp_path)
    before = (tmp_path / "set.arff").stat()
    (again,) = get(server, tmp_path)
    assert not again.downloaded
    assert len(server.ranges) == 1
    after = (tmp_path / "set.arff").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


def test_what_is_there_and_wrong_is_replaced(serve, tmp_path):
    (tmp_path / "set.arff").write_bytes(OTHER)
    assert get(serve(good), tmp_path)[0].downloaded
    assert_in_place(tmp_path)


def test_the_default_folder_is_spen_data_or_the_cache(serve, tmp_path, monkeypatch):
    server = serve(good)
    monkeypatch.setenv("SPEN_DATA", str(tmp_path / "data"))
    assert get(server, None)[0].path == tmp_path / "data" / "set" / "set.arff"
    monkeypatch.delenv("SPEN_DATA")
    monkeypatch.setattr(catalog, "cache_folder", lambda: tmp_path / "cache")
    assert get(server, None)[0].path == tmp_path / "cache" / "set" / "set.arff"


def test_a_cut_off_is_resumed(serve, tmp_path):
    server = serve(cut_at(100_000), cut_at(250_000), good)
    get(server, tmp_path)
    assert_in_place(tmp_path)
    assert server.ranges == [None, "bytes=100000-", "bytes=250000-"]
    assert server.has_sent(len(BYTES)), "no byte travelled twice"


def test_a_cut_off_is_resumed_by_the_next_run(serve, tmp_path):
    down = [status(503)] * catalog.FUTILE
    server = serve(cut_at(120_000), *down, good)
    assert_fails(server, tmp_path, "HTTP 503.*go on from byte 120000", left=["set.arff.partial"])
    get(server, tmp_path)
    assert_in_place(tmp_path)
    assert server.ranges == [None, *["bytes=120000-"] * (catalog.FUTILE + 1)]
    assert server.has_sent(len(BYTES))


def test_a_complete_partial_needs_no_server(serve, tmp_path):
    server = serve(status(404))
    (tmp_path / "set.arff.partial").write_bytes(BYTES)
    get(server, tmp_path)
    assert_in_place(tmp_path)
    assert server.ranges == []


@pytest.mark.parametrize(
    "left", [OTHER[:1000], OTHER, OTHER + OTHER], ids=["wrong", "wrong and whole", "too long"]
)
def test_a_bad_partial_of_an_earlier_run_is_no_obstacle(serve, tmp_path, left):
    (tmp_path / "set.arff.partial").write_bytes(left)
    get(serve(good), tmp_path)
    assert_in_place(tmp_path)


@pytest.mark.parametrize(
    "behaviour", [ignores_range, wrong_part, status(416)], ids=["ignored", "wrong part", "416"]
)
def test_a_server_that_cannot_resume_is_asked_for_the_whole(serve, tmp_path, behaviour):
    server = serve(cut_at(100_000), behaviour, good)
    get(server, tmp_path)
    assert_in_place(tmp_path)
    # The server that ignores the range sends all of it at once; the others are asked again.
    expected = [None, "bytes=100000-", None]
    assert server.ranges == expected[: 2 if behaviour is ignores_range else 3]


def test_a_server_that_never_resumes_and_always_cuts_off_is_given_up(serve, tmp_path):
    def restarts(handler):
        handler.answer(200, Content_Length=len(BYTES))
        handler.body(BYTES[:1000])

    server = serve(restarts)
    assert_fails(server, tmp_path, "ended after 1000 of 300000", left=["set.arff.partial"])
    assert len(server.ranges) == 1 + catalog.FUTILE


def test_a_server_that_brings_a_byte_and_hangs_up_is_given_up(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "ATTEMPTS", 6)
    server = serve(lambda handler: good(handler, stop=handler.begin() + 1))
    assert_fails(server, tmp_path, "go on from byte 6", left=["set.arff.partial"])
    assert len(server.ranges) == 6


@pytest.mark.parametrize("length", [len(BYTES) + 5, len(BYTES) - 5, 10**15])
def test_a_wrong_announced_length_is_refused_at_once(serve, tmp_path, length):
    server = serve(announces(length))
    assert_fails(server, tmp_path, f"must have 300000 bytes.*announces {length}")
    assert len(server.ranges) == 1


def test_a_body_longer_than_announced_is_cut_and_verified(serve, tmp_path):
    get(serve(announces(len(BYTES), BYTES + OTHER)), tmp_path)
    assert_in_place(tmp_path)


@pytest.mark.parametrize("behaviour", [announces(len(BYTES), OTHER), chunked(OTHER)])
def test_wrong_bytes_are_deleted(serve, tmp_path, behaviour):
    received = hashlib.sha256(OTHER).hexdigest()
    assert_fails(serve(behaviour), tmp_path, f"must have the sha256 {SHA}; received {received}")


def test_an_endless_body_is_not_written_beyond_the_files_size(serve, tmp_path):
    have = []
    server = serve(endless)
    with pytest.raises(FetchError, match="must have the sha256"):
        get(server, tmp_path, progress=lambda _, bytes_here: have.append(bytes_here))
    assert max(have) == len(BYTES)
    assert server.sent < 1000 * len(BYTES)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("code", [403, 404, 410])
def test_not_found(serve, tmp_path, code):
    server = serve(status(code))
    assert_fails(server, tmp_path, f"answers HTTP {code}")
    assert len(server.ranges) == 1, "asking again would not help"


@pytest.mark.parametrize("behaviour", [hangs_up, status(500), status(429)])
def test_a_hiccup_is_forgiven(serve, tmp_path, behaviour):
    get(serve(behaviour, good), tmp_path)
    assert_in_place(tmp_path)


def test_silence(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "TIMEOUT", 0.05)
    awake = threading.Event()

    def silent(handler):
        handler.answer(200, Content_Length=len(BYTES))
        awake.wait()

    server = serve(silent)
    try:
        assert_fails(server, tmp_path, "timed out")
    finally:
        awake.set()


def test_nobody_there(serve, tmp_path):
    server = serve(good)
    server.http.server_close()
    assert_fails(server, tmp_path, "no connection.*refused")


def redirect(address):
    return lambda handler: handler.answer(302, Location=address, Content_Length=0)


def test_a_redirect_is_followed_and_what_it_brings_is_verified(serve, tmp_path):
    get(serve(redirect("/elsewhere"), good), tmp_path)
    assert_in_place(tmp_path)
    (tmp_path / "set.arff").unlink()
    wrong = announces(len(BYTES), OTHER)
    assert_fails(serve(redirect("/elsewhere"), wrong), tmp_path, "must have the sha256")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("file:///etc/passwd", "answers HTTP 302"),
        ("/again", "answers HTTP 302"),
        ("http://[::1", "Invalid IPv6"),
        ("ftp://127.0.0.1:1/x", "leads to 'ftp://127.0.0.1:1/x'; only http and https are followed"),
    ],
)
def test_a_redirect_that_leads_nowhere_is_refused(serve, tmp_path, address, words):
    server = serve(redirect(address))
    assert_fails(server, tmp_path, words)
    assert len(server.ranges) < 20


def test_a_redirect_does_not_lead_from_https_to_http():
    request = Request("https://example.org/x")
    follow = catalog._Redirects().redirect_request
    assert follow(request, None, 302, "Found", {}, "https://example.com/y").type == "https"
    with pytest.raises(FetchError, match="only https are followed"):
        follow(request, io.BytesIO(), 302, "Found", {}, "http://example.com/y")


def drips_bytes(handler, give_up):
    """Send two fifths of the file at once, and then a byte at a time for ever."""
    good(handler, stop=120_000)
    while not give_up.wait(0.002):
        handler.body(BYTES[120_000:120_001])


def drips_headers(handler, give_up):
    handler.body(b"HTTP/1.1 200 OK\r\nX: ")
    while not give_up.wait(0.002):
        handler.body(b"X")


def drips_sizes_of_chunks(handler, give_up):
    handler.answer(200, Transfer_Encoding="chunked")
    while not give_up.wait(0.002):
        handler.body(b"0")


@pytest.mark.parametrize("drips", [drips_bytes, drips_headers, drips_sizes_of_chunks])
def test_a_server_that_drips_is_given_up_and_the_next_one_goes_on(
    serve, tmp_path, monkeypatch, drips
):
    monkeypatch.setattr(catalog, "WINDOW", 0.05)
    monkeypatch.setattr(catalog, "SLOWEST", 1e8)
    give_up = threading.Event()
    server = serve(lambda handler: drips(handler, give_up))
    left = ["set.arff.partial"] if drips is drips_bytes else []
    try:
        assert_fails(server, tmp_path, "the server is too slow, it sent [0-9]+ bytes in", left=left)
    finally:
        give_up.set()
    assert len(server.ranges) == 1, "another attempt would be as slow"
    monkeypatch.undo()
    have = (tmp_path / "set.arff.partial").stat().st_size if left else 0
    assert have >= 120_000 or not left
    good_server = serve(good)
    get(good_server, tmp_path)
    assert_in_place(tmp_path)
    assert good_server.ranges[0] == (f"bytes={have}-" if left else None)


def test_a_failure_leaves_the_other_files_alone(serve, tmp_path):
    second = RemoteFile("more.arff", len(OTHER), hashlib.sha256(OTHER).hexdigest())
    server = serve(good, files=(FILE, second))
    assert_fails(server, tmp_path, "more.arff must have the sha256", left=["set.arff"])
    assert_in_place(tmp_path)
    with pytest.raises(FetchError) as caught:
        get(server, tmp_path)
    assert "/set/more.arff into" in str(caught.value)
    assert "/set/set.arff into" not in str(caught.value), "only what is missing is named"


@pytest.mark.parametrize("behaviour", [good, chunked(BYTES)])
def test_a_file_without_a_checksum_is_called_unverified(serve, tmp_path, behaviour):
    server = serve(behaviour, files=(UNKNOWN,))
    (done,) = get(server, tmp_path)
    assert_in_place(tmp_path, name="set.xml")
    assert not done.verified
    assert not get(server, tmp_path)[0].downloaded


@pytest.mark.parametrize("size", [None, len(BYTES)])
def test_a_file_without_a_checksum_is_never_pieced_together(serve, tmp_path, size):
    (tmp_path / "set.xml.partial").write_bytes(OTHER[:10])
    file = RemoteFile("set.xml", size, None)
    server = serve(cut_at(1000), chunked(BYTES[:500], finish=False), good, files=(file,))
    get(server, tmp_path)
    assert_in_place(tmp_path, name="set.xml")
    assert server.ranges == [None, None, None]


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (endless, "does not say how long it is"),
        (announces(10**15), "announces 1000000000000000 bytes"),
        (chunked(BYTES), "has 200000 bytes or more"),
        (chunked(BYTES[:500], finish=False), "broke after 500 bytes"),
    ],
)
def test_a_file_of_unknown_size_has_a_bound(serve, tmp_path, monkeypatch, behaviour, words):
    monkeypatch.setattr(catalog, "LARGEST_UNKNOWN", 200_000)
    server = serve(behaviour, files=(UNKNOWN,))
    with pytest.raises(FetchError, match=words):
        get(server, tmp_path)
    assert not (tmp_path / "set.xml").exists()


def test_two_at_once_do_not_write_into_one_file(serve, tmp_path):
    met, go_on = threading.Event(), threading.Event()

    def slow(handler):
        met.set()
        go_on.wait()
        good(handler)

    server = serve(slow, good)
    first = threading.Thread(target=get, args=(server, tmp_path))
    first.start()
    assert met.wait(60), "the first never asked the server"
    try:
        with pytest.raises(FetchError, match="Another process is writing"):
            get(server, tmp_path)
    finally:
        go_on.set()
        first.join()
    assert_in_place(tmp_path)


def test_bad_arguments(tmp_path):
    with pytest.raises(spen.UnknownNameError, match="Did you mean 'yeast'"):
        catalog.fetch("yaest", tmp_path)
    bad = ("http://[::1", "http://", "http://:80", "http://a:b", "http://a\nb", "http://a b")
    for address in ("file:///etc", "example.org", "", *bad):
        with pytest.raises(spen.InputError, match="must start with http"):
            catalog.fetch("yeast", tmp_path, base_url=address)
    (tmp_path / "a file").touch()
    with pytest.raises(OSError, match="a file"):
        catalog.fetch("yeast", tmp_path / "a file" / "x", base_url="http://localhost:1")
