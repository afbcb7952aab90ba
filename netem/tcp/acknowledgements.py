"""What a sender of Linux does if acknowledgements are lost, or small packets that nothing follows.

Used for links with loss only. Acknowledgements and beats of both ends advance the chains of losses of their direction,
which ends long bursts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from netem.tcp.path import Path
from netem.tcp.sender import GIVE_UP, SETUP_ROUND_TRIPS, Beats, Sender, lost_at_end


def acknowledge(
    sender: Sender,
    path: Path,
    period: float,
    arrived: int,
    hole: bool,
) -> None:
    """Acknowledge the packets of a round that ``arrived``, less the acknowledgements that are lost. ``hole``: a packet
    is missing. ``period`` (s) is that of the peer's beats.

    Only the first and the last ones matter, because any later one stands in for those before it. If all are lost, the
    sender stalls until a probe, its timer or a beat of the peer brings one. Its timeouts are undone then (RFC 4015).
    """
    if path.acknowledgements is None or sender.probing:
        return
    first, expected, packets_each = _expected(sender, arrived, hole)
    lost = path.acknowledgements.draw(expected)
    silent = lost_at_end(lost, 0, expected)
    if silent < expected:
        late = _lost_at_start(lost) * packets_each
        sender.unheard = silent * packets_each
        if not sender.acks:  # otherwise followed one by one, every second and the last
            sender.unheard += sender.pending
            late += first
        sender.next += late * path.pace
        return
    window = sender.window
    threshold = sender.threshold
    at = sender.released + sender.probe_timeout(2)
    _, acknowledged = path.reaches()
    if not acknowledged:
        at = _retry(sender, path, period, at, arrived=True)
    if 1 < sender.backoff <= GIVE_UP:
        sender.window = window
        sender.threshold = threshold
        sender.backoff = 1
    sender.next = max(sender.next, at + path.round_trip)


def _lost_at_start(lost: Sequence[int]) -> int:
    """The number of lost ones before the first that arrives; ``lost``: their indices."""
    leading = 0
    for place in lost:
        if place != leading:
            break
        leading += 1
    return leading


def _expected(sender: Sender, arrived: int, hole: bool) -> tuple[int, int, int]:
    """How the receiver acknowledges packets: for how many after the first one it waits, the number of acknowledgements,
    and that of packets for each. It acknowledges every second packet (RFC 1122), but each one after idleness (Linux's
    tcp_incr_quickack) and after a hole (RFC 5681)."""
    single = sender.quick > 0 or hole or arrived == 1
    sender.quick -= arrived
    waiting = arrived + sender.pending
    if single:
        sender.pending = 0
        return 0, waiting, 1
    first = 0 if sender.pending else 1
    sender.pending = waiting % 2
    return first, waiting // 2, 2


def beat(
    sender: Sender,
    path: Path,
    beats: Beats,
    now: float,
    patience: float,
) -> float:
    """Send the beats that are due before ``now``, in turn with acknowledgements of the peer's; returns when a message
    written at ``now`` can be released, infinity if never. A peer that receives nothing for ``patience`` s starts a new
    connection."""
    forward = path.losses
    back = path.acknowledgements
    if forward is None or back is None:
        return now
    if not sender.sent or now <= sender.next:
        return now
    at = beats.after(sender.written)
    while at < now:
        due = (now - at) // beats.period + 1
        undisturbed = int(min(forward.clear / 2, back.clear / 2, due))
        if undisturbed:
            forward.draw(2 * undisturbed)
            back.draw(2 * undisturbed)
            at += undisturbed * beats.period
            continue
        lost = 1 in forward.draw(2)
        unacknowledged = 1 in back.draw(2)
        if not lost and not unacknowledged:
            at += beats.period
            continue
        free = _miss_beat(sender, path, beats.period, at, now, arrived=not lost)
        if free - at > patience:
            sender.reconnect(path.round_trip)
            free = at + patience + SETUP_ROUND_TRIPS * path.round_trip
        if free > now:
            return free + path.round_trip
        at = beats.after(free)
    return now


def _miss_beat(
    sender: Sender,
    path: Path,
    period: float,
    at: float,
    now: float,
    arrived: bool,
) -> float:
    """React to a beat that left at ``at`` and was lost, or ``arrived`` and its acknowledgement was lost; returns when
    the sender is free for a message written at ``now``.

    A message reveals the loss. Without one, a probe repairs it, or the timer. The acknowledgement of the probe shows
    whether the beat had arrived (DSACK, RFC 2883). If that is unknown, the window shrinks (RFC 8985, section 7.4.2).
    """
    at += sender.probe_timeout(1)
    probe_arrives, acknowledged = path.reaches()
    if at >= now or acknowledged:
        if not arrived:
            sender.shrink()
        return min(at, now)
    if at + sender.timeout >= now:
        sender.shrink()
        return now
    at = _retry(sender, path, period, at, arrived or probe_arrives)
    if sender.backoff == 1:
        sender.shrink()
    elif sender.backoff <= GIVE_UP:
        sender.window = 2.0  # slow start, by the beat
        sender.backoff = 1
    return at


def _retry(
    sender: Sender,
    path: Path,
    period: float,
    at: float,
    arrived: bool,
) -> float:
    """Send a packet again whenever the timer expires, after a probe at ``at``; returns when an acknowledgement leaves.
    If the packet has ``arrived``, beats of the peer acknowledge it too."""
    while sender.backoff <= GIVE_UP:
        wait = sender.timeout
        beats = round(wait / period)
        if path.hears(beats) and arrived:
            return at + min(wait, period)
        at += wait
        sender.time_out()
        copy_arrives, acknowledged = path.reaches()
        arrived = arrived or copy_arrives
        if acknowledged:
            return at
    return math.inf
