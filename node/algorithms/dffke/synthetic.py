"""The data that DFFKE sends and keeps instead of synthetic pictures: decoders, translated embeddings, logits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from node.algorithms.common import joined, parted
from node.algorithms.dffke.docking import Embeddings
from node.learning.aggregation import State
from node.messaging.wire import Tensors

Logits = NDArray[np.float32]  # (samples, classes)


@dataclass(frozen=True, eq=False)
class Transfer:
    """Synthetic pictures as sent and kept: a decoder, and embeddings that were translated for it."""

    decoder: State
    embeddings: Embeddings


@dataclass(frozen=True, eq=False)
class Lesson:
    """Synthetic pictures, and the logits of their owners' models on them."""

    transfer: Transfer
    logits: Logits


@dataclass(frozen=True, eq=False)
class Synthetic:
    """The synthetic pictures of all clients in a round, not yet decoded: Dec and {Ẽ_k}."""

    decoder: State
    embeddings: dict[str, Embeddings]

    def of(self, owners: Iterable[str]) -> Transfer:
        """The pictures of some owners, one owner after the other."""
        return Transfer(self.decoder, np.concatenate([self.embeddings[owner] for owner in owners]))

    def to_tensors(self) -> State:
        return joined(decoder=self.decoder, embeddings=self.embeddings)

    @classmethod
    def of_tensors(cls, tensors: Tensors) -> Synthetic:
        return cls(parted(tensors, "decoder"), parted(tensors, "embeddings"))


@dataclass(frozen=True, eq=False)
class Auxiliary:
    """The coordinator's state between rounds: Dec, docking layers by client, and the rounds with an exchange."""

    decoder: State
    layers: dict[str, State] = field(default_factory=dict)
    past: tuple[int, ...] = ()

    def to_tensors(self) -> State:
        return joined(decoder=self.decoder, docking=joined(**self.layers))

    @classmethod
    def of_tensors(cls, tensors: Tensors, past: Sequence[int]) -> Auxiliary:
        docking = parted(tensors, "docking")
        owners = sorted({name.split("/")[0] for name in docking})
        return cls(parted(tensors, "decoder"), {owner: parted(docking, owner) for owner in owners}, tuple(past))


def lesson(synthetic: Synthetic, key: str, teachers: Mapping[str, Tensors]) -> Lesson | None:
    """The synthetic pictures of the teachers that sent logits on them under ``key``. None if there are none."""
    owners = [each for each in sorted(teachers) if key in teachers[each] and each in synthetic.embeddings]
    if not owners:
        return None
    return Lesson(synthetic.of(owners), np.concatenate([teachers[each][key] for each in owners]))


def fingerprint(tensors: Tensors) -> str:
    """SHA-256 of names, types, shapes and values: equal only for equal tensors."""
    digest = hashlib.sha256()
    for name, values in sorted(tensors.items()):
        digest.update(f"{name}\0{values.dtype.str}{values.shape}".encode())
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()
