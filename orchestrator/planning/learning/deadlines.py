"""The deadline of a node that collects answers, if the scenario does not set one (`gathering.deadline: auto`).

A deadline must never cut off a healthy member, and should end a wait that has become pointless. Dead members are
detected by their silence much sooner. For the node above the clients (the nodes that hold data):

    deadline = 10 s + 4 * (down + up + across) + 4 * (max(c / s, n * c) + max(e / r, m * e))

down, up: the time of one model over the slowest link, latency + jitter + bytes * 8 / rate. up includes the features or
embeddings that some algorithms send with the model. across: the time of the data that a client waits for from another
client, 0 for most algorithms. c: the time of one client's longest round on the reference core by the cost model that
simulations also use (`node.learning.step_seconds`): training, evaluation on its test sets, and one
pass over its samples. s: the speed of the slowest client's hardware. n: the number of clients, since all of them may
have to share one core of this host. e, r, m: the same of edges above the clients, for their work between two rounds,
since other nodes wait for them too.

The factor 4 of links leaves room for TCP's slow start and for losses. That of work leaves room for hosts that are
slower than the reference core, and for what the cost model leaves out.

Of a real link no figure is known when the plan is made: `ON_REAL` is assumed.

A node above that one waits for kappa2 such rounds:

    deadline = 10 s + 4 * (down + up) + kappa2 * deadline below

A `deadline` in the scenario replaces the first one. The deadline above is computed from it in the same way, unless
`cloud_deadline` replaces that too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from netem.profile import LinkProfile
from node.assignment import Timeouts
from node.catalogue.datasets import Shape
from node.catalogue.models import largest
from node.catalogue.sizes import Size
from node.learning.local_training import ClientWork, LocalTraining
from node.learning.step_seconds import StepCost

ALLOWANCE = 10.0
MARGIN = 4.0
EDGE_TESTS = 4  # evaluations of an edge on its test samples in a round, at most (PHE-FL)
ON_REAL = LinkProfile(latency=0.1, rate=5e6)
"""Slower than Wi-Fi that several boards share, and than a mobile network in both directions (see `netem.library`)."""


@dataclass(frozen=True)
class TierNodes:
    """Nodes of one tier: their number, the lowest ``speed``, and the most ``samples`` and ``tests`` of one."""

    count: int
    speed: float
    samples: int = 0
    tests: int = 0

    def longest(self, seconds: float) -> float:
        """The longest time of one of them for work of ``seconds`` on a core that they may all have to share."""
        return max(seconds / self.speed, self.count * seconds)


@dataclass(frozen=True)
class RoundWork:
    """The work of one round: of the ``clients``, which have models of these sizes, and of ``edges`` above them."""

    models: Sequence[Size]
    shape: Shape
    classes: int
    clients: TierNodes
    edges: TierNodes | None = None

    def seconds(self, params: LocalTraining) -> float:
        """How long the clients and then the edges work, at most, with `MARGIN`."""
        longest = max(self._seconds(params, model) for model in self.models)
        return MARGIN * longest

    def _seconds(self, params: LocalTraining, model: Size) -> float:
        cost = StepCost(
            operations=model.operations,
            values=model.values,
            layers=model.layers,
            batch_size=params.batch_size,
        )
        clients = self.clients
        work = ClientWork(
            samples=clients.samples,
            clients=clients.count,
            shape=self.shape,
            classes=self.classes,
            model=model,
        )
        trained = math.ceil(params.longest_training(work))
        tests = _within(clients.tests, params.evaluate_samples)
        training = cost(trained, "train")
        evaluation = cost(clients.samples + tests, "evaluate")
        seconds = clients.longest(training + evaluation)
        if self.edges is None:
            return seconds
        edge_tests = EDGE_TESTS * _within(self.edges.tests, params.evaluate_samples)
        edge_training = cost(params.coordinator_training, "train")
        edge_evaluation = cost(edge_tests, "evaluate")
        return seconds + self.edges.longest(edge_training + edge_evaluation)


def deadlines(
    work: RoundWork,
    params: LocalTraining,
    tiers: Sequence[tuple[str, Sequence[LinkProfile], Sequence[LinkProfile]]],
    given: float | None,
    given_above: float | None = None,
    across: Sequence[LinkProfile] = (),
) -> dict[str, float]:
    """The deadline of each tier that gathers, in whole seconds. ``tiers`` are ordered from the bottom up, each with the
    profiles of its links down and up. ``given`` is the scenario's deadline for the lowest tier, ``given_above`` that
    for the others. ``across``: the links between clients."""
    size = largest(work.models)
    samples = work.clients.samples
    by_tier: dict[str, float] = {}
    below: float | None = None
    for tier, down, up in tiers:
        crossing = transfer(down, size.bytes)
        if below is None:
            configured = given
            features = params.beside_model(samples, size.features)
            between = params.between_clients(samples, work.classes)
            crossing += transfer(up, size.bytes + features)
            if between:
                crossing += transfer(across, between)
            computed = ALLOWANCE + MARGIN * crossing + work.seconds(params)
        else:
            configured = given_above
            kappa2 = getattr(params, "kappa2", 1)
            crossing += transfer(up, size.bytes)
            computed = ALLOWANCE + MARGIN * crossing + kappa2 * below
        if configured is None:
            below = float(math.ceil(computed))
        else:
            below = float(configured)
        by_tier[tier] = below
    return by_tier


def lost_after(links: Iterable[LinkProfile]) -> float:
    """The default of `timeouts.lost_after`: 8 s, or longer where a healthy peer can be silent for longer. Its packets
    may wait behind a full buffer, and once more after a loss, for some round trips."""
    longest = Timeouts.lost_after
    for link in links:
        profile = _assumed(link)
        longest_queue = 0.0
        if profile.rate:
            longest_queue = 8 * (profile.buffer_limit or 0) / profile.rate
        silence = math.ceil(8 * profile.latency + 2 * longest_queue)
        longest = max(longest, silence)
    return float(longest)


def _assumed(profile: LinkProfile) -> LinkProfile:
    """The profile to compute with."""
    if profile.real:
        return ON_REAL
    return profile


def _within(samples: int, limit: int | None) -> int:
    if limit is None:
        return samples
    return min(samples, limit)


def transfer(links: Iterable[LinkProfile], size: int) -> float:
    """The seconds that ``size`` bytes take over the slowest of these links; 0 without links."""
    slowest = 0.0
    for link in links:
        profile = _assumed(link)
        sending = 0.0
        if profile.rate:
            sending = size * 8 / profile.rate
        seconds = profile.latency + profile.jitter + sending
        slowest = max(slowest, seconds)
    return slowest
