"""The images of a model inversion attack: the clients' images, and the guesses from the embeddings they shared."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from orchestrator import text
from orchestrator.results.evaluation.inversion import GUESSES, inversions
from orchestrator.results.evaluation.inversion import inversion as means
from orchestrator.results.history import History

_COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # channels -> PNG colour type: grey, grey with alpha, RGB, RGB with alpha


def inversion(history: History) -> dict[str, Any] | None:
    """A row of scores and rows of images for each client; None without an attack."""
    overall = means(history)
    if overall is None:
        return None
    clients = []
    for node, event in inversions(history).items():
        clients.append(_client(node, event.round, event.data))
    return {
        "guesses": list(GUESSES.values()),
        "clients": clients,
        "mean": {"samples": overall["samples"], "figures": _figures(overall)},
    }


def _client(
    node: str,
    round: int | None,
    data: dict[str, Any],
) -> dict[str, Any]:
    labels = {"private": "private", **GUESSES}
    pictures = []
    for kind, label in labels.items():
        urls = [_data_url(picture, data["shape"]) for picture in data["pictures"][kind]]
        pictures.append((label, urls))
    return {
        "node": node,
        "round": round,
        "samples": data["samples"],
        "figures": _figures(data["scores"]),
        "chance": text.percent(1 / data["samples"]),
        "pictures": pictures,
    }


Scores = Mapping[str, Mapping[str, float]]
"""The scores of each kind of guess."""


def _figures(scores: Scores) -> list[tuple[str, str, str]]:
    """The mean squared error, peak signal-to-noise ratio and recognised share of each kind of guess."""
    rows = []
    for kind in GUESSES:
        mse = scores[kind]["mse"]
        recognised = text.percent(scores[kind]["recognised"])
        rows.append((f"{mse:.4f}", f"{psnr(mse):.1f} dB", recognised))
    return rows


def psnr(mse: float) -> float:
    """The peak signal-to-noise ratio in dB of images with values from 0 to 1."""
    if mse:
        return -10 * math.log10(mse)
    return math.inf


def _data_url(picture: str, shape: list[int]) -> str:
    """``picture`` is base64 with the channels first."""
    values = base64.b64decode(picture)
    encoded = base64.b64encode(png(values, *shape))
    return "data:image/png;base64," + encoded.decode()


def png(values: bytes, channels: int, height: int, width: int) -> bytes:
    """Encode bytes (channels, height, width) as a PNG file (www.w3.org/TR/png), every line with filter 0."""
    planes = np.frombuffer(values, np.uint8).reshape(channels, height, width)
    lines = planes.transpose(1, 2, 0).reshape(height, -1)
    filtered = np.pad(lines, ((0, 0), (1, 0)))  # each line starts with the number of its filter
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    body = zlib.compress(filtered.tobytes())
    chunks = [_chunk(b"IHDR", header), _chunk(b"IDAT", body), _chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    length = struct.pack(">I", len(data))
    checksum = struct.pack(">I", zlib.crc32(kind + data))
    return length + kind + data + checksum
