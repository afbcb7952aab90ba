"""What travels and is kept instead of synthetic pictures in DFFKE: decoders, translated embeddings, logits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.algorithms.dffke.docking import Embeddings
from node.learning.aggregation import State
from node.messaging.wire import Tensors

Logits = NDArray[np.float32]  # (samples, classes)


@dataclass(frozen=True, eq=False)
class Transfer:
    """Synthetic pictures as they travel and are kept: a decoder and embeddings that were translated for it."""

    decoder: State
    embeddings: Embeddings


@dataclass(frozen=True, eq=False)
class Lesson:
    """Synthetic pictures and what their owners' models say of them."""

    transfer: Transfer
    logits: Logits


@dataclass(frozen=True, eq=False)
class Synthetic:
    """Everybody's synthetic pictures of a round, unmade: Dec and {Ẽ_k}."""

    decoder: State
    embeddings: dict[str, Embeddings]

    def of(self, owners: Iterable[str]) -> Transfer:
        """Those of some owners, one after the other."""
        return Transfer(self.decoder, np.concatenate([self.embeddings[owner] for owner in owners]))

    def to_tensors(self) -> State:
        return flat("decoder", self.decoder) | flat("embeddings", self.embeddings)

    @classmethod
    def of_tensors(cls, tensors: Tensors) -> Synthetic:
        return cls(under("decoder", tensors), under("embeddings", tensors))


@dataclass(frozen=True, eq=False)
class Auxiliary:
    """All that the coordinator keeps between rounds: Dec, docking layers by client, and the rounds that came to an
    exchange."""

    decoder: State
    layers: dict[str, State] = field(default_factory=dict)
    past: tuple[int, ...] = ()

    def to_tensors(self) -> State:
        docking = {f"{owner}/{name}": values for owner, layer in self.layers.items() for name, values in layer.items()}
        return flat("decoder", self.decoder) | flat("docking", docking)

    @classmethod
    def of_tensors(cls, tensors: Tensors, past: Sequence[int]) -> Auxiliary:
        docking = under("docking", tensors)
        owners = sorted({name.split("/")[0] for name in docking})
        return cls(under("decoder", tensors), {owner: under(owner, docking) for owner in owners}, tuple(past))


def lesson(synthetic: Synthetic, key: str, teachers: Mapping[str, Tensors]) -> Lesson | None:
    """The synthetic pictures of the teachers who told their logits on them under ``key``; None without any."""
    owners = [each for each in sorted(teachers) if key in teachers[each] and each in synthetic.embeddings]
    if not owners:
        return None
    return Lesson(synthetic.of(owners), np.concatenate([teachers[each][key] for each in owners]))


def flat(prefix: str, tensors: Mapping[str, Any]) -> State:
    """``prefix/name`` for each name."""
    return {f"{prefix}/{name}": values for name, values in tensors.items()}


def under(prefix: str, tensors: Tensors) -> State:
    """What `flat` gave the prefix, without it."""
    start = f"{prefix}/"
    return {name.removeprefix(start): values for name, values in tensors.items() if name.startswith(start)}


def fingerprint(tensors: Tensors) -> str:
    """The same for equal tensors alone: SHA-256."""
    digest = hashlib.sha256()
    for name, values in sorted(tensors.items()):
        digest.update(f"{name}\0{values.dtype.str}{values.shape}".encode())
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()
