"""Selection of the clients of a round: a function of the seed, the round, who is available, and the clients' history.

Oort. F. Lai, X. Zhu, H. V. Madhyastha, M. Chowdhury, "Oort: Efficient Federated Learning via Guided Participant
Selection", OSDI 2021, Algorithm 1, and equation 1 of section 4.

B_i samples of client i, D(i) seconds of its last round, L(i) the round of its last answer, R this round, K clients to
select, T preferred duration, ε share of exploration, E clients that were selected before.

    U(i)     |B_i| √(1/|B_i| Σ loss²)                                       statistical utility
    Util(i)  U(i) + √(0.1 log R / L(i)),  times (T / D(i))^α if T < D(i)    of clients in E
    exploit  (1 − ε) K of E with Util above c of the (1 − ε) K-th, in proportion to Util
    explore  ε K of the others, in proportion to their speed
    pacer    T ← T + Δ if ΣU(R−2W : R−W) > ΣU(R−W : R)

ε decays by a factor in each round down to a least value, and utilities above a quantile are cut, both as in the paper.

Departures: the root mean square of a client's losses is replaced by its mean loss over the steps of its training, which
is what a client reports. The pacer looks once in W rounds, as the authors' code does; the first T is Δ, and if no Δ is
given, both are the median duration of the first round that has answers. A client that is selected and does not answer
counts as selected: D(i) is the time that it had, and its U(i) stays, 0 if it never answered. Then its L(i) is the round
for which it was selected. The authors' code scales utilities to 0..1 before it adds the temporal uncertainty; the paper
and this module do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.assignment import derive_seed
from node.parameters import Parameters, number, whole

Clients = NDArray[np.int64]  # their numbers
Flags = NDArray[np.bool_]
Numbers = NDArray[np.float64]


@dataclass(eq=False)
class ClientHistory:
    """What the cloud has seen of the ``clients``, as one array for each fact.

    ``looks`` counts the times that it looked which clients are available, ``there`` those at which each client was.
    ``asked``: rounds for which each was selected. ``latest``: the last of them. ``utility`` and ``duration``: of its
    last answer. ``gained``: the utilities of all answers, by round. ``first``: durations in the first round with
    answers.
    """

    clients: int
    looks: int = 0
    gained: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.there = np.zeros(self.clients, np.int32)
        self.asked = np.zeros(self.clients, np.int32)
        self.latest = np.zeros(self.clients, np.int32)
        self.utility = np.zeros(self.clients)
        self.duration = np.zeros(self.clients)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The facts about each client, by name; to be changed in place."""
        names = ("there", "asked", "latest", "utility", "duration")
        return {name: getattr(self, name) for name in names}

    def look(self, there: Flags) -> None:
        """Note which clients are available at a selection."""
        self.looks += 1
        self.there += there

    def end_round(
        self,
        round: int,
        outcomes: list[tuple[int, float, float | None]],
    ) -> None:
        """Note the outcome of each client of a round: its number, its seconds, and its utility (None: no answer)."""
        for client, seconds, utility in outcomes:
            self.asked[client] += 1
            self.latest[client] = round
            self.duration[client] = seconds
            if utility is not None and math.isfinite(utility):
                self.utility[client] = utility
        durations = []
        gained = []
        for _, seconds, utility in outcomes:
            if utility is None:
                continue
            durations.append(seconds)
            if math.isfinite(utility):
                gained.append(utility)
        self.gained.append(sum(gained))
        if durations and not self.first:
            self.first = durations


@dataclass(frozen=True, kw_only=True)
class UniformSelection(Parameters):
    """Every available client has the same chance."""


@dataclass(frozen=True, kw_only=True)
class LeastAvailable(Parameters):
    """Clients come first that were available least often, of the times when the cloud looked."""


@dataclass(frozen=True, kw_only=True)
class Oort(Parameters):
    """Oort (F. Lai et al., OSDI 2021).

    exploration: ε, share of new clients in the first round
    exploration_decay: exploration is multiplied by this in each round
    exploration_least: minimum of exploration
    alpha: exponent of the penalty of slow clients
    cutoff: c, share of the utility of the last client that fits; clients of at least that utility are drawn from
    clip: quantile of utilities above which they are clipped
    window: W, rounds between two adjustments of the preferred round time T
    pace: Δ, seconds by which T is raised; default: the median time of the first answers
    most: rounds after which a client is not selected again; default: no limit
    """

    exploration: float = number(0.9, low=0, high=1)
    exploration_decay: float = number(0.98, low=0, above=True, high=1)
    exploration_least: float = number(0.2, low=0, high=1)
    alpha: float = number(2.0, low=0)
    cutoff: float = number(0.95, low=0, high=1)
    clip: float = number(0.95, low=0, above=True, high=1)
    window: int = whole(20, low=1)
    pace: float | None = number(None, low=0, above=True, none=True)
    most: int | None = whole(None, low=1, none=True)


@dataclass(frozen=True)
class Question:
    """``count`` clients are to be selected for ``round``, of those that are available, ``there`` (N,). ``speed`` (N,)
    is that of their hardware. ``random`` is seeded by the scenario and the round."""

    round: int
    count: int
    there: Flags
    speed: Numbers
    seen: ClientHistory
    random: np.random.Generator


def uniform(_: UniformSelection, question: Question) -> Clients:
    """A draw without replacement."""
    candidates = np.flatnonzero(question.there)
    return question.random.permutation(candidates)[: question.count]


