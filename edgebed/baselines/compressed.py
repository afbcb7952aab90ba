"""Averaging algorithms with compressed updates: top-k with memory, and QSGD. Each wraps another algorithm.

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
from collections.abc import Collection, Iterable, Iterator, Mapping
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
    parts = [state[name].ravel() for name in trained]
    return np.concatenate(parts)


def added(
    state: Mapping[str, Vector],
    update: Vector,
    trained: Collection[str],
) -> edgebed.State:
    """The state with an update added to its trained values."""
    result = dict(state)
    start = 0
    for name in trained:
        before = state[name]
        end = start + before.size
        change = update[start:end].reshape(before.shape)
        after = before + change
        result[name] = after.astype(before.dtype)
        start = end
    return result


def largest(update: Vector, memory: Vector, kept: float) -> tuple[edgebed.State, Vector]:
    """Places and values of the largest part of u = update + memory, and what is left of u."""
    u = update + memory
    count = int(np.ceil(kept * u.size))
    sizes = np.abs(u)
    descending = np.argsort(-sizes, kind="stable")
    ascending = np.sort(descending[:count])
    places = ascending.astype(np.int32)
    values = u[places]
    u[places] = 0
    return {"places": places, "values": values}, u


def spread(parts: edgebed.State, size: int) -> Vector:
    """The update from which ``largest`` kept these places and values. ValueError if they are none of `size` values."""
    places = parts["places"]
    values = parts["values"]
    one_dimensional = places.ndim == 1
    as_many = places.shape == values.shape
    whole_numbers = places.dtype.kind == "i"
    floats = values.dtype.kind == "f"
    if not (one_dimensional and as_many and whole_numbers and floats):
        raise ValueError("places and values do not fit each other")
    if places.size:
        outside = places.min() < 0 or places.max() >= size
        if outside:
            raise ValueError("a place is not in the model")
    update = np.zeros(size, np.float32)
    update[places] = values
    return update


def quantised(
    update: Vector,
    levels: int,
    bucket: int,
    seed: int,
) -> edgebed.State:
    """‖v‖₂ of each bucket v, and s sgn(v_i) ξ_i of each value."""
    buckets = buckets_of(update.size, bucket)
    padded = np.zeros(buckets * bucket)
    padded[: update.size] = update
    v = padded.reshape(-1, bucket)
    squares = np.sum(v**2, axis=1)
    norms = np.sqrt(squares)
    divisors = np.where(norms, norms, 1)[:, None]
    exact = levels * np.abs(v) / divisors
    low = np.floor(exact)
    random = np.random.default_rng(seed)
    up = random.random(v.shape) < exact - low
    xi = low + up
    steps = np.minimum(xi, levels)
    signed = np.sign(v) * steps
    sent = signed.ravel()[: update.size]
    return {
        "norms": norms.astype(np.float32),
        "levels": sent.astype(integer_type(levels)),
    }


def buckets_of(size: int, bucket: int) -> int:
    """The number of buckets of `size` values; the last one may be partly filled."""
    return -(-size // bucket)


def integer_type(levels: int) -> type[np.signedinteger[Any]]:
    """The smallest type that holds the levels with their signs."""
    if levels <= np.iinfo(np.int8).max:
        return np.int8
    if levels <= np.iinfo(np.int16).max:
        return np.int16
    return np.int32


def restored(
    parts: edgebed.State,
    size: int,
    levels: int,
    bucket: int,
) -> Vector:
    """The update that ``quantised`` wrote. ValueError if it is none of `size` values."""
    norms = parts["norms"]
    signed = parts["levels"]
    buckets = buckets_of(size, bucket)
    as_many_values = signed.shape == (size,)
    as_many_norms = norms.shape == (buckets,)
    whole_numbers = signed.dtype.kind == "i"
    if not (as_many_values and as_many_norms and whole_numbers):
        raise ValueError("norms and levels do not fit the model")
    norm_of_value = np.repeat(norms, bucket)[:size]
    update = signed * (norm_of_value / levels)
    return update.astype(np.float32)


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
            t = more.get("round") or 0
            tensors = await self.compressed(tensors, t)
        await super().send(to, kind, tensors, **more)

    async def compressed(self, tensors: Tensors, t: int) -> Tensors:
        """An update of round t as it is sent. One that is not finite stays: the parent refuses it, and it would stay in
        a memory."""
        trained = self.learner.trained
        before = vector(self.received, trained)
        update = vector(tensors, trained) - before
        if not np.isfinite(update).all():
            return tensors
        others = {}
        for name, values in tensors.items():
            if name not in trained:
                others[name] = values
        parts = await self.compress(update, t)
        return edgebed.joined(compressed=parts, others=others)

    async def publish(
        self,
        to: Peers,
        kind: str,
        tensors: Tensors | None = None,
        **more: Any,
    ) -> None:
        peers = names_of(to)
        if kind == "model" and tensors:
            models = dict.fromkeys(peers, tensors)
            self.published = {**self.published, **models}
        await super().publish(peers, kind, tensors, **more)

    async def publish_each(
        self,
        kind: str,
        tensors: Mapping[str, Tensors | None],
        **more: Any,
    ) -> None:
        if kind == "model":
            models = {peer: model for peer, model in tensors.items() if model}
            self.published = {**self.published, **models}
        await super().publish_each(kind, tensors, **more)

    async def gather(
        self,
        kind: str,
        peers: Iterable[str],
        **more: Any,
    ) -> list[edgebed.Message]:
        messages = await super().gather(kind, peers, **more)
        if kind != "update":
            return messages
        return [self.expanded(message) for message in messages]

    def expanded(self, message: edgebed.Message) -> edgebed.Message:
        """The update as the wrapped algorithm sends it. What cannot be expanded stays, and will not fit the model."""
        if not message.tensors:
            return message
        trained = self.learner.trained
        parts = edgebed.parted(message.tensors, "compressed")
        others = edgebed.parted(message.tensors, "others")
        try:
            w = self.published[message.sender]
            size = sum(w[name].size for name in trained)
            update = self.expand(parts, size)
        except (KeyError, ValueError):
            return message
        tensors = added(w, update, trained) | others
        return replace(message, tensors=tensors)


def names_of(peers: Peers) -> list[str]:
    if isinstance(peers, str):
        return [peers]
    return list(peers or ())


def no_values() -> Vector:
    return np.zeros(1, np.float32)


@dataclass
class Memory:
    """The memory of one child. ``before``: e in the round that was ``answered`` last; ``left``: e after it, if all that
    was sent was counted. ``sent``: what was sent in rounds that were not counted so far, and ``returned``: those
    with values that are in the memory again."""

    before: Vector = field(default_factory=no_values)
    left: Vector = field(default_factory=no_values)
    answered: int = 0
    sent: dict[int, Tensors] = field(default_factory=dict)
    returned: set[int] = field(default_factory=set)

    def of_round(self, t: int, counted: int) -> Vector:
        """e for an answer in round t, if the round ``counted`` is the last one that was counted."""
        if t <= self.answered:
            return self.before
        memory = self.left.copy()
        for round, part in self.sent.items():
            returned = round in self.returned
            if round > counted and not returned:
                memory[part["places"]] += part["values"]
                self.returned.add(round)
            elif round == counted and returned:
                memory[part["places"]] -= part["values"]
        oldest = max(counted, self.answered - LATEST)
        for round in list(self.sent):
            if round <= oldest:
                del self.sent[round]
        self.returned &= self.sent.keys()
        self.before = memory
        self.answered = t
        return memory

    def answer(self, t: int, part: Tensors, left: Vector) -> None:
        """Note what was sent in round t, and what is left."""
        self.sent[t] = part
        self.left = left

    def tensors(self) -> edgebed.State:
        if not self.answered:  # as at the cloud: other roles read its checkpoint as a model
            return {}
        parts: dict[str, Tensors] = {}
        for round, part in self.sent.items():
            parts[f"sent/{round}"] = part
        memory = {"before": self.before, "left": self.left}
        return memory | edgebed.joined(**parts)

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
        sent: dict[int, Tensors] = {}
        for round in facts["sent"]:
            sent[round] = edgebed.parted(tensors, f"sent/{round}")
        return cls(
            before=tensors["before"],
            left=tensors["left"],
            answered=facts["answered"],
            sent=sent,
            returned=set(facts["returned"]),
        )


class TopK(Compressing):
    """``counted``: the round of each child that was counted last. ``own``: tensors and fields of the wrapped role's
    last checkpoint, if it makes any."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.memory = Memory()
        self.counted_last = 0  # of this node, by its parent
        self.counted: dict[str, int] = {}
        self.own: tuple[Tensors, dict[str, Any]] | None = None
        if self.restored is not None:
            self.restore(self.restored)

    def restore(self, kept: Any) -> None:
        """Take this class's part out of a checkpoint. The wrapped role gets the rest, or none if it has made none."""
        fields = dict(kept.fields)
        facts = fields.pop("top-k")
        memory = edgebed.parted(kept.tensors, "top-k")
        self.memory = Memory.kept(memory, facts)
        self.counted = facts["counted"]
        tensors = {}
        for name, values in kept.tensors.items():
            if not name.startswith("top-k/"):
                tensors[name] = values
        if facts["own"]:
            self.own = (tensors, fields)
            self.restored = replace(kept, tensors=tensors, fields=fields)
        else:
            self.own = None
            self.restored = None

    async def checkpoint(self, round: int, tensors: Tensors, **fields: Any) -> None:
        self.own = (tensors, fields)
        await self.keep(round)

    async def keep(self, round: int) -> None:
        """Write the checkpoint of the wrapped role, with this class's part."""
        facts = self.memory.facts()
        facts["counted"] = self.counted
        facts["own"] = self.own is not None
        tensors, fields = self.own or ({}, {})
        parts = {"top-k": self.memory.tensors()}
        memory = edgebed.joined(**parts)
        fields = {**fields, "top-k": facts}
        await super().checkpoint(round, {**tensors, **memory}, **fields)

    async def receive(self, *kinds: str, sender: str | None = None) -> edgebed.Message:
        message = await super().receive(*kinds, sender=sender)
        if message.kind == "model":
            counted = message.fields.get("counted", {})
            self.counted_last = counted.get(self.name, 0)
        return message

    async def publish(
        self,
        to: Peers,
        kind: str,
        tensors: Tensors | None = None,
        **more: Any,
    ) -> None:
        peers = names_of(to)
        counts = self.counts(kind, peers)
        await super().publish(peers, kind, tensors, **more | counts)

    async def publish_each(
        self,
        kind: str,
        tensors: Mapping[str, Tensors | None],
        **more: Any,
    ) -> None:
        counts = self.counts(kind, tensors)
        await super().publish_each(kind, tensors, **more | counts)

    def counts(
        self,
        kind: str,
        to: Collection[str],
    ) -> dict[str, dict[str, int]]:
        """The field of a model that shows the children what was counted."""
        if kind != "model":
            return {}
        counted = {}
        for child in to:
            if child in self.counted:
                counted[child] = self.counted[child]
        return {"counted": counted}

    async def gather(
        self,
        kind: str,
        peers: Iterable[str],
        **more: Any,
    ) -> list[edgebed.Message]:
        messages = await super().gather(kind, peers, **more)
        if kind == "update":
            for message in messages:
                self.counted[message.sender] = edgebed.round_of(message)
        return messages

    async def compress(self, update: Vector, t: int) -> edgebed.State:
        memory = self.memory.of_round(t, self.counted_last)
        levels = math.log2(update.size + 1)
        comparisons = math.ceil(levels)
        work = update.size * comparisons
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
        unsent = share(left, update + memory)
        self.report(round=round, scope="train", unsent=unsent)
        await self.keep(round)
        return dict(part)

    def expand(self, parts: edgebed.State, size: int) -> Vector:
        return spread(parts, size)


