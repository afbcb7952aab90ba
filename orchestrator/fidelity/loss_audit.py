"""Passive checks of the links during a run: measured losses against configured losses. Pure.

The audit sends nothing: the packets of the run are the probes, and netem.measurement.losses tests the counts. A check
covers all links, every few seconds. The links of a check share `CHANCE`, so that false alarms on correct links are
rare, whatever the number of links and the duration of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from netem.measurement.losses import Losses
from orchestrator.fabric.base import ChannelRow, LinkRow
from orchestrator.record.events.links import LossAudit

CHANCE = 1e-5  # probability of a false alarm in one check of correct links
MOST = 20  # maximum number of links astray listed individually


def look(
    rows: Sequence[LinkRow],
    classes: Mapping[tuple[str, str], str],
    channels: Sequence[ChannelRow] = (),
) -> LossAudit:
    """Check the counters of all links. ``channels``: the counters of shared media with drops that are not among those
    of links. The links with deviating losses have the form of `_figures`, and at most MOST of them are listed."""
    used: dict[tuple[str, str], Losses] = {}
    for row in rows:
        losses = losses_of(row)
        if losses.packets:
            pair = (str(row["source"]), str(row["target"]))
            used[pair] = losses
    chance = CHANCE / max(1, len(used))
    astray = []
    conclusive = 0
    for pair, losses in used.items():
        conclusive += losses.tells(chance)
        if not losses.as_asked(chance):
            astray.append(pair)
    listed = []
    for pair in astray[:MOST]:
        figures = _figures(used[pair], chance)
        listed.append({"link": " → ".join(pair), **figures})
    return LossAudit(
        links=len(used),
        packets=sum(map(_sent, rows)),
        told=conclusive,
        astray_count=len(astray),
        astray=listed,
        classes=_classes(used, classes, chance),
        **_other_drops(rows, channels),
    )


def _classes(
    used: Mapping[tuple[str, str], Losses],
    classes: Mapping[tuple[str, str], str],
    chance: float,
) -> list[dict[str, Any]]:
    """The losses of all links of a class together, by class."""
    numbers: Counter[str] = Counter()
    together: dict[str, Losses] = {}
    for pair, losses in used.items():
        name = classes[pair]
        numbers[name] += 1
        before = together.get(name, Losses(0, 0, 0.0, 0.0))
        together[name] = before.plus(losses)
    rows = []
    for name, losses in sorted(together.items()):
        figures = _figures(losses, chance)
        rows.append({"class": name, "links": numbers[name], **figures})
    return rows


def _sent(row: LinkRow) -> int:
    """The packets sent into a link: more than those that could be lost, if others found no room before it. 0 if its
    engine does not report the configured losses."""
    decided = losses_of(row).packets
    if decided:
        return max(decided, int(row.get("offered", 0)))
    return 0


def _other_drops(rows: Sequence[LinkRow], channels: Sequence[ChannelRow]) -> dict[str, Any]:
    overflowed: Counter[str] = Counter()
    expired: Counter[str] = Counter()
    too_large: Counter[str] = Counter()
    cut_dropped = 0
    for row in rows:
        link = f"{row['source']} → {row['target']}"
        overflowed[link] = int(row.get("overflowed", 0))
        expired[link] = int(row.get("nat_expired", 0))
        too_large[link] = int(row.get("too_large", 0))
        cut_dropped += int(row.get("cut_dropped", 0))
    for channel in channels:
        name = str(channel["channel"])
        overflowed[name] += int(channel["overflowed"])
    return {
        "overflowed": sum(overflowed.values()),
        "most_overflowed": _most(overflowed),
        "cut_dropped": cut_dropped,
        "nat_expired": sum(expired.values()),
        "most_nat_expired": _most(expired),
        "too_large": sum(too_large.values()),
        "most_too_large": _most(too_large),
    }


def _most(packets: Mapping[str, int]) -> dict[str, Any] | None:
    """The link with most packets; None if no link has any."""
    link = max(packets, key=packets.__getitem__, default="")
    if not packets.get(link):
        return None
    return {"link": link, "packets": packets[link]}


def losses_of(row: LinkRow) -> Losses:
    """The random losses in an engine's counters of a link; no packets if the engine does not report the configured
    losses."""
    return Losses(
        packets=int(row.get("drawn", 0)),
        lost=int(row["lost"]) - int(row.get("too_large", 0)),
        asked=float(row.get("asked_lost", 0.0)),
        variance=float(row.get("asked_variance", 0.0)),
    )


def _figures(losses: Losses, chance: float) -> dict[str, Any]:
    """Fractions configured, measured and accepted."""
    fewest, most = losses.accepted(chance)
    if not losses.as_asked(chance):
        verdict = "fail"
    elif losses.tells(chance):
        verdict = "pass"
    else:
        verdict = "unknown"
    return {
        "packets": losses.packets,
        "lost": losses.lost,
        "asked": losses.asked / losses.packets,
        "measured": losses.lost / losses.packets,
        "low": fewest / losses.packets,
        "high": most / losses.packets,
        "verdict": verdict,
    }
