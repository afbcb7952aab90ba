"""The kernel engine's commands: LinkProfiles to `tc` arguments, and tc's JSON back to profiles. Pure, no I/O.

All links pass a hub. The links to one node are a qdisc tree on the egress of the hub's device toward the node::

    htb 1:  ── class 1:1 ── netem 2:      from the peer of link 1
            ├─ class 1:2 ── netem 3:      from the peer of link 2
            ├─ class 1:fffe ── pfifo      from peers with links that another host shapes
            └─ class 1:ffff ── blackhole  everything else

with u32 filters by source address. The links to all nodes of other hosts are one such tree, on the trunk; its filters
also match the destination address. Shaping is on egress only, so the other direction of a link is on the device toward
the peer. Shaping is never on the sender's own device, where TCP's small queues would count the packets in netem as not
yet sent (tc-netem(8), LIMITATIONS). Decisions:

- **netem does the rate**, packet by packet (tc-netem(8), rate). HTB only classifies; its classes are far faster than
  any link. A rate also makes netem keep packets in order: each leaves after its predecessor. With jitter alone, netem
  would sort packets by time. A link with jitter and no rate therefore gets a rate of UNLIMITED.
- **A policer is the buffer** (`netem.kernel.police`), on the filters of the link. It counts bytes, and only those that
  wait for the rate. netem's own limit counts packets and those on their way, so it is high enough never to bind.
- **Another policer drops large packets** (`drop_above`), before the buffer and all random draws.
- **No link, no traffic**: packets that match no filter go to a blackhole, including ARP and neighbour discovery. Nodes
  need static neighbour entries.
- **A silent link** has the silence as additional delay, so that a packet leaves when it ends. A packet that comes later
  in the silence would be late. So a schedule repeats the rest of the silence, window by window.
- **Changes are in place** (`change`) and name every setting, because tc resets only some of the omitted ones. Deleting
  and adding would drop the queue. Packets keep their times, also those that wait for the rate. netem restarts its
  random stream at each change, so each change needs its own seed (`next_seed`); otherwise a link with many changes
  would repeat the first few draws. Simultaneous changes of many links are one batch (`netem.kernel.batch`).
- **A loss chain starts in either state**: netem restarts it in its first state at each change, which would lose too few
  packets. So the first state is drawn, by the share of time that the chain spends in each (`_starts_bad`). The mean
  loss is then exact. A burst ends at a change.
- **A cut replaces the netem leaf** with a blackhole. So packets in flight are lost; a loss of 100 % would deliver them.
- **Own distribution tables** (`netem.kernel.tables`): those of iproute2 are missing from slim images, it has none for
  "uniform", and a table cannot be removed in place.

Differences from `netem.impair`: at a change of the rate, the backlog leaves at the old rate (see "Changes" there). The
rate comes after the delay, so a saturated link shows no jitter. Reordered packets also skip the rate. A packet drawn
for both loss and duplication arrives once, and each copy may be lost independently. A super-packet counts as one packet
(segmentation offload must be off if single packets count).
"""

from __future__ import annotations

import ipaddress
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from netem import units
from netem.errors import TcError
from netem.kernel.batch import Commands, reading
from netem.kernel.filters import Match, filter_commands
from netem.kernel.police import (
    LONGEST_BUCKET,
    UNLIMITED,
    Bucket,
    bucket_of,
    cut_short,
    making,
    queue_limit,
    sharing,
    sizing,
)
from netem.profile import FULL_FRAME, GilbertElliott, LinkProfile

LONGEST_JITTER = (2**31 - 1) / 1e9
"""Seconds; netem cuts a longer jitter to this without an error (sch_netem.c, netem_change)."""

LARGEST_INDEX = 0xFFF0
_PASSING = 0xFFFE
_PASS_CLASS = f"1:{_PASSING:x}"
_DROPPING = 0xFFFF
_DROP_CLASS = f"1:{_DROPPING:x}"
_SLOWEST_CLOCK = 100
"""Timer ticks per second of the slowest usual kernels; HTB's burst must last for one tick."""
_LARGEST_SUPER_PACKET = 65536


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """Features of this host's netem, detected by trying.

    seed                  accepts a seed (Linux 6.6 with iproute2 6.6)
    duplicate_in_tree     allows duplication while other netems share the device. Linux 6.16 and stable kernels since
                          July 2025 refuse it ("cannot mix duplicating netems with other netems in tree")
    repeats               draws the same random numbers in each run without a seed of its own
    """

    seed: bool = False
    duplicate_in_tree: bool = False
    repeats: bool = False


