"""Text files in blocks of whole lines, and errors that say where in the file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from spen.errors import InputError

BLOCK = 1 << 18
"""Bytes that are read and parsed at a time: the arrays they become still fit the cache."""

LONGEST_LINE = 1 << 24
"""Bytes that a line may have. A file of other bytes may have no line end at all."""

UTF8_MARK = b"\xef\xbb\xbf"
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")


def fault(
    path: Path, line: int, what: str, *, character: int | None = None, column: str | None = None
) -> InputError:
    """Return the error for a place in a file; lines and characters count from 1.

    >>> str(fault(Path("a.arff"), 3, "'x' is not a number.", character=7))
    "a.arff, line 3, character 7: 'x' is not a number."
    """
    where = f", character {character}" if character is not None else ""
    where += f", column {column}" if column is not None else ""
    return InputError(f"{path}, line {line}{where}: {what}")


def shown(text: str) -> str:
    """Return text as an error quotes it: short, on one line, without control characters.

    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'"
    """
    return repr(text if len(text) <= 40 else text[:39] + "…")


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading, or say why that cannot be done."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise InputError(f"There is no file {path}. Check the name and the folder.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, not a file. Name a file in it.") from None
    except (OSError, ValueError) as problem:
        raise InputError(f"{path} cannot be read: {problem}.") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InputError(f"{path} is not a regular file; files are read more than once. Save it.")
    return file


def numbered_lines(path: Path, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield (number, line) from the start of a file, the line without its end.

    A mark of UTF-8 at the start is left out.
    """
    file.seek(text_start(path, file))
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise _too_long(path, number)
        yield number, line.rstrip(b"\r\n")


def text_start(path: Path, file: BinaryIO) -> int:
    """Return the offset at which the text begins, after a mark of its encoding."""
    file.seek(0)
    first = file.read(len(UTF8_MARK))
    if first[:2] in _WIDE_MARKS:
        raise fault(path, 1, "this is UTF-16 text. Save the file as UTF-8.")
    return len(UTF8_MARK) if first == UTF8_MARK else 0


def blocks(path: Path, offset: int = 0, line: int = 1) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first line, whole lines) from a byte offset to the file's end.

    A mark of UTF-8 at the start of the file is left out.
    """
    with open_file(path) as file:
        file.seek(offset or text_start(path, file))
        pending: list[bytes] = []
        waiting = 0
        while piece := file.read(BLOCK):
            cut = piece.rfind(b"\n") + 1
            if not cut:
                pending.append(piece)
                waiting += len(piece)
                if waiting > LONGEST_LINE:
                    raise _too_long(path, line)
                continue
            block = b"".join((*pending, piece[:cut]))
            pending, waiting = [piece[cut:]], len(piece) - cut
            yield line, block
            line += block.count(b"\n")
        if last := b"".join(pending):
            yield line, last + b"\n"


def decode(path: Path, line: int, raw: bytes, encoding: str) -> str:
    """Return a line as text, or say which character is not of the encoding."""
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as problem:
        good = raw[: problem.start].decode(encoding)
        raise fault(
            path,
            line,
            f"the byte 0x{raw[problem.start]:02x} is not {encoding.upper()}. "
            "Save the file as UTF-8.",
            character=len(good) + 1,
        ) from None


def encoding_of(header: bytes) -> str:
    """Return the encoding of a file by its header: UTF-8, or else Latin-1, as old files have.

    >>> encoding_of("Größe".encode("utf-8")), encoding_of("Größe".encode("latin-1"))
    ('utf-8', 'latin-1')
    """
    try:
        header.decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def _too_long(path: Path, line: int) -> InputError:
    return fault(
        path, line, f"the line is longer than {LONGEST_LINE >> 20} MiB. Is this a file of text?"
    )
