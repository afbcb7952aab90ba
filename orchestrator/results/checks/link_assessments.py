"""Assessment of the links during the run: overloads and losses. Pure functions.

They apply to a finished run and, with the data so far, to a running one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator import text
from orchestrator.fidelity.overload import FULL_BACKLOG, FULL_HOST, Overload
from orchestrator.results.checks.verdicts import Assessment, Verdict

LATE_SHARE = 0.02  # of the training that a node may lose to a busy host; packets may be held up for the same share
LATE_PACKETS_SHARE = 0.01  # of a run's packets that may leave late
LEAST_HELD_UP = 0.1  # s for which packets may be held up in a run of any length


def judge_overloads(overloads: Sequence[Overload], began: float, training: float, packets: int) -> Assessment:
    """Judge at least one overload: the affected share of time and packets, and the worst one. ``began``, ``training``:
    its start and duration in s. ``packets``: that all links delivered."""
    lost: Counter[str] = sum((Counter(each.lost) for each in overloads), Counter())
    others = lost.pop(FULL_BACKLOG, 0)
    late = sum(each.late for each in overloads)
    held_up = sum(each.held_up for each in overloads)
    training, packets = max(training, 1e-9), max(1, packets)
    said = []
    if lost:
        where = text.some(f"{number:,} {place}" for place, number in lost.most_common())
        said.append(f"{text.count(lost.total(), 'packet')} lost beyond the profile ({where})")
    if late:
        said.append(
            f"{text.count(late, 'packet')} more than 50 ms late, {late / packets:.2%} of all; the links were held up "
            f"for {text.duration(held_up)}, {held_up / training:.1%} of the training"
        )
    if others:
        said.append(f"{text.count(others, 'packet')} lost in this host's backlog, possibly of this run")
    if busy := sum(each.end - each.start for each in overloads if each.processors >= FULL_HOST):
        said.append(f"this host's processors were saturated for {text.duration(busy)}")
    if lost or late or others:
        worst = max(overloads, key=lambda each: (sum(each.lost.values()), each.held_up))
        at = max(0.0, worst.start - began)
        said.append(f"the worst at {at:.1f} s for {text.duration(worst.end - worst.start)}: {worst.cause}")
    too_late = late > LATE_PACKETS_SHARE * packets or held_up > max(LATE_SHARE * training, LEAST_HELD_UP)
    verdict: Verdict = "fail" if lost or too_late else "unknown" if others else "pass"
    return verdict, "; ".join(said)


def judge_losses(looks: Sequence[tuple[float, Mapping[str, Any]]]) -> Assessment:
    """Judge the loss audits of links, each with the seconds of training before it; the last has the totals."""
    found = looks[-1][1]
    carried = f"{text.count(found['links'], 'link direction')} carried {text.count(found['packets'], 'packet')}"
    if astray := found["astray"]:
        first = next(seconds for seconds, each in looks if each["astray_count"])
        worst = max(astray, key=lambda each: abs(each["measured"] - each["asked"]) / max(each["asked"], 1e-4))
        return "fail", (
            f"{carried}; {found['astray_count']} of them did not lose as configured, first seen at {first:.0f} s: "
            f"{worst['link']} lost {worst['lost']:,} of {worst['packets']:,}, {text.loss(worst['measured'])}, "
            f"configured {text.loss(worst['asked'])}"
        )
    if wrong := [each for each in found["classes"] if each["verdict"] == "fail"]:
        listed = text.some(
            f"{each['class']} lost {text.loss(each['measured'])}, configured {text.loss(each['asked'])}"
            for each in wrong
        )
        return (
            "fail",
            f"{carried}; each link alone may be as configured, but the links of a class together are not: {listed}",
        )
    lossy = [each for each in found["classes"] if each["asked"]]
    listed = "; ".join(
        f"{each['class']} lost {text.loss(each['measured'])}, configured {text.loss(each['asked'])}" for each in lossy
    )
    few = found["links"] - found["told"]
    unsure = f"; {few} carried too few packets to be judged alone" if few else ""
    return "pass", f"{carried}: {listed or 'nothing was lost, as configured'}{unsure}"
