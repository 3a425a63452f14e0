"""Clients of examples/serve.py, good and bad ones, on a real server on loopback.

    python tests/extras/clients.py [REQUESTS] [CLIENTS]

starts a server with a small model, sends it so many bad requests and as many good ones from so many
clients at a time, and prints what was answered, and the memory of the server before and after.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import spen

SERVER = Path(__file__).parents[2] / "examples/serve.py"
CUT = "cut"
"""In place of a status: the client has left, and waits for no answer."""


class Server(NamedTuple):
    """A server that runs."""

    port: int
    process: int

    def ask(self, body: Any, kind: str = "application/json") -> tuple[int, Any]:
        """Send JSON, or bytes as they are; return the status and the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request("POST", "/predict", raw, {"Content-Type": kind})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    @contextmanager
    def socket(self) -> Iterator[socket.socket]:
        """Open a bare connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as bare:
            yield bare

    def memory(self) -> int:
        """Return the bytes that its processes hold, its children too; Linux alone tells."""
        total, waiting = 0, [self.process]
        while waiting:
            number = waiting.pop()
            folder = Path("/proc") / str(number)
            waiting += map(int, (folder / f"task/{number}/children").read_text().split())
            pages = int((folder / "statm").read_text().split()[1])
            total += pages * os.sysconf("SC_PAGE_SIZE")
        return total


def a_model() -> Any:
    """Return a small classifier with named labels."""
    data = spen.exclusive_blocks(n_train=300, n_test=2)
    clf = spen.SPENClassifier(hidden=(8,), epochs=10, random_state=0)
    return clf.fit(data.train.X, data.train.Y, label_names=data.label_names)


@contextmanager
def serving(model: Path, *options: str) -> Iterator[Server]:
    """Run the server on a model file until the end of the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(SERVER), str(model), "--port", str(port), *options]
    with tempfile.TemporaryFile() as log:
        # In a session of its own: what it leaves behind is ended with it.
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            _wait_for(port, process)
            yield Server(port, process.pid)
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _wait_for(port: int, process: subprocess.Popen[bytes], seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.2)
    raise RuntimeError("The server did not start.")


def _head(length: int, kind: str = "application/json") -> bytes:
    lines = ["POST /predict HTTP/1.1", "Host: x", f"Content-Type: {kind}"]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


def _status(bare: socket.socket) -> int:
    start = bare.recv(64)
    return int(start.split()[1]) if start else 0


def cut_in_the_body(server: Server) -> str:
    with server.socket() as bare:
        bare.sendall(_head(1000) + b'{"rows": [[')
    return CUT


def cut_while_waiting(server: Server) -> str:
    body = b'{"rows": [{}], "questions": 10}'
    with server.socket() as bare:
        bare.sendall(_head(len(body)) + body)
    return CUT


def a_giant_body(server: Server) -> int:
    with server.socket() as bare:
        bare.sendall(_head(2**40))
        try:
            for _ in range(64):
                bare.sendall(b"[" * 2**16)
        except OSError:
            pass  # the server has hung up: what it said before may still be there
        try:
            return _status(bare) or 413
        except OSError:
            return 413  # hung up on so hard that the answer was lost


def a_slow_writer(server: Server) -> int:
    with server.socket() as bare:
        bare.sendall(_head(1000))
        for _ in range(100):
            try:
                bare.sendall(b" ")
            except OSError:
                break
            bare.settimeout(0.1)
            try:
                return _status(bare)
            except TimeoutError:
                bare.settimeout(60)
        return 408


def no_http(server: Server) -> int:
    with server.socket() as bare:
        bare.sendall(b"\x16\x03\x01\x00 no http at all\r\n\r\n")
        return _status(bare)


def sent(body: Any, kind: str = "application/json") -> Callable[[Server], int]:
    return lambda server: server.ask(body, kind)[0]


