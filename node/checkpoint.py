"""What a coordinator keeps on disk to go on after a restart: one file, replaced as a whole, in the codec of messages.

The file holds ``EBCP``, the lengths of header and body (two unsigned 64-bit numbers, big endian), header and body.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node.errors import CheckpointError, WireError
from node.wire import Buffer, Limits, Message, Tensor, decode, encode

_PREFIX = struct.Struct(">4sQQ")
_MAGIC = b"EBCP"
_LIMITS = Limits(body=1 << 40, header=1 << 30, tensors=1 << 20)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state after ``round``."""

    round: int
    tensors: dict[str, Tensor]
    fields: dict[str, Any]


def checkpoint_path(directory: str | Path, node: str) -> Path:
    return Path(directory) / f"{node}.checkpoint"


def packed(node: str, round: int, tensors: Mapping[str, Tensor], fields: Mapping[str, Any]) -> list[Buffer]:
    """What a file holds, in pieces. The tensors are copied."""
    header, *rest = encode(Message("checkpoint", node, round, dict(fields), dict(tensors)), _LIMITS)
    body = rest[0] if rest else b""
    return [_PREFIX.pack(_MAGIC, len(header), len(body)), header, body]


def write(path: Path, pieces: Sequence[Buffer]) -> None:
    """Replace the file at ``path`` in one step (rename(2)): a crash leaves the old one or the new one, never half."""
    temporary = path.with_name(path.name + ".new")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(temporary, "wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    _sync_folder(path.parent)


def load(path: Path) -> Checkpoint | None:
    """Read the file at ``path``; None if there is none, CheckpointError if it is not a checkpoint."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        magic, header_size, body_size = _PREFIX.unpack_from(data)
        if magic != _MAGIC or len(data) != _PREFIX.size + header_size + body_size:
            raise WireError("wrong size or beginning")
        content = memoryview(data)[_PREFIX.size :]
        message = decode([content[:header_size], bytearray(content[header_size:])], _LIMITS)
        if message.round is None:
            raise WireError("no round")
    except (struct.error, WireError) as error:
        raise CheckpointError(f"{path}: not a checkpoint ({error}); delete it to begin at round 1") from None
    return Checkpoint(message.round, message.tensors, message.fields)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable (fsync(2))."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
