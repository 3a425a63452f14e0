"""A picture of pixels as a data address, without an imaging package."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np


def png_address(pixels: np.ndarray) -> str:
    """Return an (h, w, 4) array of red, green, blue and opacity as the address of a PNG.

    >>> png_address(np.zeros((1, 1, 4), dtype=np.uint8))[:30]
    'data:image/png;base64,iVBORw0K'
    """
    height, width, _ = pixels.shape
    # Each line begins with the number of its filter; 0 is none.
    lines = np.concatenate(
        [np.zeros((height, 1), np.uint8), pixels.astype(np.uint8).reshape(height, -1)], axis=1
    )
    content = b"\x89PNG\r\n\x1a\n"
    content += _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0))
    content += _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)) + _chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(content).decode('ascii')}"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