def least_available(_: LeastAvailable, question: Question) -> Clients:
    """Clients with the least share of times when they were available; equal shares in random order."""
    available = np.flatnonzero(question.there)
    candidates = question.random.permutation(available)
    times_available = question.seen.there[candidates]
    least_first = np.argsort(times_available, kind="stable")
    return candidates[least_first][: question.count]


def oort(p: Oort, question: Question) -> Clients:
    """Oort's Algorithm 1, see the module."""
    seen = question.seen
    round = question.round
    count = question.count
    if p.most is None:
        allowed = question.there
    else:
        allowed = question.there & (seen.asked < p.most)
    if int(allowed.sum()) < count:  # too few are left of those that were not selected too often
        allowed = question.there
    was_asked = seen.asked > 0
    known = np.flatnonzero(allowed & was_asked)
    others = np.flatnonzero(allowed & ~was_asked)
    epsilon = exploration(p, round)
    wanted = math.floor(epsilon * count + 1e-9)
    least = count - len(known)
    wanted = max(wanted, least)
    exploring = min(len(others), wanted)
    exploiting = min(len(known), count - exploring)
    chosen = [np.empty(0, np.int64)]
    if exploiting:
        util = utilities(p, seen, known, round)
        last = np.sort(util)[-exploiting]
        admitted = util >= min(p.cutoff * last, last)  # a loss, and so a utility, may be negative
        candidates = known[admitted]
        exploited = drawn(question.random, candidates, util[admitted], exploiting)
        chosen.append(exploited)
    if exploring:
        speeds = question.speed[others]
        explored = drawn(question.random, others, speeds, exploring)
        chosen.append(explored)
    return np.concatenate(chosen)


def exploration(p: Oort, round: int) -> float:
    """ε of a round, which counts from 1."""
    least = min(p.exploration, p.exploration_least)
    decay = p.exploration_decay ** (round - 1)
    decayed = p.exploration * decay
    return max(least, decayed)


def utilities(
    p: Oort,
    seen: ClientHistory,
    clients: Clients,
    round: int,
) -> Numbers:
    """Util(i) of clients that were selected before."""
    util = seen.utility[clients]
    most = np.quantile(util, p.clip)
    util = np.minimum(util, most)
    latest = seen.latest[clients]
    last_round = np.maximum(latest, 1)
    log_of_round = math.log(max(round, 1))
    util = util + np.sqrt(0.1 * log_of_round / last_round)
    preferred = preferred_duration(p, seen)
    durations = seen.duration[clients]
    late = durations > preferred
    penalty = (preferred / durations[late]) ** p.alpha
    util[late] *= penalty
    return util


def preferred_duration(p: Oort, seen: ClientHistory) -> float:
    """T after all rounds so far; infinity while nothing is known."""
    if p.pace is not None:
        step = p.pace
    elif seen.first:
        step = float(np.median(seen.first))
    else:
        step = math.inf
    duration = step
    rounds = len(seen.gained)
    first = 2 * p.window
    for end in range(first, rounds + 1, p.window):
        middle = end - p.window
        start = middle - p.window
        before = seen.gained[start:middle]
        after = seen.gained[middle:end]
        if sum(before) > sum(after):
            duration += step
    return duration


def drawn(
    random: np.random.Generator,
    clients: Clients,
    weights: Numbers,
    count: int,
) -> Clients:
    """Draw clients one after the other without replacement, each in proportion to its weight. Clients without weight
    come last. By exponential keys: P. Efraimidis, P. Spirakis, Information Processing Letters 97 (2006)."""
    waiting = random.exponential(size=len(clients))
    has_weight = weights > 0
    divisors = np.where(has_weight, weights, 1.0)
    last = 1e300 * (1 + waiting)
    keys = np.where(has_weight, waiting / divisors, last)
    order = np.argsort(keys, kind="stable")
    return clients[order[:count]]


Select = Callable[[Any, Question], Clients]


@dataclass(frozen=True)
class SelectionKind:
    """A way to select clients: its parameters, and the function of them and a question."""

    name: str
    params: type[Parameters]
    select: Select
    summary: str


_KINDS = (
    SelectionKind(
        name="uniform",
        params=UniformSelection,
        select=uniform,
        summary="every available client has the same chance",
    ),
    SelectionKind(
        name="least-available",
        params=LeastAvailable,
        select=least_available,
        summary="clients that were seldom available come first",
    ),
    SelectionKind(
        name="oort",
        params=Oort,
        select=oort,
        summary="clients of high utility that are fast enough (Oort)",
    ),
)
SELECTIONS: dict[str, SelectionKind] = {kind.name: kind for kind in _KINDS}


def kind_of(params: Parameters) -> SelectionKind:
    """The way to select clients that has these parameters."""
    for kind in SELECTIONS.values():
        if kind.params is type(params):
            return kind
    raise LookupError(type(params))


def select(
    params: Parameters,
    seed: int,
    round: int,
    count: int,
    there: Flags,
    speed: Numbers,
    seen: ClientHistory,
    draw: int = 0,
) -> list[int]:
    """The clients of a round, ascending: ``count``, or all ``there``. ``draw`` counts its selections from 0."""
    purpose = ["selection", str(round)]
    if draw > 0:
        purpose.append(str(draw))
    own_seed = derive_seed(seed, *purpose)
    random = np.random.default_rng(own_seed)
    available = int(there.sum())
    question = Question(
        round=round,
        count=min(count, available),
        there=there,
        speed=speed,
        seen=seen,
        random=random,
    )
    chosen = kind_of(params).select(params, question)
    return sorted(chosen.tolist())
