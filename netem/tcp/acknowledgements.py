"""What a sender of Linux does whose acknowledgements are lost, or small packets that nothing follows.

Used for links with loss only. Acknowledgements and beats of both ends advance the chains of losses of their direction,
which ends long bursts.
"""

from __future__ import annotations

import math

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
    first, expected, each = _expected(sender, arrived, hole)
    lost = path.acknowledgements.draw(expected)
    silent = lost_at_end(lost, 0, expected)
    if silent < expected:
        leading = next(n for n, place in enumerate((*lost, -1)) if place != n)
        apart = bool(sender.acks)  # followed one by one, every second and the last
        sender.unheard = silent * each + (0 if apart else sender.pending)
        sender.next += (leading * each + (0 if apart else first)) * path.pace
        return
    before = sender.window, sender.threshold
    at = sender.released + sender.probe_timeout(2)
    if not path.reaches()[1]:
        at = _retry(sender, path, period, at, arrived=True)
    if 1 < sender.backoff <= GIVE_UP:
        sender.window, sender.threshold = before
        sender.backoff = 1
    sender.next = max(sender.next, at + path.round_trip)


def _expected(sender: Sender, arrived: int, hole: bool) -> tuple[int, int, int]:
    """How the receiver acknowledges packets: for how many after the first one it waits, the number of acknowledgements,
    and that of packets for each. It acknowledges every second packet (RFC 1122), but each one after idleness (Linux's
    tcp_incr_quickack) and after a hole (RFC 5681)."""
    single = sender.quick > 0 or hole or arrived == 1
    sender.quick -= arrived
    arrived += sender.pending
    first = 0 if single or sender.pending else 1
    sender.pending = 0 if single else arrived % 2
    if single:
        return (first, arrived, 1)
    return (first, arrived // 2, 2)


def beat(
    sender: Sender,
    path: Path,
    beats: Beats,
    now: float,
    patience: float,
) -> float:
    """Send the beats that are due before ``now``, in turn with acknowledgements of the peer's; returns when a message
    written at ``now`` can be released, infinity if never. A peer that hears nothing for ``patience`` s begins a new
    connection."""
    there = path.losses
    back = path.acknowledgements
    if there is None or back is None or not sender.sent or now <= sender.next:
        return now
    at = beats.after(sender.written)
    while at < now:
        undisturbed = int(min(there.clear / 2, back.clear / 2, (now - at) // beats.period + 1))
        if undisturbed:
            there.draw(2 * undisturbed)
            back.draw(2 * undisturbed)
            at += undisturbed * beats.period
            continue
        lost = 1 in there.draw(2)
        unheard = 1 in back.draw(2)
        if not lost and not unheard:
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

    A message reveals the loss. Without one, a probe repairs it, or the timer. The acknowledgement of the probe tells
    whether the beat had arrived (DSACK, RFC 2883). If that is unknown, the window shrinks (RFC 8985, section 7.4.2).
    """
    at += sender.probe_timeout(1)
    arrives, heard = path.reaches()
    if at >= now or heard:
        if not arrived:
            sender.shrink()
        return min(at, now)
    if at + sender.timeout >= now:
        sender.shrink()
        return now
    at = _retry(sender, path, period, at, arrived or arrives)
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
        if path.hears(round(wait / period)) and arrived:
            return at + min(wait, period)
        at += wait
        sender.time_out()
        arrives, heard = path.reaches()
        arrived = arrived or arrives
        if heard:
            return at
    return math.inf
