"""Averaging algorithms whose updates travel compressed: top-k with memory, and QSGD. Each wraps another algorithm.

S. U. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with Memory", NeurIPS 2018, arXiv 1809.07599, Algorithm 1;
D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and
Encoding", NeurIPS 2017, arXiv 1610.02132, equation 4.

w model that a node received, w_k model that it answers with, u update, e memory, s levels, d values of a bucket.

    top-k   u ← w_k − w + e;  send the share `kept` of u that is largest, g;  e ← u − g, or u if g was not counted
    QSGD    u ← w_k − w;  of each bucket v of u send ‖v‖₂ and Q_s(v_i) = ‖v‖₂ sgn(v_i) ξ_i,  where, with
            ℓ ≤ s |v_i| / ‖v‖₂ < ℓ + 1,  ξ_i = (ℓ + 1) / s with probability s |v_i| / ‖v‖₂ − ℓ, else ℓ / s
    above   w_k ← w + what came, then as the wrapped algorithm

`kept` 1 is the wrapped algorithm, up to rounding, and so is QSGD with as many levels as 32 bits hold.

An algorithm can be wrapped if a node answers each message `model` of its parent by an `update` of the same names. In a
hierarchy edges compress their updates too. ``wrapped`` makes more such algorithms.

Departures: models are compared after local training, where the papers compress gradients. Levels travel as whole
numbers of 8, 16 or 32 bits, and places as 32 bits, without Elias' coding. Batch normalisation's statistics and counters
travel as they are. A late update that is kept is added to the newest model.

The paper's workers lose no update. Here a parent's model says which round of each child was counted last. What was sent
in a round that was not counted returns to the memory; if it counts later after all, it is taken out again. The memory
is in a child's checkpoint, with that from before the round: a child that gets the model of a round again repeats its
answer. The rounds that were counted are in the parent's checkpoint.

Children report what compression leaves out: `unsent`, ‖u − g‖ / ‖u‖ of top-k, and `rounding`, ‖Q(u) − u‖ / ‖u‖ of QSGD.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import edgebed

Vector = NDArray[Any]
Tensors = Mapping[str, Vector]
Peers = str | Iterable[str] | None
PASSES = 6  # of `quantised` over an update, as measured, for the clock of a simulation
LATEST = 8  # rounds after which an update that was not counted will not be
BASES = ("fedavg", "fedprox", "fednova", "hierfavg")


@dataclass(frozen=True, kw_only=True)
class TopKParameters(edgebed.Parameters):
    """kept: the share of an update's values that is sent."""

    kept: float = edgebed.number(0.01, low=0, above=True, high=1)