@dataclass(frozen=True, kw_only=True)
class KernelLink:
    """One direction of a link: its number on the device (1..LARGEST_INDEX), the peer's IPv4 address, its profile.
    `target`: the target's IPv4 address if the device leads to several nodes. `policer`: the index of its policer, which
    no other filter of the network namespace has or had, nor the next one, that of its policer of sizes. `piece`: see
    `bucket_of`."""

    index: int
    address: str
    profile: LinkProfile
    seed: int
    target: str | None = None
    policer: int = 1
    piece: int = FULL_FRAME

    def __post_init__(self) -> None:
        if not 1 <= self.index <= LARGEST_INDEX:
            raise TcError(f"link from {self.address}: index {self.index} is not between 1 and {LARGEST_INDEX}")
        addresses = [self.address]
        if self.target:
            addresses.append(self.target)
        for address in addresses:
            try:
                ipaddress.IPv4Address(address)
            except ValueError:
                raise TcError(f"link {self.index}: {address!r} is not an IPv4 address") from None

    @property
    def class_id(self) -> str:
        return f"1:{self.index:x}"

    @property
    def size_policer(self) -> int:
        return self.policer + 1

    @property
    def handle(self) -> str:
        return f"{self.index + 1:x}:"


def setup_commands(
    device: str,
    links: Sequence[KernelLink],
    capabilities: Capabilities,
    passing: Sequence[str] = (),
) -> Commands:
    """The commands that shape a new device, in order. They omit the settings that `not_applied` names. `passing`:
    addresses of peers with unshaped packets."""
    _check_different(device, links, passing)
    alone = len(links) == 1
    commands = [f"tc qdisc add dev {device} root handle 1: htb default ffff".split()]
    for link in links:
        options = _netem(link, capabilities, alone=alone)
        commands.append(_class(device, link.class_id))
        commands.append(_leaf("add", device, link, options))
    commands.append(_class(device, _DROP_CLASS))
    commands.append(f"tc qdisc add dev {device} parent {_DROP_CLASS} blackhole".split())
    if passing:
        commands.append(_class(device, _PASS_CLASS))
        commands.append(f"tc qdisc add dev {device} parent {_PASS_CLASS} pfifo limit 1000".split())
    flows = []
    for link in links:
        own = bucket(link, capabilities, alone=alone)
        sizes = sizing(link.size_policer, link.profile.drop_above)
        police = sizes + making(link.policer, own), shared_police(link)
        match = Match(link.address, link.target, link.class_id, police=police)
        flows.append(match)
    for address in passing:
        flows.append(Match(address, None, _PASS_CLASS))
    return commands + filter_commands(device, flows)


def shared_police(link: KernelLink) -> list[str]:
    """The actions of a further filter of a link, which has the policers of the first one."""
    return sharing(link.size_policer) + sharing(link.policer)


def _check_different(device: str, links: Sequence[KernelLink], passing: Sequence[str]) -> None:
    """Raise TcError if two links have the same index or the same addresses."""
    indices = {link.index for link in links}
    ends: list[tuple[str, str | None]] = []
    for link in links:
        ends.append((link.address, link.target))
    for address in passing:
        ends.append((address, None))
    same_index = len(indices) < len(links)
    same_ends = len(set(ends)) < len(ends)
    if same_index or same_ends:
        raise TcError(f"{device}: two links with one index or one address")


def bucket(link: KernelLink, capabilities: Capabilities, *, alone: bool = False) -> Bucket | None:
    """The settings of a link's policer. `alone`: no other link shares the device."""
    profile = applied(link.profile, capabilities, alone=alone)
    return bucket_of(profile, link.piece)


def change_command(
    device: str,
    link: KernelLink,
    capabilities: Capabilities,
    *,
    alone: bool = False,
) -> list[str]:
    """The command that gives a link another profile in place. `alone`: no other link shares the device."""
    options = _netem(link, capabilities, alone=alone, complete=True)
    return _leaf("change", device, link, options)


