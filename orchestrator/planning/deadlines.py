"""The deadline of a node that collects answers, if the scenario does not set one (`gathering.deadline: auto`).

A deadline must never cut off a healthy member, and should end a wait that has become pointless. Dead members are
detected by their silence much sooner. For the node above the clients (the nodes that hold data):

    deadline = 10 s + 4 * (down + up + across) + 2 * max(c / s, n * c)

down, up: the time of one model over the slowest link, latency + jitter + bytes * 8 / rate. up includes the features or
embeddings that some algorithms send with the model. across: the time of the data that a client waits for from another
client, 0 for most algorithms. c: the CPU time of one client's longest training on a host core. s: the speed of the
slowest client's hardware. n: the number of clients, since all of them may have to share one core of this host.
The factor 4 leaves room for TCP's slow start and for losses. c is 20 ns per parameter and sample, more than the
catalogue's models take: about 1.4 ns for the small cnn (26 thousand parameters), 15 ns for ResNet-18, whose
convolutions use each parameter many times.

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
from node.learning.local_training import LocalTraining

SECONDS_PER_PARAMETER_AND_SAMPLE = 20e-9
ALLOWANCE = 10.0
MARGIN = 4.0
ON_REAL = LinkProfile(latency=0.1, rate=5e6)
"""Slower than Wi-Fi that several boards share, and than a mobile network in both directions (see `netem.library`)."""


@dataclass(frozen=True)
class RoundWork:
    """The work of the clients in one round. ``samples`` is the size of the largest shard, ``speed`` that of the slowest
    client."""

    parameters: int
    model_bytes: int
    features: int
    classes: int
    clients: int
    samples: int
    speed: float

    def training(self, params: LocalTraining) -> float:
        """An upper estimate, in seconds, of the slowest client's local training."""
        steps = getattr(params, "kappa1", None) or params.steps
        samples = steps * params.batch_size if steps is not None else params.most_epochs * self.samples
        cost = SECONDS_PER_PARAMETER_AND_SAMPLE * self.parameters * samples
        return 2 * max(cost / self.speed, self.clients * cost)


def deadlines(
    work: RoundWork,
    params: LocalTraining,
    tiers: Sequence[tuple[str, Sequence[LinkProfile], Sequence[LinkProfile]]],
    given: float | None,
    given_above: float | None = None,
    across: Sequence[LinkProfile] = (),
) -> dict[str, float]:
    """The deadline of each tier that gathers, in whole seconds.

    ``tiers`` are ordered from the bottom up, each with the profiles of its links down and up. ``given`` is the
    scenario's deadline for the lowest tier, ``given_above`` that for the others. ``across``: the links between clients.
    """
    model = work.model_bytes
    result: dict[str, float] = {}
    below: float | None = None
    for tier, down, up in tiers:
        if below is None:
            features = params.beside_model(work.samples, work.features)
            between = params.between_clients(work.samples, work.classes)
            crossing = (
                transfer(down, model) + transfer(up, model + features) + transfer(across if between else (), between)
            )
            made = ALLOWANCE + MARGIN * crossing + work.training(params)
            wait = math.ceil(made) if given is None else given
        else:
            crossing = transfer(down, model) + transfer(up, model)
            made = ALLOWANCE + MARGIN * crossing + getattr(params, "kappa2", 1) * below
            wait = math.ceil(made) if given_above is None else given_above
        result[tier] = below = float(wait)
    return result


def transfer(links: Iterable[LinkProfile], size: int) -> float:
    """The seconds that ``size`` bytes take over the slowest of these links; 0 without links."""
    return max((_transfer(profile, size) for profile in links), default=0.0)


def _transfer(profile: LinkProfile, size: int) -> float:
    if profile.real:
        profile = ON_REAL
    wait = profile.latency + profile.jitter
    return wait + size * 8 / profile.rate if profile.rate else wait
