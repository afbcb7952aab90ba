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
        embeddings = [self.embeddings[owner] for owner in owners]
        return Transfer(self.decoder, np.concatenate(embeddings))

    def to_tensors(self) -> State:
        return joined(decoder=self.decoder, embeddings=self.embeddings)

    @classmethod
    def of_tensors(cls, tensors: Tensors) -> Synthetic:
        decoder = parted(tensors, "decoder")
        embeddings = parted(tensors, "embeddings")
        return cls(decoder, embeddings)


@dataclass(frozen=True, eq=False)
class Auxiliary:
    """The coordinator's state between rounds: Dec, docking layers by client, and the rounds with an exchange."""

    decoder: State
    layers: dict[str, State] = field(default_factory=dict)
    past: tuple[int, ...] = ()

    def to_tensors(self) -> State:
        docking = joined(**self.layers)
        return joined(decoder=self.decoder, docking=docking)

    @classmethod
    def of_tensors(cls, tensors: Tensors, past: Sequence[int]) -> Auxiliary:
        decoder = parted(tensors, "decoder")
        docking = parted(tensors, "docking")
        layers: dict[str, State] = {}
        owners = {name.split("/")[0] for name in docking}
        for owner in sorted(owners):
            layers[owner] = parted(docking, owner)
        return cls(decoder, layers, tuple(past))


def lesson(synthetic: Synthetic, key: str, teachers: Mapping[str, Tensors]) -> Lesson | None:
    """The synthetic pictures of the teachers that sent logits on them under ``key``. None if there are none."""
    owners = []
    logits = []
    for teacher in sorted(teachers):
        has_logits = key in teachers[teacher]
        if has_logits and teacher in synthetic.embeddings:
            owners.append(teacher)
            logits.append(teachers[teacher][key])
    if not owners:
        return None
    pictures = synthetic.of(owners)
    return Lesson(pictures, np.concatenate(logits))


def fingerprint(tensors: Tensors) -> str:
    """SHA-256 of names, types, shapes and values: equal only for equal tensors."""
    digest = hashlib.sha256()
    for name, values in sorted(tensors.items()):
        form = f"{name}\0{values.dtype.str}{values.shape}"
        digest.update(form.encode())
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()