@dataclass(frozen=True, kw_only=True)
class QSGDParameters(edgebed.Parameters):
    """levels s: up to 127 travel as 8 bits; bucket d: values that share a norm."""

    levels: int = edgebed.whole(127, low=1)
    bucket: int = edgebed.whole(512, low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.levels > np.iinfo(np.int32).max:
            raise ValueError(f"levels: {self.levels} do not fit into 32 bits")


def vector(state: Mapping[str, Vector], trained: Collection[str]) -> Vector:
    """The trained values of a state, one after the other."""
    return np.concatenate([state[name].ravel() for name in trained])


def added(
    state: Mapping[str, Vector],
    update: Vector,
    trained: Collection[str],
) -> edgebed.State:
    """The state with an update added to its trained values."""
    found = dict(state)
    start = 0
    for name in trained:
        old = state[name]
        found[name] = (old + update[start : start + old.size].reshape(old.shape)).astype(old.dtype)
        start += old.size
    return found


def largest(update: Vector, memory: Vector, kept: float) -> tuple[edgebed.State, Vector]:
    """Places and values of the largest part of u = update + memory, and what is left of u."""
    u = update + memory
    count = int(np.ceil(kept * u.size))
    places = np.sort(np.argsort(-np.abs(u), kind="stable")[:count]).astype(np.int32)
    values = u[places]
    u[places] = 0
    return {"places": places, "values": values}, u


def spread(parts: edgebed.State, size: int) -> Vector:
    """The update of which ``largest`` kept these places and values. ValueError if they are none of `size` values."""
    places = parts["places"]
    values = parts["values"]
    if places.ndim != 1 or places.shape != values.shape or places.dtype.kind != "i" or values.dtype.kind != "f":
        raise ValueError("places and values do not fit each other")
    if places.size and not (places.min() >= 0 and places.max() < size):
        raise ValueError("a place is not in the model")
    found = np.zeros(size, np.float32)
    found[places] = values
    return found


def quantised(
    update: Vector,
    levels: int,
    bucket: int,
    seed: int,
) -> edgebed.State:
    """‖v‖₂ of each bucket v, and s sgn(v_i) ξ_i of each value."""
    padded = np.zeros(-(-update.size // bucket) * bucket)
    padded[: update.size] = update
    v = padded.reshape(-1, bucket)
    norms = np.sqrt(np.sum(v**2, axis=1))
    exact = levels * np.abs(v) / np.where(norms, norms, 1)[:, None]
    low = np.floor(exact)
    xi = low + (np.random.default_rng(seed).random(v.shape) < exact - low)
    width = next(each for each in (np.int8, np.int16, np.int32) if levels <= np.iinfo(each).max)
    signed = (np.sign(v) * np.minimum(xi, levels)).ravel()[: update.size]
    return {"norms": norms.astype(np.float32), "levels": signed.astype(width)}


def restored(
    parts: edgebed.State,
    size: int,
    levels: int,
    bucket: int,
) -> Vector:
    """The update that ``quantised`` wrote. ValueError if it is none of `size` values."""
    norms = parts["norms"]
    signed = parts["levels"]
    if signed.shape != (size,) or norms.shape != (-(-size // bucket),) or signed.dtype.kind != "i":
        raise ValueError("norms and levels do not fit the model")
    return (signed * (np.repeat(norms, bucket)[:size] / levels)).astype(np.float32)


class Compressing(edgebed.Role):
    """Wraps a role: what it sends to its parent as `update` travels compressed, and what it gathers is expanded."""

    received: edgebed.State  # the parent's last model
    published: Mapping[str, Tensors] = {}  # the last model of each child

    async def compress(self, update: Vector, t: int) -> edgebed.State:
        """The tensors that stand for an update."""
        raise NotImplementedError

    def expand(self, parts: edgebed.State, size: int) -> Vector:
        """The update of `size` values that these tensors stand for. ValueError or KeyError if they do not."""
        raise NotImplementedError

    async def receive(self, *kinds: str, sender: str | None = None) -> edgebed.Message:
        message = await super().receive(*kinds, sender=sender)
        if message.kind == "model":
            self.received = message.tensors
        return message

    async def send(
        self,
        to: Peers,
        kind: str,
        tensors: Tensors | None = None,
        **more: Any,
    ) -> None:
        if kind == "update" and tensors:
            trained = self.learner.trained
            update = vector(tensors, trained) - vector(self.received, trained)
            others = {name: each for name, each in tensors.items() if name not in trained}
            if np.isfinite(update).all():  # any other is refused by the parent, and would stay in a memory
                tensors = edgebed.joined(compressed=await self.compress(update, more.get("round") or 0), others=others)
        await super().send(to, kind, tensors, **more)

    async def publish(
        self,
        to: Peers,
        kind: str,
        tensors: Tensors | None = None,
        **more: Any,
    ) -> None:
        if isinstance(to, str):
            to = [to]
        else:
            to = list(to or ())
        if kind == "model" and tensors:
            self.published = {**self.published, **dict.fromkeys(to, tensors)}
        await super().publish(to, kind, tensors, **more)

    async def publish_each(
        self,
        kind: str,
        tensors: Mapping[str, Tensors | None],
        **more: Any,
    ) -> None:
        if kind == "model":
            self.published = {**self.published, **{peer: own for peer, own in tensors.items() if own}}
        await super().publish_each(kind, tensors, **more)

    async def gather(
        self,
        kind: str,
        peers: Iterable[str],
        **more: Any,
    ) -> list[edgebed.Message]:
        messages = await super().gather(kind, peers, **more)
        return [self.expanded(each) if kind == "update" and each.tensors else each for each in messages]

    def expanded(self, message: edgebed.Message) -> edgebed.Message:
        """The update as the wrapped algorithm sends it. What cannot be expanded stays, and will not fit the model."""
        trained = self.learner.trained
        parts, others = (edgebed.parted(message.tensors, part) for part in ("compressed", "others"))
        try:
            w = self.published[message.sender]
            update = self.expand(parts, sum(w[name].size for name in trained))
        except (KeyError, ValueError):
            return message
        return replace(message, tensors=added(w, update, trained) | others)


@dataclass
class Memory:
    """The memory of one child. ``before``: e in the round that was ``answered`` last; ``left``: e after it, if all that
    was sent was counted. ``sent``: what was sent in rounds that were not counted so far, and ``returned``: those whose
    values are in the memory again."""

    before: Vector = field(default_factory=lambda: np.zeros(1, np.float32))
    left: Vector = field(default_factory=lambda: np.zeros(1, np.float32))
    answered: int = 0
    sent: dict[int, Tensors] = field(default_factory=dict)
    returned: set[int] = field(default_factory=set)

    def of_round(self, t: int, counted: int) -> Vector:
        """e for an answer in round t, if the round ``counted`` is the last one that was counted."""
        if t <= self.answered:
            return self.before
        memory = self.left.copy()
        for round, part in self.sent.items():
            if round > counted and round not in self.returned:
                memory[part["places"]] += part["values"]
                self.returned.add(round)
            elif round == counted and round in self.returned:
                memory[part["places"]] -= part["values"]
        oldest = max(counted, self.answered - LATEST)
        self.sent = {round: part for round, part in self.sent.items() if round > oldest}
        self.returned &= self.sent.keys()
        self.before = memory
        self.answered = t
        return memory

    def answer(self, t: int, part: Tensors, left: Vector) -> None:
        """Note what was sent in round t, and what is left."""
        self.sent[t] = part
        self.left = left

    def tensors(self) -> edgebed.State:
        if not self.answered:  # as at the cloud, whose checkpoint others read as a model
            return {}
        parts: dict[str, Tensors] = {f"sent/{round}": part for round, part in self.sent.items()}
        return {"before": self.before, "left": self.left} | edgebed.joined(**parts)

    def facts(self) -> dict[str, Any]:
        return {
            "answered": self.answered,
            "sent": sorted(self.sent),
            "returned": sorted(self.returned),
        }

    @classmethod
    def kept(cls, tensors: edgebed.State, facts: Mapping[str, Any]) -> Memory:
        """The memory that `tensors` and `facts` describe."""
        if not facts["answered"]:
            return cls()
        sent: dict[int, Tensors] = {round: edgebed.parted(tensors, f"sent/{round}") for round in facts["sent"]}
        return cls(tensors["before"], tensors["left"], facts["answered"], sent, set(facts["returned"]))


class TopK(Compressing):
    """``counted``: the round of each child that was counted last. ``own``: tensors and fields of the wrapped role's
    last checkpoint, if it makes any."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.memory = Memory()
        self.counted_last = 0  # of this node, by its parent
        self.counted: dict[str, int] = {}
        self.own: tuple[Tensors, dict[str, Any]] | None = None
        if self.restored is not None:
            self.restore(self.restored)

    def restore(self, kept: Any) -> None:
        """Take this class's part out of a checkpoint. The wrapped role gets the rest, or none if it has made none."""
        fields = dict(kept.fields)
        mine = fields.pop("top-k")
        self.memory = Memory.kept(edgebed.parted(kept.tensors, "top-k"), mine)
        self.counted = mine["counted"]
        tensors = {name: each for name, each in kept.tensors.items() if not name.startswith("top-k/")}
        if mine["own"]:
            self.own = (tensors, fields)
        else:
            self.own = None
        if mine["own"]:
            self.restored = replace(kept, tensors=tensors, fields=fields)
        else:
            self.restored = None

    async def checkpoint(self, round: int, tensors: Tensors, **fields: Any) -> None:
        self.own = (tensors, fields)
        await self.keep(round)

    async def keep(self, round: int) -> None:
        """Write the checkpoint of the wrapped role, with this class's part."""
        facts = self.memory.facts() | {"counted": self.counted, "own": self.own is not None}
        tensors, fields = self.own or ({}, {})
        mine = edgebed.joined(**{"top-k": self.memory.tensors()})
        await super().checkpoint(round, {**tensors, **mine}, **fields, **{"top-k": facts})

    async def receive(self, *kinds: str, sender: str | None = None) -> edgebed.Message:
        message = await super().receive(*kinds, sender=sender)
        if message.kind == "model":
            self.counted_last = message.fields.get("counted", {}).get(self.name, 0)
        return message

    async def publish(
        self,
        to: Peers,
        kind: str,
        tensors: Tensors | None = None,
        **more: Any,
    ) -> None:
        if isinstance(to, str):
            to = [to]
        else:
            to = list(to or ())
        await super().publish(to, kind, tensors, **more | self.counts(kind, to))

    async def publish_each(
        self,
        kind: str,
        tensors: Mapping[str, Tensors | None],
        **more: Any,
    ) -> None:
        await super().publish_each(kind, tensors, **more | self.counts(kind, tensors))

    def counts(
        self,
        kind: str,
        to: Collection[str],
    ) -> dict[str, dict[str, int]]:
        """The field of a model by which children learn what was counted."""
        if kind != "model":
            return {}
        return {"counted": {child: self.counted[child] for child in to if child in self.counted}}

    async def gather(
        self,
        kind: str,
        peers: Iterable[str],
        **more: Any,
    ) -> list[edgebed.Message]:
        messages = await super().gather(kind, peers, **more)
        if kind == "update":
            self.counted |= {each.sender: edgebed.round_of(each) for each in messages}
        return messages

    async def compress(self, update: Vector, t: int) -> edgebed.State:
        memory = self.memory.of_round(t, self.counted_last)
        work = update.size * math.ceil(math.log2(update.size + 1))
        part, left = await self.compute(
            largest,
            update,
            memory,
            self.params.kept,
            samples=work,
            mode="other",
        )
        self.memory.answer(t, part, left)
        round = run_round(self, t)
        self.report(round=round, scope="train", unsent=share(left, update + memory))
        await self.keep(round)
        return dict(part)

    def expand(self, parts: edgebed.State, size: int) -> Vector:
        return spread(parts, size)


def run_round(role: edgebed.Role, t: int) -> int:
    """The run's round of a role's round `t`: below an edge, devices have several in each."""
    if role.tier == "device" and hasattr(role.params, "edge_rounds"):
        within = role.params.edge_rounds
    else:
        within = 1
    return (t - 1) // int(within) + 1


def share(part: Vector, whole: Vector) -> float:
    """‖part‖ / ‖whole‖, 0 if both are 0."""
    size = float(np.linalg.norm(whole))
    if size:
        return float(np.linalg.norm(part)) / size
    return 0.0


class QSGD(Compressing):
    async def compress(self, update: Vector, t: int) -> edgebed.State:
        p = self.params
        seed = int(self.learner.random("quantisation", t).integers(2**63))
        work = PASSES * update.size
        sent = dict(
            await self.compute(
                quantised,
                update,
                p.levels,
                p.bucket,
                seed,
                samples=work,
                mode="other",
            )
        )
        rounding = share(self.expand(sent, update.size) - update, update)
        self.report(round=run_round(self, t), scope="train", rounding=rounding)
        return sent

    def expand(self, parts: edgebed.State, size: int) -> Vector:
        return restored(parts, size, self.params.levels, self.params.bucket)


KINDS: dict[str, tuple[type[Compressing], type[edgebed.Parameters]]] = {
    "top-k": (TopK, TopKParameters),
    "qsgd": (QSGD, QSGDParameters),
}


def wrapped(
    kind: str,
    base: edgebed.Algorithm,
) -> tuple[edgebed.Algorithm, dict[str, type]]:
    """The algorithm `top-k-NAME` or `qsgd-NAME`, and its roles."""
    mixin, parameters = KINDS[kind]
    params = type(f"{mixin.__name__}{base.params.__name__}", (parameters, base.params), {"__module__": __name__})
    params = dataclass(frozen=True, kw_only=True)(params)
    globals()[params.__name__] = params  # where the simulation's worker processes look for it
    roles = {tier: type(role.__name__, (mixin, role), {"__module__": __name__}) for tier, role in base.roles.items()}
    summary = f"{base.name} with updates compressed by {kind}"
    return replace(
        base,
        name=f"{kind}-{base.name}",
        module="",
        params=params,
        summary=summary,
    ), roles


_ALGORITHMS = [wrapped(kind, edgebed.algorithm(name)) for kind in KINDS for name in BASES]
ROLES = {algorithm.name: roles for algorithm, roles in _ALGORITHMS}
PLUGIN = edgebed.Plugin(algorithms=[algorithm for algorithm, _ in _ALGORITHMS])