def stop_command(device: str, link: KernelLink) -> list[str]:
    """The first command of a cut: stop the link with a blackhole below netem, which makes netem's counters final.
    `cut_command` then drops the packets in flight (`KernelLinkState.backlog_packets`)."""
    return f"tc qdisc add dev {device} parent {link.handle}1 blackhole".split()


def cut_command(device: str, link: KernelLink) -> list[str]:
    """The command that drops all packets of a link, including those in flight."""
    return f"tc qdisc replace dev {device} parent {link.class_id} blackhole".split()


def restore_command(
    device: str,
    link: KernelLink,
    capabilities: Capabilities,
    *,
    alone: bool = False,
) -> list[str]:
    """The command that shapes a cut link again, with an empty queue. It resets the drops of the cut (`parse_cuts`)."""
    options = _netem(link, capabilities, alone=alone)
    return _leaf("replace", device, link, options)


def show_command(device: str) -> list[str]:
    """The command for `parse_qdiscs` and `parse_cuts`, which read its output with the options -j and -s."""
    return ["tc", "qdisc", "show", "dev", device]


def applied(profile: LinkProfile, capabilities: Capabilities, *, alone: bool) -> LinkProfile:
    """The part of a profile that this host's kernel can apply. `alone`: no other link shares the device."""
    if profile.duplicate and not alone and not capabilities.duplicate_in_tree:
        profile = profile.merged(duplicate=0.0)
    if profile.rate and profile.rate >= UNLIMITED:
        return profile.merged(rate=None)
    return profile


def next_seed(seed: int) -> int:
    """The seed after `seed` for a change of the same link: a full-period congruential step, 32 bits."""
    return (1664525 * seed + 1013904223) % 2**32


def not_applied(
    links: Sequence[KernelLink],
    capabilities: Capabilities,
    *,
    alone: bool,
) -> list[str]:
    """The settings that the commands omit because this host lacks them, one sentence each, for the run's record.
    `alone`: no other link shares the device."""
    missing = []
    profiles = [link.profile for link in links]
    random = any(profile.needs_packet_truth or profile.jitter for profile in profiles)
    if random and not capabilities.seed and not capabilities.repeats:
        missing.append("seed: this kernel's netem takes none, so its random draws differ from run to run")
    for link in links:
        rate = link.profile.rate
        if rate and rate >= UNLIMITED:
            missing.append(
                f"rate on the link from {link.address}: the kernel engine shapes below {units.format_rate(UNLIMITED)}, "
                "so the link has no limit"
            )
    for link in links:
        if cut_short(link.profile):
            missing.append(
                f"buffer on the link from {link.address}: the kernel engine holds at most {LONGEST_BUCKET:.0f} s at "
                "the rate, so the buffer is smaller"
            )
    for link in links:
        profile = applied(link.profile, capabilities, alone=alone)
        if profile.duplicate != link.profile.duplicate:
            missing.append(
                f"duplicate on the link from {link.address}: this kernel refuses it while other links share the device"
            )
    return missing


@dataclass(frozen=True, kw_only=True)
class KernelLinkState:
    """The kernel's state of one link: its settings as a profile, and its counters since the device was shaped.

    The distribution and the buffer cannot be read back; `profile` has their defaults. `packets` and `sent_bytes` have
    left netem. `dropped` packets were lost, or too corrupt to send. `backlog` (bytes) and `backlog_packets`
    are queued or in flight.
    """

    index: int
    profile: LinkProfile
    limit: int
    seed: int | None
    packets: int
    sent_bytes: int
    dropped: int
    backlog: int
    backlog_packets: int


def parse_qdiscs(text: str) -> dict[int, KernelLinkState]:
    """Links by index from the output of ``tc -j -s qdisc show dev DEVICE``. Raises TcError for other text."""
    states = {}
    with reading("qdisc show"):
        for qdisc in json.loads(text):
            if qdisc["kind"] == "netem":
                state = _state(qdisc)
                states[state.index] = state
    return states


def parse_cuts(text: str) -> dict[int, int]:
    """Packets dropped so far by the blackholes of cut links, by index, from the same output. Raises TcError."""
    cuts = {}
    for (major, minor), drops in _blackholes(text).items():
        if major == 1 and minor != _DROPPING:
            cuts[minor] = drops
    return cuts


