"""Checkpoints: the state from which a coordinator continues after a restart. One file, replaced as a whole.

The file holds ``EBCP``, the version of this format (32 bits), and the lengths of header and body (64 bits each), all
unsigned and big endian. Then follow the SHA-256 digest of everything else in the file, and header and body in the codec
of messages. Version 0 had no digest.

A file is loaded only if it is complete and unchanged. A file with tensors that are not finite is not loaded: the
training had diverged when it was written, and would not recover from it.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node.errors import CheckpointError, WireError
from node.files import read_untrusted
from node.messaging.wire import Buffer, Message, MessageLimits, Tensor, decode, encode

_PREFIX = struct.Struct(">4sIQQ")
_START = _PREFIX.size + hashlib.sha256().digest_size  # offset of the header
_MAGIC = b"EBCP"
_VERSION = 1
_LIMITS = MessageLimits(
    body=1 << 40,
    header=1 << 30,
    tensors=1 << 16,
    name=1 << 10,
    containers=1 << 18,
)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state after ``round``."""

    round: int
    tensors: dict[str, Tensor]
    fields: dict[str, Any]


def checkpoint_path(directory: str | Path, node: str) -> Path:
    return Path(directory) / f"{node}.checkpoint"


def packed(
    node: str,
    round: int,
    tensors: Mapping[str, Tensor],
    fields: Mapping[str, Any],
) -> list[Buffer]:
    """The header of a checkpoint file, and the parts of its body. See `encode` for which tensors are copied."""
    message = Message("checkpoint", node, round, dict(fields), dict(tensors))
    header, body = encode(message, _LIMITS)
    return [header, *body]


def write(path: Path, pieces: Sequence[Buffer]) -> None:
    """Replace the file at ``path`` atomically (rename(2)): a crash leaves the old file or the new one.

    ``pieces`` are the result of `packed`.
    """
    header = pieces[0]
    body_size = sum(map(len, pieces[1:]))
    prefix = _PREFIX.pack(_MAGIC, _VERSION, len(header), body_size)
    digest = _digest(prefix, *pieces)
    temporary = path.with_name(path.name + ".new")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(temporary, "wb") as file:
        file.writelines((prefix, digest, *pieces))
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    _sync_folder(path.parent)


def load(path: Path, last_round: int | None = None) -> Checkpoint | None:
    """Read the file at ``path``. None if it does not exist.

    CheckpointError if the file is not a checkpoint, is damaged, is of another version, holds a round after the run's
    ``last_round``, or holds tensors that are not finite.
    """
    try:
        content = read_untrusted(path, _LIMITS.body)
        data = memoryview(content)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); delete it to start at round 1") from None
    try:
        message = _read(data)
        if message.round is None:
            raise WireError("no round")
        if last_round is not None and message.round > last_round:
            raise WireError(f"round {message.round} of a run of {last_round}")
        name = message.not_finite
        if name is not None:
            raise WireError(f"tensor {name!r} is not finite: the training had diverged by round {message.round}")
    except (struct.error, WireError) as error:
        raise CheckpointError(f"{path}: not a checkpoint ({error}); delete it to start at round 1") from None
    return Checkpoint(message.round, message.tensors, message.fields)


def _read(data: memoryview) -> Message:
    prefix = data[: _PREFIX.size]
    magic, version, header_size, body_size = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise WireError("wrong first bytes")
    if version != _VERSION:
        raise WireError(f"of version {version}; this program reads version {_VERSION}")
    body_start = _START + header_size
    size = body_start + body_size
    if len(data) != size:
        raise WireError(f"{len(data)} bytes; {size} were written")
    digest = data[_PREFIX.size : _START]
    header = data[_START:body_start]
    body = data[body_start:]
    if _digest(prefix, header, body) != digest:
        raise WireError("damaged: its content is not what was written")
    return decode([header, bytearray(body)], _LIMITS)  # the copy aligns the tensors


def _digest(*pieces: Buffer) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def _sync_folder(folder: Path) -> None:
    """Make the rename durable (fsync(2))."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
