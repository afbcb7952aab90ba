"""The kernel engine's policers (tc-police(8)): two in front of the netem of each link. Pure, no I/O.

The first one is for `drop_above`, which netem lacks: it has no rate, and drops the frames that are larger than its
`mtu`. It compares a super-packet as a whole before Linux 5.19 and by its segments since then (act_police.c,
tcf_police_mtu_check), so the sender's segmentation offload is off (`LinkProfile.needs_packet_truth`). The second one is
the link's buffer.

netem's own limit counts packets, whatever their size, and also those that only wait for the latency. So it never binds
here. Its policer has the link's rate and a bucket of the link's buffer. What is missing in the bucket is what waits in
a first-in-first-out queue of that rate. So the packets that find no token are those that find no room in such a queue.
Details:

- **Loss and duplication** come after the policer, so its rate and bucket are those of the queue divided by
  `queued_share`. Losses are chance: at exactly that rate a saturated queue would wander beyond its limit without bound.
  So the rate is a little lower (`slack`). netem gives duplicates to the policer, too.
- **A changed policer starts with a full bucket** (act_police.c, tcf_police_init). If packets wait at the change, the
  bucket therefore gets only the rest of the buffer (`rest`). It can be made whole once they have left.
- **The bucket holds a full frame**, or else no full frame would ever pass, and the largest super-packet of the sender.
- **tc stores a bucket as a time** in 32 bits of 64 ns, and a longer one as a wrong one, without an error. So a bucket
  lasts LONGEST_BUCKET at most.
- **A silent link** lets nothing leave its queue, so its policer has next to no rate.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from netem.measurement.intervals import design_effect
from netem.profile import ETHERNET, FULL_FRAME, LinkProfile

UNLIMITED = 32e9
"""Bits per second of the HTB classes, and of links without a rate: the highest round number in tc's 32-bit bytes/s."""

LONGEST_BUCKET = 270.0  # s; 2**32 times 64 ns are 274.9
LEAST_SLACK = 0.001
MOST_SLACK = 0.02
LEAST_PART = 16  # of a bucket, that is free after a change; a change every 10 ms must not make a queue longer
_TICK = 64e-9  # s
_LARGEST_PACKET = 262_144  # bytes that a super-packet may have on the link; a larger one would be dropped
_OPEN_SECONDS = 0.01
_SMALLEST_SHARE = 1e-3
_SMALLEST_FRAME = 42  # bytes of Ethernet, IPv4 and UDP headers
_MOST_PACKETS_PER_SECOND = 1e6  # that the kernel carries over one link
_SMALLEST_LIMIT = 100_000
_LARGEST_LIMIT = 2**32 - 1


class Bucket(NamedTuple):
    """Settings of a policer: bytes per second, and bytes that it lets pass without delay."""

    rate: int
    size: int

    def rest(self, waiting: float, piece: int = FULL_FRAME) -> Bucket:
        """The bucket while so many bytes wait in the queue; at least one piece fits, and a part of the whole, as TCP
        sends two packets for an acknowledgement."""
        part = self.size // LEAST_PART
        least = max(part, min(piece, self.size))
        occupied = math.ceil(max(0.0, waiting))
        return self._replace(size=max(self.size - occupied, least))


