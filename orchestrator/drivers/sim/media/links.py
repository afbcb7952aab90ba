"""Links in a simulation that cross shared channels: the connection of each, see `netem.tcp.flow`, at its share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from netem.impair import Counters
from netem.media.allocation import Transfer, use_of
from netem.media.profile import Crossing
from netem.profile import FULL_FRAME, LinkProfile
from netem.tcp.flow import Flow
from orchestrator.drivers.sim.media.channels import Profiles, Senders, SharedMedia

FIFO_EXPONENT = 0.5
"""In a channel with the rule ``fifo``, the weight of a link is its round trip without queues to the power of minus
this. Fitted to Linux' CUBIC over the userspace engine, see docs/explanation/simulation.md."""

FIFO_SPREAD = 0.2
"""The standard deviation of the logarithm of a random factor of that weight: losses in one queue hit connections at
random. It is drawn whenever a link starts to send. Fitted likewise."""

SAME = 0.02
"""Shares that differ by less than this fraction count as the same. Computing the rest of a transfer again takes
longer than everything else. Without this, the time would grow with the square of the number of links that send."""

SHORTEST = 0.001  # s; a shorter round trip has the weight of this one


def fifo_weight(forward: LinkProfile, backward: LinkProfile) -> float:
    """The weight of a link in a channel with the rule ``fifo``."""
    round_trip = forward.latency + backward.latency
    return math.pow(max(round_trip, SHORTEST), -FIFO_EXPONENT)


BothProfiles = tuple[LinkProfile, LinkProfile]  # of a link in one direction, and in the other