def parse_stops(text: str) -> dict[int, int]:
    """Packets dropped so far by the blackholes below netem of stopped links, by index, from the same output. netem
    includes them in its own drops. Raises TcError."""
    stops = {}
    for (major, _), drops in _blackholes(text).items():
        if major != 1:
            stops[major - 1] = drops
    return stops


def parse_passed(text: str) -> int:
    """Number of packets that passed unshaped, from the same output. Raises TcError."""
    packets = 0
    with reading("qdisc show"):
        for qdisc in json.loads(text):
            if qdisc.get("parent") == _PASS_CLASS:
                packets += qdisc["packets"]
    return packets


def _blackholes(text: str) -> dict[tuple[int, int], int]:
    """Drops of each blackhole, by the major and minor number of its parent."""
    drops = {}
    with reading("qdisc show"):
        for qdisc in json.loads(text):
            if qdisc["kind"] == "blackhole":
                major, minor = qdisc["parent"].split(":")
                parent = int(major, 16), int(minor, 16)
                drops[parent] = qdisc["drops"]
    return drops


def compare(configured: LinkProfile, state: KernelLinkState) -> list[str]:
    """Settings that differ from the configured ones by more than the kernel's quantisation and tc's six printed
    digits."""
    pairs: dict[str, tuple[object, object]] = {}
    actual_profile = state.profile
    for name in _TOLERANCES:
        pairs[name] = getattr(configured, name), getattr(actual_profile, name)
    delay = configured.latency + configured.silence
    pairs["latency"] = delay, actual_profile.latency
    pairs["limit"] = queue_limit(configured), state.limit
    differences = []
    for name, (wanted, actual) in pairs.items():
        tolerance = _TOLERANCES.get(name, 0.0)
        if not _same(wanted, actual, tolerance):
            differences.append(f"{name}: configured {wanted}, the kernel has {actual}")
    return differences


# Absolute: tc prints whole microseconds, fractions are multiples of 2^-32, rates whole bytes per second.
_TOLERANCES = {
    "latency": 2e-6,
    "jitter": 2e-6,
    "loss": 1e-9,
    "rate": 8.0,
    "duplicate": 1e-9,
    "corrupt": 1e-9,
    "reorder": 1e-9,
}


def _same(configured: object, actual: object, tolerance: float) -> bool:
    if isinstance(configured, GilbertElliott) and isinstance(actual, GilbertElliott):
        if _same_chain(configured, actual, tolerance):
            return True
        exchanged = _exchanged(configured)
        return _same_chain(exchanged, actual, tolerance)
    if isinstance(configured, int | float) and isinstance(actual, int | float):
        return math.isclose(configured, actual, rel_tol=1e-5, abs_tol=tolerance)
    return configured == actual


def _same_chain(configured: GilbertElliott, actual: GilbertElliott, tolerance: float) -> bool:
    for name in ("p", "r", "loss_good", "loss_bad"):
        wanted = getattr(configured, name)
        if not _same(wanted, getattr(actual, name), tolerance):
            return False
    return True


def _class(device: str, class_id: str) -> list[str]:
    """An HTB class that never delays packets: bursts for a timer tick, a quantum of one super-packet."""
    rate = units.format_rate(UNLIMITED)
    bytes_per_tick = round(UNLIMITED / 8 / _SLOWEST_CLOCK)
    burst = f"{max(bytes_per_tick, _LARGEST_SUPER_PACKET)}b"
    command = f"tc class add dev {device} parent 1: classid {class_id} htb"
    bucket = f"rate {rate} ceil {rate} burst {burst} cburst {burst}"
    return f"{command} {bucket} quantum {_LARGEST_SUPER_PACKET}".split()


def _leaf(
    verb: str,
    device: str,
    link: KernelLink,
    options: list[str],
) -> list[str]:
    command = f"tc qdisc {verb} dev {device} parent {link.class_id} handle {link.handle} netem"
    return command.split() + options