def bucket_of(profile: LinkProfile, piece: int = FULL_FRAME) -> Bucket | None:
    """The policer of a link; None if it has no rate. ``piece``: bytes of the largest (super-)packet that the sender
    makes."""
    if profile.rate is None or profile.rate >= UNLIMITED:
        return None
    buffer = max(profile.buffer_limit or 0, piece, FULL_FRAME)
    share = max(queued_share(profile), _SMALLEST_SHARE)
    size = math.ceil(buffer / share)
    if profile.silence:
        slowest = math.ceil(size / LONGEST_BUCKET)
        return Bucket(max(1, slowest), size)
    bytes_per_second = max(1, round(profile.rate) // 8)
    rate = bytes_per_second / share * (1 - slack(profile, buffer))
    least = math.ceil(piece / LONGEST_BUCKET)
    whole = max(1, math.floor(rate), least)
    # Two ticks more than the buffer: tc rounds a bucket down to ticks.
    rounded_up = size + math.ceil(2 * _TICK * whole)
    largest = math.floor(whole * LONGEST_BUCKET)
    return Bucket(whole, min(rounded_up, largest))


def queued_share(profile: LinkProfile) -> float:
    """The share of the packets that pass the policer, duplicates included, that reaches netem's queue. netem loses a
    packet if it is drawn for loss and not for duplication. A packet drawn for duplication only is given to the policer
    a second time, and this copy is lost or not (sch_netem.c, netem_enqueue)."""
    loss = profile.mean_loss
    duplicate = profile.duplicate
    copies = duplicate * (1 - loss)
    lost = loss * (1 - duplicate)
    queued = 1 - lost + copies * (1 - loss)
    return queued / (1 + copies)


def slack(profile: LinkProfile, buffer: int) -> float:
    """The fraction by which the policer is slower, so that the queue of a saturated link with random loss exceeds its
    ``buffer`` of bytes by a quarter in the mean. That of a random walk with the variance v of a step and the drift -d
    is v / 2 d (Kingman 1962): for each full frame that passes the policer, v is loss (1 - loss) times the design effect
    of bursts, and d is the slack times 1 - loss."""
    if not profile.mean_loss:
        return 0.0
    excess = buffer / FULL_FRAME / 4
    effect = design_effect(profile.loss)
    needed = profile.mean_loss * effect / (2 * excess)
    return min(max(needed, LEAST_SLACK), MOST_SLACK)


def waiting_bytes(profile: LinkProfile, backlog: float) -> float:
    """The bytes that wait for the rate if netem holds a ``backlog`` of bytes: those beyond what is on its way."""
    if profile.rate is None:
        return 0.0
    on_its_way = profile.rate / 8 * profile.latency
    return max(0.0, backlog - on_its_way)


def cut_short(profile: LinkProfile) -> bool:
    """Whether a buffer lasts longer than a policer can count."""
    bucket = bucket_of(profile.merged(silence=None))
    if bucket is None:
        return False
    buffer = profile.buffer_limit or 0
    return bucket.size < buffer


def queue_limit(profile: LinkProfile) -> int:
    """netem's limit in packets: more than can be on their way and in the buffer, if all are as small as can be."""
    seconds = profile.latency + profile.silence + 4 * profile.jitter
    packets_per_second = _MOST_PACKETS_PER_SECOND
    if profile.rate is not None:
        packets_per_second = min(packets_per_second, profile.rate / 8 / _SMALLEST_FRAME)
    waiting = (profile.buffer_limit or 0) / _SMALLEST_FRAME
    packets = math.ceil(packets_per_second * seconds + waiting)
    return min(max(packets, _SMALLEST_LIMIT), _LARGEST_LIMIT)


def sizing(index: int, drop_above: int | None) -> list[str]:
    """The action of a filter that makes the policer of sizes of this index; None lets everything pass. What passes goes
    on to the next action."""
    if drop_above is None:
        largest = _LARGEST_PACKET
        exceed = "pipe"
    else:
        largest = drop_above + ETHERNET
        exceed = "drop"
    return f"action police mtu {largest}b conform-exceed {exceed}/pipe index {index}".split()


def making(index: int, bucket: Bucket | None) -> list[str]:
    """The action of a filter that makes the policer of this index; None lets everything pass."""
    if bucket is None:
        bytes_per_second = UNLIMITED / 8
        burst = bytes_per_second * _OPEN_SECONDS
        bucket = Bucket(int(bytes_per_second), int(burst))
        exceed = "ok"
    else:
        exceed = "drop"
    tokens = f"rate {8 * bucket.rate}bit burst {bucket.size}b mtu {_LARGEST_PACKET}b"
    return f"action police {tokens} conform-exceed {exceed}/ok index {index}".split()


def sharing(index: int) -> list[str]:
    """The action of a filter that has the policer of this index in common with another one."""
    return ["action", "police", "index", str(index)]


def size_command(index: int, drop_above: int | None) -> list[str]:
    """The command that gives a policer of sizes another limit in place. Its counters stay."""
    return ["tc", "actions", "change", *sizing(index, drop_above)]


def change_command(index: int, bucket: Bucket | None) -> list[str]:
    """The command that gives a policer other settings in place, with a full bucket. Its counters stay."""
    return ["tc", "actions", "change", *making(index, bucket)]