class SharedFlow:
    """The `Flow` of a link over channels, see `node.messaging.delivery.pair.FlowModel`. ``flow``: that of the
    link with its channels for itself. ``moved`` is called with the new arrival times of the messages in flight."""

    def __init__(
        self,
        media: SharedMedia,
        forward: LinkProfile,
        backward: LinkProfile,
        crossings: Sequence[Crossing],
        seed: int,
        flow: Flow,
        moved: Callable[[list[float]], None],
    ) -> None:
        self.forward = forward
        self.backward = backward
        self.crossings = tuple(crossings)
        self.sending = False
        self.plan = 0
        self.share = math.inf  # bit/s, and the channel in which packets wait: see `limit`
        self.narrowest: str | None = None
        self.waits_in: str | None = None  # the same, unless the link's own rate is the narrowest
        self.luck = 1.0  # in channels with one queue for all
        self.behind = 0.0  # s that the link's packets wait behind those of others
        self._waits = 0.0  # the same, as shaped
        self._before = Counters()  # what has been added to the channels' counters
        self._media = media
        self._moved = moved
        draws = Random(f"{seed} luck")
        self._draw = draws.lognormvariate
        alone = media.alone(forward, crossings)
        self._shaped: BothProfiles | None = (alone, backward)  # of the flow, without silence
        self._given = forward
        self._silent_until = -math.inf
        self.flow = flow
        media.flows.append(self)

    def open(self, now: float) -> float:
        seconds = self.flow.open(now)
        self._look(now)
        return seconds

    def send(self, now: float, size: int) -> float:
        arrival = self.flow.send(now, size)
        self._look(now)
        return arrival

    def cut(self, now: float) -> None:
        self.count(now)
        self.flow.cut(now)
        self._before = self.flow.counted(now)  # what the cut has dropped did not cross
        self._look(now)

    def restore(self, now: float) -> list[float]:
        arrivals = self.flow.restore(now)
        self._look(now)
        return arrivals

    def arrive(self) -> None:
        """The last packet has left the channels."""
        self._set(False)

    def change(
        self,
        now: float,
        forward: LinkProfile,
        backward: LinkProfile,
        crossings: Sequence[Crossing],
    ) -> None:
        """Change the link's own profiles and its way through channels. Packets that have left the queue arrive."""
        if forward != self._given:
            self._given = forward
            self._silent_until = now + forward.silence
            self._shaped = None
        self.count(now)
        crossings = tuple(crossings)
        if crossings != self.crossings:
            self._set(False)
            self.share = math.inf
            self.narrowest = None
        self.forward = replace(forward, silence=0.0)
        self.backward = backward
        self.crossings = crossings
        self._shape(now)
        self._look(now)
        self._media.touch(self.crossings)

    def is_silent(self, now: float) -> bool:
        return now < self._silent_until

    def limit(self, now: float, rate: float, channel: str | None) -> None:
        """Send at most at ``rate`` bit/s; packets wait in ``channel``. A change by less than `SAME` has to wait for
        others."""
        if channel == self.narrowest and self.behind == self._waits:
            if math.isclose(rate, self.share, rel_tol=SAME):
                return
        self.share = rate
        self.narrowest = channel
        self._shape(now)

    def _shape(self, now: float) -> None:
        """Let the flow have its share; without one it has its channels for itself."""
        rate = self.share
        channel = self.narrowest
        own_rate = self.forward.rate
        self._waits = self.behind
        if own_rate is not None and own_rate <= rate:
            self.waits_in = None
        else:
            self.waits_in = channel
        if channel is None:
            forward = self._media.alone(self.forward, self.crossings)
        else:
            forward = self._media.shaped(self.forward, rate, channel)
        if self.behind:
            latency = forward.latency + self.behind
            forward = replace(forward, latency=latency)
        shaped = (forward, self.backward)
        if shaped == self._shaped:
            return
        self._shaped = shaped
        if self.is_silent(now):
            silence = self._silent_until - now
            forward = replace(forward, silence=silence)
        arrivals = self.flow.reshape(now, forward, self.backward)
        self._moved(arrivals)
        self._look(now)

    def demand(self, now: float) -> tuple[float, float]:
        """See `netem.tcp.flow.Flow.demand`."""
        return self.flow.demand(now)

    def transfer(self, profiles: Profiles, links: Senders) -> Transfer:
        """What the link can use. ``links``: the number of sending links of each member of a channel, which share the
        member's part."""
        uses = {}
        for crossing in self.crossings:
            profile = profiles[crossing.channel]
            if profile.rule.own_queues:
                weight = 1 / links[crossing]
            else:
                own_weight = fifo_weight(self.forward, self.backward)
                weight = self.luck * own_weight
            uses[crossing.channel] = use_of(profile, crossing.member, weight)
        most = self.forward.rate or math.inf
        return Transfer(uses, most)

    def count(self, now: float) -> None:
        """Count what the link has sent over its channels since the last call."""
        counted = self.flow.counted(now)
        before = self._before
        offered = counted.offered - before.offered
        duplicated = counted.duplicated - before.duplicated
        lost = counted.lost - before.lost
        overflowed = counted.overflowed - before.overflowed
        packets = offered + duplicated - lost - overflowed
        size = counted.offered_bytes - before.offered_bytes
        size += FULL_FRAME * (packets - offered)
        if packets < 0 or size < 0:  # losses are known later than what left the queue
            return
        self._before = counted
        for channel, member in self.crossings:
            dropped = overflowed if channel == self.waits_in else 0
            self._media.count(
                channel,
                member,
                packets,
                size,
                dropped,
            )

    def queued(self, now: float) -> int:
        """The bytes that wait in ``waits_in``."""
        return FULL_FRAME * self.flow.queued(now)

    def _look(self, now: float) -> None:
        """Note whether the link sends, and when it will stop. A connection that would give up at its present share
        sends, too: it may get more."""
        leaves = self.flow.leaves()
        sending = now < leaves and not self.flow.is_cut
        self._set(sending)
        if self.sending and leaves < math.inf:
            self._media.arrivals.add(leaves, self)

    def _set(self, sending: bool) -> None:
        self.plan += 1
        if sending == self.sending:
            return
        self.sending = sending
        if sending:
            self.luck = self._draw(0.0, FIFO_SPREAD)
            self.behind = self._media.wait(self.crossings)
        self._media.note(self)
