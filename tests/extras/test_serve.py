"""examples/serve.py, behind a real socket, with good and bad clients (the extra "serve")."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from clients import BAD, a_model, flood, good, serving

pytest.importorskip("litserve")

CLIENTS, LINUX = 64, sys.platform == "linux"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    clf = a_model()
    path = tmp_path_factory.mktemp("serve") / "model.spen"
    clf.save(path)
    with serving(path, "--seconds", "1") as server:
        yield server, clf


def test_answers_are_those_of_the_classifier(served):
    server, clf = served
    assert all(good(server, clf, number) for number in range(5))


def test_questions_are_those_of_the_classifier(served):
    server, clf = served
    row, known = [0.5] * 64, {"block0.0": 1}
    status, answer = server.ask({"rows": [row], "known": known, "questions": 3})
    [wanted] = clf.next_question([row], known=known, k=3)
    assert status == 200
    assert [q["label"] for q in answer["questions"][0]] == [q.label for q in wanted]
    assert [q["gain"] for q in answer["questions"][0]] == pytest.approx([q.gain for q in wanted])


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_request_is_told_what_is_wrong(served, kind):
    server, _ = served
    send, allowed = BAD[kind]
    assert send(server) in allowed


def test_bad_clients_neither_harm_good_ones_nor_fill_the_memory(served):
    server, clf = served
    flood(server, clf, 2 * len(BAD), CLIENTS)
    before = server.memory() if LINUX else 0
    answers, right = flood(server, clf, 8 * len(BAD), CLIENTS)
    assert right == 8 * len(BAD)
    assert all(status in BAD[kind][1] for kind, status in answers)
    assert not LINUX or server.memory() < before + 64 * 2**20


def test_a_message_names_the_row_and_what_it_holds(served):
    server, _ = served
    status, answer = server.ask({"rows": [{}, {"0": "one"}]})
    assert (status, answer["error"]) == (
        422,
        "rows, row 1: 'one' is no number of a usual size.",
    )


@pytest.mark.skipif(not LINUX, reason="/proc tells which processes there are")
def test_a_server_that_is_told_to_end_leaves_no_process_behind(served, tmp_path):
    path = tmp_path / "model.spen"
    served[1].save(path)
    with serving(path) as server:
        group = [p for p in processes() if os.getpgid(p) == server.process]
        assert len(group) > 1
        os.kill(server.process, signal.SIGTERM)
        end = time.monotonic() + 60
        while any(map(is_alive, group)) and time.monotonic() < end:
            time.sleep(0.1)
        assert not any(map(is_alive, group))


def processes():
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]


def is_alive(number):
    """Whether a process runs; one that is dead and not yet waited for does not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