BAD: dict[str, tuple[Callable[[Server], int | str], set[int | str]]] = {
    "no JSON": (sent(b"{rows: 1"), {400}),
    "no UTF-8": (sent(b"\xff\xfe\x00"), {400}),
    "nothing": (sent(b""), {400}),
    "not a number": (sent(b'{"rows": [[NaN]]}'), {400}),
    "very deep": (sent(b"[" * 100_000), {400}),
    "a very long whole number": (sent(b'{"rows": [{"0": ' + b"9" * 5000 + b"}]}"), {400}),
    "a list": (sent([1, 2]), {422}),
    "an unknown field": (sent({"rows": [{}], "colour": 1}), {422}),
    "no rows": (sent({"rows": []}), {422}),
    "too many rows": (sent({"rows": [{}] * 10_000}), {422}),
    "too few columns": (sent({"rows": [[1.0]]}), {422}),
    "an unknown column": (sent({"rows": [{"64": 1}]}), {422}),
    "words for numbers": (sent({"rows": [{"0": "one"}]}), {422}),
    "true for a number": (sent({"rows": [{"0": True}]}), {422}),
    "a number too large": (sent({"rows": [{"0": 1e39}]}), {422}),
    "an unknown label": (sent({"rows": [{}], "known": {"sun": 1}}), {422}),
    "half a label": (sent({"rows": [{}], "known": {"block0.0": 0.5}}), {422}),
    "known of other rows": (sent({"rows": [{}], "known": [{}, {}]}), {422}),
    "too many questions": (sent({"rows": [{}], "questions": 10**9}), {422}),
    "a form": (sent(b"rows=1", "application/x-www-form-urlencoded"), {415}),
    "a file": (sent(b"--b\r\n\r\n--b--", "multipart/form-data; boundary=b"), {415}),
    "a giant body": (a_giant_body, {413}),
    "cut in the body": (cut_in_the_body, {CUT}),
    "cut while waiting": (cut_while_waiting, {CUT}),
    "a slow writer": (a_slow_writer, {408}),
    "no HTTP": (no_http, {400}),
}
"""Bad requests, and the statuses that each may be answered with."""


def good(server: Server, clf: Any, number: int) -> bool:
    """Ask about some rows, with some labels known, and say whether the answer is right."""
    draws = np.random.default_rng(number)
    count = int(draws.integers(1, 4))
    X = draws.random((count, 64)).round(3)
    names = clf.label_names_.tolist()
    known = [{names[i]: int(draws.integers(2)) for i in draws.integers(0, 16, 2)} for _ in X]
    asked = {"rows": X.tolist(), "known": known, "probabilities": True}
    status, answer = server.ask(asked)
    soft, labels = clf.predict_both(X.astype(np.float32), known=known)
    found = np.array([[row[name] for name in names] for row in answer["probabilities"]])
    wanted = [[names[i] for i in row.nonzero()[0]] for row in labels]
    return status == 200 and answer["labels"] == wanted and np.allclose(found, soft, atol=1e-5)


def flood(server: Server, clf: Any, requests: int, clients: int) -> tuple[Counter[Any], int]:
    """Send bad and good requests in turns from many clients; return the answers to the bad ones by
    kind and status, and how many good ones were answered rightly."""
    kinds = list(BAD)

    def one(number: int) -> tuple[str, Any, bool]:
        kind = kinds[number % len(kinds)]
        return kind, BAD[kind][0](server), good(server, clf, number)

    with ThreadPoolExecutor(clients) as pool:
        done = list(pool.map(one, range(requests)))
    return Counter((kind, status) for kind, status, _ in done), sum(right for *_, right in done)


def main() -> None:
    requests, clients = (int(each) for each in (*sys.argv[1:], 10_000, 64)[:2])
    clf = a_model()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.spen"
        clf.save(path)
        with serving(path, "--seconds", "1") as server:
            flood(server, clf, 200, clients)  # what is allocated once is so now
            before = server.memory()
            answers, right = flood(server, clf, requests, clients)
            after = server.memory()
    for (kind, status), count in sorted(answers.items(), key=str):
        print(f"{count:6,}  {status}  {kind}")
    errors = sum(n for (_, status), n in answers.items() if status != CUT and status >= 500)
    print(
        f"{requests:,} bad requests, {errors} answered 5xx; of as many good ones {right:,} "
        f"answered rightly; memory {before / 2**20:.0f} MiB before, {after / 2**20:.0f} MiB after."
    )


if __name__ == "__main__":
    main()
