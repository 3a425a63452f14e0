"""Serve a fitted classifier over HTTP, with LitServe.

Install it with: pip install 'spen[serve]'
Run it with: python examples/serve.py model.spen --port 8000
Ask it with: curl localhost:8000/predict -H 'Content-Type: application/json' -d '{"rows": [...]}'

docs/serving.md says what a request may hold and what comes back. Every request is checked in full
before it joins others in a batch, so that a bad one gets an answer of its own and harms nobody's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import litserve  # pyright: ignore[reportMissingImports]
import numpy as np
from scipy import sparse

import spen

JSON_TYPE = "application/json"

LARGEST = float(np.finfo(np.float32).max)
"""Numbers beyond it are none to a model."""


class BadRequestError(Exception):
    """What is wrong with a request, with the HTTP status that says so."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """What a request may ask for.

    Attributes:
        rows: how many at most.
        body: bytes of the whole request.
        seconds: in which all of it has to arrive.
        questions: for each row, at most.
    """

    rows: int = 256
    body: int = 2**20
    seconds: float = 10.0
    questions: int = 10


@dataclass(frozen=True)
class Asked:
    """A request that has been checked.

    Attributes:
        rows: numbers (n, d), dense or sparse, or a table as a dict of columns.
        count: n.
        known: (n, L) of 1, 0 and nan; None where nothing is known.
        probabilities: whether they are wanted.
        questions: how many labels to ask about, for each row.
    """

    rows: Any
    count: int
    known: np.ndarray | None
    probabilities: bool
    questions: int


class Reader:
    """Turns the JSON of a request into ``Asked``, or says what is wrong with it."""

    FIELDS = ("rows", "known", "probabilities", "questions")

    def __init__(self, classifier: Any, limits: Limits) -> None:
        self.limits = limits
        self.encoder = classifier.encoder_
        self.labels = {str(name): i for i, name in enumerate(classifier.label_names_)}
        names = classifier.feature_names_
        self.width = classifier.n_features_in_
        self.columns = {str(name): i for i, name in enumerate(names or range(self.width))}
        if self.encoder is not None:
            self.columns = {column.name: i for i, column in enumerate(self.encoder.columns_)}

    def read(self, body: bytes) -> Asked:
        try:
            asked = json.loads(body, parse_constant=_refuse)
        except (ValueError, RecursionError) as problem:
            raise BadRequestError(400, f"The body is no JSON: {str(problem)[:200]}.") from None
        if not isinstance(asked, dict):
            raise BadRequestError(422, 'The body must be an object such as {"rows": [...]}.')
        if unknown := [name for name in asked if name not in self.FIELDS]:
            fields = ", ".join(self.FIELDS)
            raise BadRequestError(
                422, f"There is no field {unknown[0][:50]!r}; fields are {fields}."
            )
        rows = asked.get("rows")
        if not isinstance(rows, list) or not 0 < len(rows) <= self.limits.rows:
            raise BadRequestError(422, f"rows must be a list of 1 to {self.limits.rows} rows.")
        probabilities, questions = asked.get("probabilities", False), asked.get("questions", 0)
        if not isinstance(probabilities, bool):
            raise BadRequestError(422, "probabilities must be true or false.")
        most = self.limits.questions
        if type(questions) is not int or not 0 <= questions <= most:
            raise BadRequestError(422, f"questions must be a whole number from 0 to {most}.")
        known = self._known(asked.get("known"), len(rows))
        return Asked(self._rows(rows), len(rows), known, probabilities, questions)

    def _known(self, known: Any, rows: int) -> np.ndarray | None:
        if known is None:
            return None
        each = [known] * rows if isinstance(known, dict) else known
        if not isinstance(each, list) or len(each) != rows:
            raise BadRequestError(
                422, f"known must be an object for all rows, or a list of {rows}, one for each."
            )
        told = np.full((rows, len(self.labels)), np.nan, np.float32)
        for number, row in enumerate(each):
            if not isinstance(row, dict):
                raise BadRequestError(422, f"known, row {number}: must be an object of labels.")
            for name, value in row.items():
                if name not in self.labels:
                    raise BadRequestError(422, f"known, row {number}: no label {name[:50]!r}.")
                if value not in (0, 1):
                    raise BadRequestError(
                        422, f"known, row {number}, {name[:50]!r}: must be 1 or 0."
                    )
                told[number, self.labels[name]] = value
        return told

    def _rows(self, rows: list[Any]) -> Any:
        if self.encoder is not None:
            return self._table(rows)
        indices: list[int] = []
        values: list[float] = []
        ends = [0]
        for number, row in enumerate(rows):
            if isinstance(row, dict):
                for name in row:
                    self._check_column(name, number)
                indices += [self.columns[name] for name in row]
                cells: Sequence[Any] = list(row.values())
            elif isinstance(row, list) and len(row) == self.width:
                indices += range(self.width)
                cells = row
            else:
                raise BadRequestError(
                    422,
                    f"rows, row {number}: must be a list of {self.width} numbers, or an object "
                    "from names of columns to numbers.",
                )
            values += [_number(cell, number) for cell in cells]
            ends.append(len(indices))
        shape = (len(rows), self.width)
        return sparse.csr_array((np.asarray(values, np.float32), indices, ends), shape=shape)

    def _table(self, rows: list[Any]) -> dict[str, list[Any]]:
        for number, row in enumerate(rows):
            if not isinstance(row, dict):
                raise BadRequestError(422, f"rows, row {number}: must be an object of columns.")
            for name, cell in row.items():
                self._check_column(name, number)
                if not (cell is None or isinstance(cell, str)):
                    _number(cell, number)
        table = {name: [row.get(name) for row in rows] for name in self.columns}
        try:
            self.encoder.transform(table)
        except ValueError as problem:
            raise BadRequestError(422, str(problem)) from None
        return table

    def _check_column(self, name: str, number: int) -> None:
        if name not in self.columns:
            raise BadRequestError(422, f"rows, row {number}: no column {name[:50]!r}.")


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _number(cell: Any, row: int) -> float:
    if type(cell) not in (int, float) or not abs(cell) <= LARGEST:
        raise BadRequestError(
            422, f"rows, row {row}: {str(cell)[:50]!r} is no number of a usual size."
        )
    return cell


class Gate:
    """Lets whole requests in that ``Reader`` can read, and answers all others itself (ASGI)."""

    def __init__(self, app: Any, reader: Reader) -> None:
        self.app = app
        self.reader = reader

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != "/predict":
            await self.app(scope, receive, send)
            return
        try:
            kind = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
            if kind.split(";")[0].strip().lower() != JSON_TYPE:
                raise BadRequestError(415, f"The content type must be {JSON_TYPE}.")
            async with asyncio.timeout(self.reader.limits.seconds):
                body = await self._body(receive)
            self.reader.read(body)
        except TimeoutError:
            seconds = self.reader.limits.seconds
            await _answer(send, 408, f"The request took longer than {seconds:g} seconds.")
        except ConnectionResetError:
            return
        except BadRequestError as problem:
            await _answer(send, problem.status, str(problem))
        else:
            whole = [{"type": "http.request", "body": body, "more_body": False}]
            await self.app(scope, lambda: _next(whole, receive), send)

    async def _body(self, receive: Any) -> bytes:
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            if size > self.reader.limits.body:
                raise BadRequestError(
                    413, f"The body has more than {self.reader.limits.body:,} bytes."
                )
        return b"".join(parts)


async def _next(whole: list[Any], receive: Any) -> Any:
    return whole.pop() if whole else await receive()


async def _answer(send: Any, status: int, problem: str) -> None:
    body = json.dumps({"error": problem}).encode()
    # What has not been read of a body would be taken for the next request.
    headers = [(b"content-type", JSON_TYPE.encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class SPENServer(litserve.LitAPI):
    """Predicts the rows of all requests of a batch together."""

    def __init__(self, path: str, limits: Limits, **settings: Any) -> None:
        super().__init__(**settings)
        self.path, self.limits = path, limits

    def setup(self, device: str) -> None:
        self.classifier = spen.load(self.path, device=device)
        self.reader = Reader(self.classifier, self.limits)
        self.names = [str(name) for name in self.classifier.label_names_]

    # LitServe goes by the type that is named here: none means JSON, as it came.
    def decode_request(self, request, **_: Any) -> Asked:
        return self.reader.read(json.dumps(request).encode())

    def batch(self, inputs: Sequence[Asked]) -> Sequence[Asked]:
        return inputs

    def unbatch(self, output: Any) -> Any:
        return output

    def predict(self, x: Sequence[Asked] | Asked, **kwargs: Any) -> Any:
        if isinstance(x, Asked):  # with batches of one LitServe leaves the list out
            return self.predict([x])[0]
        rows = _together([asked.rows for asked in x])
        known = [
            np.full((asked.count, len(self.names)), np.nan) if asked.known is None else asked.known
            for asked in x
        ]
        told = np.concatenate(known)
        told = None if np.isnan(told).all() else told
        soft, labels = self.classifier.predict_both(rows, known=told)
        ends = np.cumsum([asked.count for asked in x])
        parts = zip(x, np.split(soft, ends), np.split(labels, ends), strict=False)
        return [self._answer(asked, p, on) for asked, p, on in parts]

    def _answer(self, asked: Asked, soft: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "labels": [[self.names[i] for i in row.nonzero()[0]] for row in labels]
        }
        if asked.probabilities:
            answer["probabilities"] = [
                dict(zip(self.names, map(float, row), strict=True)) for row in soft
            ]
        if asked.questions:
            every = self.classifier.next_question(asked.rows, known=asked.known, k=asked.questions)
            answer["questions"] = [
                [{"label": str(q.label), "probability": q.probability, "gain": q.gain} for q in row]
                for row in every
            ]
        return answer


def _together(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], dict):
        return {name: [cell for part in parts for cell in part[name]] for name in parts[0]}
    return sparse.csr_array(sparse.vstack(parts))


def main() -> None:
    """Read the command line, and serve until it is interrupted."""
    parser = argparse.ArgumentParser(description="Serve a fitted classifier over HTTP.")
    parser.add_argument("model", type=Path, help="a file that clf.save or spen fit wrote")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--batch", type=int, default=32, help="requests that are put together")
    parser.add_argument("--wait", type=float, default=0.005, help="seconds to wait for others")
    parser.add_argument("--rows", type=int, default=Limits.rows, help="of a request, at most")
    parser.add_argument("--body", type=int, default=Limits.body, help="bytes of a request, at most")
    parser.add_argument("--seconds", type=float, default=Limits.seconds, help="for it to arrive")
    given = parser.parse_args()
    if not math.isfinite(given.seconds) or given.seconds <= 0:
        parser.error("--seconds must be above zero")
    limits = Limits(given.rows, given.body, given.seconds)
    api = SPENServer(str(given.model), limits, max_batch_size=given.batch, batch_timeout=given.wait)
    # Read here too: the process that takes requests has to know names of columns and labels.
    reader = Reader(spen.load(str(given.model)), limits)
    server = litserve.LitServer(
        api, accelerator=given.device, devices=1, middlewares=[(Gate, {"reader": reader})]
    )
    # Told to end, it ends as by Ctrl-C: LitServe then ends its workers too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server.run(host=given.host, port=given.port, generate_client_file=False, log_level="warning")


if __name__ == "__main__":
    main()
