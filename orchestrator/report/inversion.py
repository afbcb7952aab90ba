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
    clients = [_client(node, event.round, event.data) for node, event in inversions(history).items()]
    return {
        "guesses": list(GUESSES.values()),
        "clients": clients,
        "mean": {"samples": overall["samples"], "figures": _figures(overall)},
    }


def _client(node: str, round: int | None, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "node": node,
        "round": round,
        "samples": data["samples"],
        "figures": _figures(data["scores"]),
        "chance": text.percent(1 / data["samples"]),
        "pictures": [
            (label, [_data_url(picture, data["shape"]) for picture in data["pictures"][kind]])
            for kind, label in {"private": "private", **GUESSES}.items()
        ],
    }


def _figures(scores: Mapping[str, Mapping[str, float]]) -> list[tuple[str, str, str]]:
    """The mean squared error, peak signal-to-noise ratio and recognised share of each kind of guess."""
    of_each = [scores[kind] for kind in GUESSES]
    return [(f"{of['mse']:.4f}", f"{psnr(of['mse']):.1f} dB", text.percent(of["recognised"])) for of in of_each]


def psnr(mse: float) -> float:
    """The peak signal-to-noise ratio in dB of images with values from 0 to 1."""
    if mse:
        return -10 * math.log10(mse)
    return math.inf


def _data_url(picture: str, shape: list[int]) -> str:
    """``picture`` is base64 with the channels first."""
    return "data:image/png;base64," + base64.b64encode(png(base64.b64decode(picture), *shape)).decode()


def png(values: bytes, channels: int, height: int, width: int) -> bytes:
    """Encode bytes (channels, height, width) as a PNG file (www.w3.org/TR/png), every line with filter 0."""
    pixels = np.frombuffer(values, np.uint8).reshape(channels, height, width).transpose(1, 2, 0)
    lines = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0)))  # each begins with the number of its filter
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    body = zlib.compress(lines.tobytes())
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
