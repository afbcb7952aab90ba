"""Passive checks of the links during a run: measured losses against asked losses. Pure.

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
    rows: Sequence[LinkRow], classes: Mapping[tuple[str, str], str], channels: Sequence[ChannelRow] = ()
) -> LossAudit:
    """Check the counters of all links. ``channels``: the counters of shared media with drops that are not among those
    of links. The links with deviating losses have the form of `_figures`, and at most MOST of them are listed."""
    used = {(str(row["source"]), str(row["target"])): losses for row in rows if (losses := losses_of(row)).packets}
    chance = CHANCE / max(1, len(used))
    together: dict[str, tuple[int, Losses]] = {}
    for pair, losses in used.items():
        number, before = together.get(classes[pair], (0, Losses(0, 0, 0.0, 0.0)))
        together[classes[pair]] = number + 1, before.plus(losses)
    astray = [pair for pair, losses in used.items() if not losses.as_asked(chance)]
    return LossAudit(
        links=len(used),
        packets=sum(_sent(row) for row in rows),
        told=sum(losses.tells(chance) for losses in used.values()),
        astray_count=len(astray),
        astray=[{"link": " → ".join(pair), **_figures(used[pair], chance)} for pair in astray[:MOST]],
        classes=[
            {"class": name, "links": number, **_figures(losses, chance)}
            for name, (number, losses) in sorted(together.items())
        ],
        **_other_drops(rows, channels),
    )


def _sent(row: LinkRow) -> int:
    """The packets sent into a link: more than those whose loss was decided, if others found no room before it. 0 if
    its engine does not report the asked losses."""
    decided = losses_of(row).packets
    if decided:
        return max(decided, int(row.get("offered", 0)))
    return 0


def _other_drops(rows: Sequence[LinkRow], channels: Sequence[ChannelRow]) -> dict[str, Any]:
    overflowed = Counter({f"{row['source']} → {row['target']}": int(row.get("overflowed", 0)) for row in rows})
    for channel in channels:
        overflowed[str(channel["channel"])] += int(channel["overflowed"])
    expired = {f"{row['source']} → {row['target']}": int(row.get("nat_expired", 0)) for row in rows}
    return {
        "overflowed": sum(overflowed.values()),
        "most_overflowed": _most(overflowed),
        "cut_dropped": sum(int(row.get("cut_dropped", 0)) for row in rows),
        "nat_expired": sum(expired.values()),
        "most_nat_expired": _most(expired),
    }


def _most(packets: Mapping[str, int]) -> dict[str, Any] | None:
    """The link with most packets; None if no link has any."""
    link = max(packets, key=lambda each: packets[each], default="")
    if packets.get(link):
        return {"link": link, "packets": packets[link]}
    return None


def losses_of(row: LinkRow) -> Losses:
    """The losses in an engine's counters of a link; no packets if the engine does not report the asked losses."""
    return Losses(
        int(row.get("drawn", 0)),
        int(row["lost"]),
        float(row.get("asked_lost", 0.0)),
        float(row.get("asked_variance", 0.0)),
    )


def _figures(losses: Losses, chance: float) -> dict[str, Any]:
    """Fractions asked, measured and accepted."""
    low, high = (count / losses.packets for count in losses.accepted(chance))
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
        "low": low,
        "high": high,
        "verdict": verdict,
    }