def _netem(
    link: KernelLink,
    capabilities: Capabilities,
    *,
    alone: bool,
    complete: bool = False,
) -> list[str]:
    """netem's options. `complete` also names those that are off, because a change keeps some omitted options."""
    profile = applied(link.profile, capabilities, alone=alone)
    if profile.jitter > LONGEST_JITTER:
        raise TcError(f"jitter: netem's is at most {LONGEST_JITTER:.3f} s; choose `engine: userspace`")
    options = ["limit", str(queue_limit(profile))]
    delay = profile.latency + profile.silence
    if delay or profile.jitter or complete:
        options += ["delay", _time(delay)]
    if profile.jitter:
        options += [_time(profile.jitter), "distribution", profile.distribution]
    options += _loss_options(profile.loss, link.seed)
    if profile.duplicate:
        options += ["duplicate", units.format_fraction(profile.duplicate)]
    if profile.corrupt or complete:
        options += ["corrupt", units.format_fraction(profile.corrupt)]
    if profile.reorder:
        options += ["reorder", units.format_fraction(profile.reorder)]
    rate = profile.rate
    if not rate:
        rate = UNLIMITED if profile.jitter else 0.0
    if rate or complete:
        lowest = 8.0 if rate else 0.0
        whole = float(round(rate))
        options += ["rate", units.format_rate(max(lowest, whole))]
    if capabilities.seed:
        options += ["seed", str(link.seed)]
    return options


def _loss_options(loss: float | GilbertElliott, seed: int) -> list[str]:
    if isinstance(loss, GilbertElliott):
        chain = _exchanged(loss) if _starts_bad(loss, seed) else loss
        fractions = (chain.p, chain.r, chain.loss_bad, chain.loss_good)  # tc: p r 1-h 1-k
        return ["loss", "gemodel", *map(units.format_fraction, fractions)]
    if loss:
        return ["loss", "random", units.format_fraction(loss)]
    return []


def _starts_bad(chain: GilbertElliott, seed: int) -> bool:
    """Whether a chain starts in its bad state, drawn from the seed."""
    return Random(seed).random() < chain.bad_fraction


def _exchanged(chain: GilbertElliott) -> GilbertElliott:
    """The same chain with its states exchanged: netem starts it in the state that it takes for the good one. A chain
    that never leaves its good state has no other."""
    if not chain.p:
        return chain
    return GilbertElliott(
        p=chain.r,
        r=chain.p,
        loss_good=chain.loss_bad,
        loss_bad=chain.loss_good,
    )


def _state(leaf: Mapping[str, Any]) -> KernelLinkState:
    options = leaf["options"]
    delay = options.get("delay", {})
    duplicate = options.get("duplicate", {})
    corrupt = options.get("corrupt", {})
    # tc still shows a probability of reordering from before a change, but without a gap it has no effect.
    reorder = options.get("reorder", {}) if options.get("gap") else {}
    bytes_per_second = options.get("rate", {}).get("rate", 0)
    rate = bytes_per_second * 8
    profile = LinkProfile(
        latency=delay.get("delay", 0.0),
        jitter=delay.get("jitter", 0.0),
        loss=_loss(options),
        rate=float(rate) if 0 < rate < UNLIMITED else None,
        duplicate=duplicate.get("duplicate", 0.0),
        corrupt=corrupt.get("corrupt", 0.0),
        reorder=reorder.get("reorder", 0.0),
    )
    index = leaf["parent"].removeprefix("1:")
    return KernelLinkState(
        index=int(index, 16),
        profile=profile,
        limit=options["limit"],
        seed=options.get("seed"),
        packets=leaf["packets"],
        sent_bytes=leaf["bytes"],
        dropped=leaf["drops"],
        backlog=leaf["backlog"],
        backlog_packets=leaf["qlen"],
    )


def _loss(options: Mapping[str, Any]) -> float | GilbertElliott:
    if "loss-gemodel" not in options:
        independent = options.get("loss-random", {})
        return float(independent.get("loss", 0.0))
    model = options["loss-gemodel"]
    return GilbertElliott(
        p=model["p"],
        r=model["r"],
        loss_bad=model["1-h"],
        loss_good=model["1-k"],
    )


def _time(seconds: float) -> str:
    """Milliseconds with nanosecond digits, because only recent versions of tc accept "ns"."""
    milliseconds = f"{seconds * 1e3:.6f}"
    return milliseconds.rstrip("0").rstrip(".") + "ms"