def run_round(role: edgebed.Role, t: int) -> int:
    """The run's round of a role's round `t`: below an edge, devices have several in each."""
    within = 1
    if role.tier == "device":
        within = getattr(role.params, "edge_rounds", 1)
    return (t - 1) // int(within) + 1


def share(part: Vector, whole: Vector) -> float:
    """‖part‖ / ‖whole‖, 0 if both are 0."""
    size = float(np.linalg.norm(whole))
    if not size:
        return 0.0
    return float(np.linalg.norm(part)) / size


class QSGD(Compressing):
    async def compress(self, update: Vector, t: int) -> edgebed.State:
        p = self.params
        random = self.learner.random("quantisation", t)
        seed = int(random.integers(2**63))
        work = PASSES * update.size
        parts = await self.compute(
            quantised,
            update,
            p.levels,
            p.bucket,
            seed,
            samples=work,
            mode="other",
        )
        sent = dict(parts)
        error = self.expand(sent, update.size) - update
        rounding = share(error, update)
        round = run_round(self, t)
        self.report(round=round, scope="train", rounding=rounding)
        return sent

    def expand(self, parts: edgebed.State, size: int) -> Vector:
        p = self.params
        return restored(parts, size, p.levels, p.bucket)


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
    name = f"{mixin.__name__}{base.params.__name__}"
    namespace = {"__module__": __name__}
    params = type(name, (parameters, base.params), dict(namespace))
    params = dataclass(frozen=True, kw_only=True)(params)
    globals()[name] = params  # where the simulation's worker processes look for it
    roles = {}
    for tier, role in base.roles.items():
        roles[tier] = type(role.__name__, (mixin, role), dict(namespace))
    algorithm = replace(
        base,
        name=f"{kind}-{base.name}",
        module="",
        params=params,
        summary=f"{base.name} with updates compressed by {kind}",
    )
    return algorithm, roles


def wrapped_bases() -> Iterator[tuple[edgebed.Algorithm, dict[str, type]]]:
    for kind in KINDS:
        for name in BASES:
            yield wrapped(kind, edgebed.algorithm(name))


ROLES: dict[str, dict[str, type]] = {}
_algorithms: list[edgebed.Algorithm] = []
for _algorithm, _roles in wrapped_bases():
    _algorithms.append(_algorithm)
    ROLES[_algorithm.name] = _roles
PLUGIN = edgebed.Plugin(algorithms=_algorithms)
