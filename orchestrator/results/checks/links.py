"""The checks of links: their measurement before training, their schedules, losses, rates and delays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from netem.measurement.tolerance import WOULD_TAKE
from netem.profile import FULL_FRAME, LinkProfile
from netem.userspace.segments import segments_together
from orchestrator import text
from orchestrator.record.events.links import LossAudit, ScheduleEnded, ScheduleFailed
from orchestrator.record.events.overload import (
    BUSY_MEANWHILE,
    FULL_BACKLOG,
    FULL_HOST,
    Overload,
    load_remark,
    merged,
    remark_in,
)
from orchestrator.record.rows import SHARED, ProbeResult
from orchestrator.results.checks.verdicts import MEASURED, Assessment, Verdict, missing
from orchestrator.results.facts import Facts
from orchestrator.results.history import History
from orchestrator.results.hosts import slow_because
from orchestrator.results.traffic import media, volumes
from orchestrator.results.traffic.windows import Window

SCHEDULE_LATE = 0.05  # s, limit of the 99th percentile of the lateness of a schedule's changes
OVERTAKEN_SHARE = 0.01  # of a schedule's changes that may be left out because the next one was due
LATE_SHARE = 0.02  # of the training that a node may lose to a busy host; packets may be held up for the same share
LATE_PACKETS_SHARE = 0.01  # of a run's packets that may leave late
LEAST_HELD_UP = 0.1  # s for which packets may be held up in a run of any length
LINKS_REAL: Assessment = "measured", "every link is real: no values were configured, and edgebed shaped nothing"
LINKS_MODELLED: Assessment = "modelled", "the sim driver computes every link from its profile: nothing was measured"
LINKS_VIRTUAL: Assessment = "modelled", "virtual time waits for the kernel that shapes the links: no packet can be late"


def links_as_configured(history: Facts) -> Assessment:
    """Check that every link class was probed, and that the measurements agree with the profiles."""
    if history.simulated:
        return LINKS_MODELLED
    classes = sorted(set(history.link_classes.values()))
    if not classes:
        return "pass", "the plan has no links"
    found = history.probes()
    are_real = set(history.link_kinds.values()) == {"real"}
    if are_real and not found and not history.plan.get("probe"):
        return LINKS_REAL
    probes = [probe for probe in found if probe.verdict != "measured"]
    tally = Counter(probe.verdict for probe in probes)
    failed = [probe for probe in probes if probe.verdict == "fail"]
    if failed:
        return "fail", f"{len(failed)} of {text.count(len(probes), 'probe')} failed: {_worst(failed)}"
    probed = {probe.link_class for probe in found}
    unprobed = [link_class for link_class in classes if link_class not in probed]
    if unprobed:
        return missing(history, f"no probe of {text.some(unprobed)}: those links were not measured")
    if tally["unknown"]:
        unclear = [probe for probe in probes if probe.verdict == "unknown"]
        which = text.some(map(_name, unclear)) + _time_needed(unclear)
        return "unknown", f"{tally['unknown']} of {text.count(len(probes), 'probe')} gave no clear result: {which}"
    if len(found) > len(probes):
        measured = text.count(len(found) - len(probes), "figure")
    else:
        measured = ""
    if not probes:
        return "measured", f"every link is real: {measured} of {_classes(len(classes))}, and no values were configured"
    configured = {probe.link_class for probe in probes}
    of = _classes(len(configured - {SHARED})) + " and of shared media" * (SHARED in configured)
    real = f"; {measured} of real links without configured values" if measured else ""
    earlier = _measured_earlier(probes)
    return "pass", f"{text.count(len(probes), 'probe')} of {of} agree with their profiles{real}{earlier}"


def _measured_earlier(probes: Collection[ProbeResult]) -> str:
    """Which probes earlier runs made, in words; empty if this run made all."""
    runs = sorted({probe.measured_in for probe in probes if probe.measured_in is not None})
    if not runs:
        return ""
    number = sum(probe.measured_in is not None for probe in probes)
    how_many = "all" if number == len(probes) else str(number)
    return f"; {how_many} measured in {text.some(runs)}, on links with the same settings"


def links_followed(history: History) -> Assessment:
    """Check that links with a schedule changed on time."""
    links = sum(1 for link in history.plan.get("links", []) if "schedule" in link)
    media = history.plan.get("media", [])
    channels = sum(len(medium.get("schedules", ())) for medium in media)
    if not links + channels:
        return "pass", "no links were planned to change over time"
    courses = [recorded.event for recorded in history.recorded(ScheduleEnded)]
    if not courses:
        return missing(history, "the run ended before this was recorded")
    changes = sum(course.changes for course in courses)
    overtaken = sum(course.overtaken for course in courses)
    latest = max(courses, key=lambda course: course.late_p99)
    late_max = max(course.late_max for course in courses)
    counted = ((links, "link direction"), (channels, "shared channel"))
    of = " and ".join(text.count(number, what) for number, what in counted if number)
    summary = (
        f"{text.count(changes, 'change')} of {of}, 99% of them at most "
        f"{text.duration(latest.late_p99)} late, the latest {text.duration(late_max)}"
    )
    failures = sum(course.failures for course in courses)
    if failures:
        errors = dict.fromkeys(str(failed.event.error) for failed in history.recorded(ScheduleFailed))
        return "fail", f"{summary}; {failures} could not be made: {text.some(errors, 2)}"
    if overtaken > OVERTAKEN_SHARE * (changes + overtaken):
        why = slow_because(history, "so many changes")
        return "fail", f"{summary}; {overtaken:,} were skipped because the next change was due: {why}"
    if latest.late_p99 > SCHEDULE_LATE:
        return "fail", f"{summary}, in {latest.links}: {slow_because(history, 'so many changes')}"
    made = {course.links for course in courses if course.changes}
    idle = {course.links: course.first for course in courses if course.links not in made}
    if idle:
        parts = []
        for name, at in idle.items():
            why = "its schedule changes nothing" if at is None else f"first change at {text.duration(at)}"
            parts.append(f"{name} ({why})")
        return "unknown", f"{summary}; no change of its schedule took effect on {text.some(parts)}"
    return "pass", summary


def links_on_time(history: Facts) -> Assessment:
    """Check that the link engine sent packets on time and lost only the packets that its profiles ask for."""
    if history.simulated:
        return LINKS_MODELLED
    intervals = overloads(history)
    if intervals:
        began = history.training_began or 0.0
        return _judge_overloads(intervals, began, history.training_ended - began, history.packets or 0)
    if history.virtual:
        return LINKS_VIRTUAL
    if history.engine == "kernel":
        return "pass", "the kernel shapes the links itself, and no packet was lost before the links"
    if not history.link_classes:
        return "pass", "the plan has no links"
    if history.packets is None:
        return missing(history, "the link engine's counters were never read", MEASURED)
    return "pass", "every packet left on time (at most 50 ms late), and no packet was lost beyond the configured loss"


def _severity(overload: Overload) -> tuple[int, float]:
    lost = sum(overload.lost.values())
    return lost, overload.held_up


def overloads(history: Facts) -> list[Overload]:
    """The complete intervals of overload."""
    return merged(recorded.event for recorded in history.recorded(Overload))


def _judge_overloads(overloads: Sequence[Overload], began: float, training: float, packets: int) -> Assessment:
    """Judge at least one overload: the affected share of time and packets, and the worst one. ``began``, ``training``:
    its start and duration in s. ``packets``: that all links delivered."""
    lost: Counter[str] = sum((Counter(overload.lost) for overload in overloads), Counter())
    others = lost.pop(FULL_BACKLOG, 0)
    late = sum(overload.late for overload in overloads)
    held_up = sum(overload.held_up for overload in overloads)
    parts = []
    if lost:
        where = text.some(f"{number:,} {place}" for place, number in lost.most_common())
        parts.append(f"{text.count(lost.total(), 'packet')} lost beyond the profile ({where})")
    if late:
        of_packets = text.share(late, packets)
        of_training = text.share(held_up, training)
        parts.append(
            f"{text.count(late, 'packet')} more than 50 ms late, {of_packets:.2%} of all; the links were held up for "
            f"{text.duration(held_up)}, {of_training:.1%} of the training"
        )
    if others:
        parts.append(f"{text.count(others, 'packet')} lost in this host's backlog, possibly of this run")
    saturated = [overload for overload in overloads if overload.processors >= FULL_HOST]
    busy = sum(overload.end - overload.start for overload in saturated)
    if busy:
        parts.append(f"this host's processors were saturated for {text.duration(busy)}")
    if lost or late or others:
        worst = max(overloads, key=_severity)
        at = max(0.0, worst.start - began)
        lasted = text.duration(worst.end - worst.start)
        parts.append(f"the worst at {at:.1f} s for {lasted}: {worst.cause}")
    too_many_late = late > LATE_PACKETS_SHARE * packets
    too_long = held_up > max(LATE_SHARE * training, LEAST_HELD_UP)
    if too_many_late or too_long:
        parts.append(
            f"at most {LATE_PACKETS_SHARE:.0%} of the packets, and {LATE_SHARE:.0%} of the training, may be late"
        )
    verdict: Verdict = "pass"
    if lost or too_many_late or too_long:
        verdict = "fail"
    elif others:
        verdict = "unknown"
    return verdict, "; ".join(parts)


def losses_during_the_run(history: Facts) -> Assessment:
    """Check that the links lost the share of packets that their profiles ask for while the run used them."""
    if history.simulated:
        return LINKS_MODELLED
    if not history.link_classes:
        return "pass", "the plan has no links"
    if set(history.link_kinds.values()) == {"real"}:
        return LINKS_REAL
    audits = history.recorded(LossAudit)
    if not audits:
        return missing(history, "the links were not sampled during the run", MEASURED)
    began = history.training_began or 0.0
    return _judge_losses([(recorded.t - began, recorded.event) for recorded in audits])


def _judge_losses(audits: Sequence[tuple[float, LossAudit]]) -> Assessment:
    """Judge the loss audits of links, each with the seconds of training before it; the last has the totals."""
    _, last = audits[-1]
    carried = f"{text.count(last.packets, 'packet')} sent over {text.count(last.links, 'link direction')}"
    drops = _other_drops(last)
    if last.astray:
        first = next(seconds for seconds, audit in audits if audit.astray_count)
        worst = max(last.astray, key=_deviation)
        measured = text.loss(worst["measured"])
        configured = text.loss(worst["asked"])
        return "fail", (
            f"{carried}; {last.astray_count} of them did not lose as configured, first seen at {first:.0f} s: "
            f"{worst['link']} lost {worst['lost']:,} of {worst['packets']:,}, {measured}, "
            f"configured {configured}{drops}"
        )
    wrong = [_class_losses(link_class) for link_class in last.classes if link_class["verdict"] == "fail"]
    if wrong:
        together = "each link alone may be as configured, but the links of a class together are not"
        return "fail", f"{carried}; {together}: {text.some(wrong)}{drops}"
    lossy = [_class_losses(link_class) for link_class in last.classes if link_class["asked"]]
    if lossy:
        losses = "; ".join(lossy)
    elif drops:
        losses = "nothing was lost at random, as configured"
    else:
        losses = "nothing was lost, as configured"
    few = last.links - last.told
    unsure = f"; {few} carried too few packets to be judged alone" if few else ""
    return "pass", f"{carried}: {losses}{drops}{unsure}"


def _deviation(link: Mapping[str, Any]) -> float:
    """How far the losses of a link deviate from the configured ones, relative to these."""
    configured = link["asked"]
    deviation: float = abs(link["measured"] - configured) / max(configured, 1e-4)
    return deviation


def _class_losses(link_class: Mapping[str, Any]) -> str:
    measured = text.loss(link_class["measured"])
    configured = text.loss(link_class["asked"])
    return f"{link_class['class']} lost {measured}, configured {configured}"


def _other_drops(audit: LossAudit) -> str:
    """In words, the packets that neither arrived nor were lost at random."""
    words = ""
    if audit.most_overflowed is not None:
        link = audit.most_overflowed["link"]
        packets = audit.most_overflowed["packets"]
        if packets == audit.overflowed:
            most = f"of {link}"
        else:
            most = f"most of them ({packets:,}) in that of {link}"
        words += f"; {text.count(audit.overflowed, 'packet')} found no room in the buffer {most}"
    if audit.most_nat_expired is not None:
        most = _most_on(audit.most_nat_expired, audit.nat_expired)
        words += f"; {text.count(audit.nat_expired, 'packet')} came for flows that a NAT had forgotten, {most}"
    if audit.most_too_large is not None:
        most = _most_on(audit.most_too_large, audit.too_large)
        words += f"; {text.count(audit.too_large, 'packet')} exceeded the drop_above of their link, {most}"
    if audit.cut_dropped:
        words += f"; {text.count(audit.cut_dropped, 'packet')} met a link that was cut"
    return words


def _most_on(most: Mapping[str, Any], total: int) -> str:
    """Where these packets were dropped: on one link, or most of the ``total`` on it."""
    link = most["link"]
    packets = most["packets"]
    if packets == total:
        return f"on {link}"
    return f"most of them ({packets:,}) on {link}"


def rates_held(history: History) -> Assessment | None:
    """Check that no link with a rate and no shared medium carried more than its rate while the run used it."""
    if history.simulated:
        return LINKS_MODELLED
    links = busiest(history)
    if not links:
        return None
    too_fast = [link for link in links if link.too_fast]
    if too_fast:
        which = text.some(f"{link.link} {link.describe()}" for link in too_fast)
        return "fail", f"carried more than their rate: {which}"
    listed = "; ".join(f"{link.link_class} {link.describe()}" for link in links)
    return "pass", f"none carried more than its rate, the busiest of each class: {listed}"


def _time_needed(unclear: list[ProbeResult]) -> str:
    """How long the probes would take that give a clear result, for the first one that only lacks time."""
    for probe in unclear:
        if WOULD_TAKE in probe.detail:
            return f" ({probe.detail}: allow it with `probe: {{longest: …}}`)"
    return ""


def _name(probe: ProbeResult) -> str:
    return f"{probe.quantity} of {probe.link}"


def _worst(failed: list[ProbeResult]) -> str:
    """The failed probe with the largest relative error, in words, and how busy this host was."""
    probe = max(failed, key=_relative_error)
    measured = text.quantity(probe.quantity, probe.measured)
    configured = text.quantity(probe.quantity, probe.asked)
    expected = text.quantity(probe.quantity, _expected(probe))
    words = f"{_name(probe)} is {measured}"
    if expected != configured:
        words += f", expected {expected}"
    words += f", configured {configured}"
    remark = _load_remark(probe)
    if any(_load_remark(other) == BUSY_MEANWHILE for other in failed):
        remark = BUSY_MEANWHILE
    if remark:
        words += f"; {remark}"
    return words


def _load_remark(probe: ProbeResult) -> str:
    """How busy this host was during a probe, in words; empty if it is not known."""
    if probe.saturated is None:  # an older record
        return remark_in(probe.detail)
    return load_remark(saturated=probe.saturated, busy=probe.busy)


def _relative_error(probe: ProbeResult) -> float:
    expected = _expected(probe) or 0.0
    return abs((probe.measured or 0.0) - expected) / (expected or 1.0)


def _expected(probe: ProbeResult) -> float | None:
    return probe.asked if probe.expected is None else probe.expected


def _classes(number: int) -> str:
    return "1 link class" if number == 1 else f"{number} link classes"


READINGS = (5, 60, 600)  # lengths of windows; readings are 1 s apart, or more if nothing was carried
UNSURE = 0.5  # s, possible error of a window's length on a busy host
SPREAD = 10  # jitters by which packets may be closer together at the end of a link than in front of it
SUPER_PACKET = 65_536  # bytes; the kernel engine counts one when all of it has arrived
TOLERANCE = 0.03  # of the rate, as in the probes


class Busiest(NamedTuple):
    """The link of a class, or the channel of a shared medium, that was used most in any ``window``, for certain and
    compared with ``asked``, its rate in bit/s."""

    link_class: str
    link: str
    asked: float
    window: Window

    @property
    def use(self) -> float:
        """The share of the rate that was certainly carried."""
        return self.window.least_rate / self.asked

    @property
    def too_fast(self) -> bool:
        return self.use > 1 + TOLERANCE

    def describe(self) -> str:
        accepted = self.window.largest_rate(self.asked * (1 + TOLERANCE))
        seconds = text.duration(self.window.seconds)
        measured = f"{text.rate(self.window.rate)} of {text.rate(self.asked)}"
        return f"{measured} (up to {text.rate(accepted)} accepted over {seconds})"


def busiest(history: History) -> list[Busiest]:
    """The busiest link of each class, of those with a constant rate that carried data; likewise channels."""
    planned = history.plan.get("links", [])
    links = {(link["source"], link["target"]): link for link in planned}
    profiles = _with_constant_rate(history, links)
    piece = SUPER_PACKET if "kernel" in (history.engine or "") else FULL_FRAME
    allowed = {}
    rates = {}
    for ends, profile in profiles.items():
        assert profile.rate is not None
        rates[ends] = profile.rate
        segments = segments_together(profile)
        assert segments is not None  # it is None without a rate
        # The most bytes of a packet that counts in a window and was sent before it, in part.
        extra = max(piece, segments * FULL_FRAME)
        allowed[ends] = (extra, UNSURE + SPREAD * profile.jitter)
    by_class: dict[str, Busiest] = {}
    for ends, window in volumes.fastest(history, READINGS, allowed).items():
        link_class = links[ends]["link_class"]
        link = Busiest(link_class, " → ".join(ends), rates[ends], window)
        before = by_class.get(link_class)
        if before is None or link.use > before.use:
            by_class[link_class] = link
    rows = [by_class[link_class] for link_class in sorted(by_class)]
    shared = media.busiest(history, READINGS, UNSURE)
    for channel in sorted(shared):
        rate, window = shared[channel]
        rows.append(Busiest(channel, channel, rate, window))
    return rows


def _with_constant_rate(
    history: History, links: Mapping[tuple[str, str], Mapping[str, Any]]
) -> dict[tuple[str, str], LinkProfile]:
    """The profiles of the links with a rate that neither a schedule nor a fault changes, nor how close together their
    packets arrive."""
    changed: set[tuple[str, ...]] = set()
    for fault in history.plan.get("faults", []):
        profile = fault.get("profile") or {}
        if profile.keys() & {"rate", "latency", "jitter"}:
            changed.update(tuple(link) for link in fault["links"])
    profiles = {}
    for ends, link in links.items():
        if "rate" in link["profile"] and "schedule" not in link and ends not in changed:
            profiles[ends] = LinkProfile.from_mapping(link["profile"])
    return profiles
