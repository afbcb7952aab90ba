"""The checks of links: their measurement before training, their schedules, losses, rates and delays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from netem.measurement.tolerance import WOULD_TAKE
from netem.profile import FULL_FRAME, LinkProfile
from netem.userspace.segments import segments_together
from orchestrator import text
from orchestrator.record.events.links import LossAudit, ScheduleEnded, ScheduleFailed
from orchestrator.record.events.overload import BUSY_MEANWHILE, FULL_BACKLOG, FULL_HOST, LOAD, Overload, merged
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


def links_as_configured(history: Facts) -> Assessment:
    """Check that every link class was probed, and that the measurements agree with the profiles."""
    if history.simulated:
        return LINKS_MODELLED
    classes = sorted(set(history.link_classes.values()))
    if not classes:
        return "pass", "the plan has no links"
    found = history.probes()
    probes = [probe for probe in found if probe.verdict != "measured"]
    tally = Counter(probe.verdict for probe in probes)
    failed = [probe for probe in probes if probe.verdict == "fail"]
    if failed:
        return "fail", f"{len(failed)} of {text.count(len(probes), 'probe')} failed: {_worst(failed)}"
    unprobed = [each for each in classes if each not in {probe.link_class for probe in found}]
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
    return "pass", f"{text.count(len(probes), 'probe')} of {of} agree with their profiles{real}"


def links_followed(history: History) -> Assessment:
    """Check that links with a schedule changed on time."""
    links = sum(1 for link in history.plan.get("links", []) if "schedule" in link)
    channels = sum(len(medium.get("schedules", ())) for medium in history.plan.get("media", []))
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
        listed = text.some(
            f"{links} (" + ("its schedule changes nothing)" if at is None else f"first change at {text.duration(at)})")
            for links, at in idle.items()
        )
        return "unknown", f"{summary}; no change of its schedule took effect on {listed}"
    return "pass", summary


def links_on_time(history: Facts) -> Assessment:
    """Check that the link engine sent packets on time and lost only the packets that its profiles ask for."""
    if history.simulated:
        return LINKS_MODELLED
    intervals = overloads(history)
    if intervals:
        began = history.training_began or 0.0
        return _judge_overloads(intervals, began, history.training_ended - began, history.packets or 0)
    if history.engine == "kernel":
        return "pass", "the kernel shapes the links itself, and no packet was lost before the links"
    if not history.link_classes:
        return "pass", "the plan has no links"
    if history.packets is None:
        return missing(history, "the link engine's counters were never read", MEASURED)
    return "pass", "every packet left on time (at most 50 ms late), and no packet was lost beyond the configured loss"


def overloads(history: Facts) -> list[Overload]:
    """The complete intervals of overload."""
    return merged(recorded.event for recorded in history.recorded(Overload))


def _judge_overloads(overloads: Sequence[Overload], began: float, training: float, packets: int) -> Assessment:
    """Judge at least one overload: the affected share of time and packets, and the worst one. ``began``, ``training``:
    its start and duration in s. ``packets``: that all links delivered."""
    lost: Counter[str] = sum((Counter(each.lost) for each in overloads), Counter())
    others = lost.pop(FULL_BACKLOG, 0)
    late = sum(each.late for each in overloads)
    held_up = sum(each.held_up for each in overloads)
    training = max(training, 1e-9)
    packets = max(1, packets)
    said = []
    if lost:
        where = text.some(f"{number:,} {place}" for place, number in lost.most_common())
        said.append(f"{text.count(lost.total(), 'packet')} lost beyond the profile ({where})")
    if late:
        of_packets = text.share(late, packets)
        of_training = text.share(held_up, training)
        said.append(
            f"{text.count(late, 'packet')} more than 50 ms late, {of_packets:.2%} of all; the links were held up for "
            f"{text.duration(held_up)}, {of_training:.1%} of the training"
        )
    if others:
        said.append(f"{text.count(others, 'packet')} lost in this host's backlog, possibly of this run")
    busy = sum(each.end - each.start for each in overloads if each.processors >= FULL_HOST)
    if busy:
        said.append(f"this host's processors were saturated for {text.duration(busy)}")
    if lost or late or others:
        worst = max(overloads, key=lambda each: (sum(each.lost.values()), each.held_up))
        at = max(0.0, worst.start - began)
        said.append(f"the worst at {at:.1f} s for {text.duration(worst.end - worst.start)}: {worst.cause}")
    too_late = late > LATE_PACKETS_SHARE * packets or held_up > max(LATE_SHARE * training, LEAST_HELD_UP)
    if too_late:
        said.append(
            f"at most {LATE_PACKETS_SHARE:.0%} of the packets, and {LATE_SHARE:.0%} of the training, may be late"
        )
    verdict: Verdict = "fail" if lost or too_late else "unknown" if others else "pass"
    return verdict, "; ".join(said)


def losses_during_the_run(history: Facts) -> Assessment:
    """Check that the links lost the share of packets that their profiles ask for while the run used them."""
    if history.simulated:
        return LINKS_MODELLED
    if not history.link_classes:
        return "pass", "the plan has no links"
    if set(history.link_kinds.values()) == {"real"}:
        return LINKS_REAL
    looks = history.recorded(LossAudit)
    if not looks:
        return missing(history, "the links were not sampled during the run", MEASURED)
    began = history.training_began or 0.0
    return _judge_losses([(look.t - began, look.event) for look in looks])


def _judge_losses(looks: Sequence[tuple[float, LossAudit]]) -> Assessment:
    """Judge the loss audits of links, each with the seconds of training before it; the last has the totals."""
    found = looks[-1][1]
    carried = f"{text.count(found.packets, 'packet')} sent over {text.count(found.links, 'link direction')}"
    astray = found.astray
    if astray:
        first = next(seconds for seconds, each in looks if each.astray_count)
        worst = max(astray, key=lambda each: abs(each["measured"] - each["asked"]) / max(each["asked"], 1e-4))
        return "fail", (
            f"{carried}; {found.astray_count} of them did not lose as configured, first seen at {first:.0f} s: "
            f"{worst['link']} lost {worst['lost']:,} of {worst['packets']:,}, {text.loss(worst['measured'])}, "
            f"configured {text.loss(worst['asked'])}{_other_drops(found)}"
        )
    said = {
        each["class"]: f"{each['class']} lost {text.loss(each['measured'])}, configured {text.loss(each['asked'])}"
        for each in found.classes
    }
    wrong = [said[each["class"]] for each in found.classes if each["verdict"] == "fail"]
    if wrong:
        together = "each link alone may be as configured, but the links of a class together are not"
        return "fail", f"{carried}; {together}: {text.some(wrong)}{_other_drops(found)}"
    lossy = "; ".join(said[each["class"]] for each in found.classes if each["asked"])
    few = found.links - found.told
    unsure = f"; {few} carried too few packets to be judged alone" if few else ""
    drops = _other_drops(found)
    nothing = "nothing was lost at random, as configured" if drops else "nothing was lost, as configured"
    return "pass", f"{carried}: {lossy or nothing}{drops}{unsure}"


def _other_drops(audit: LossAudit) -> str:
    """In words, the packets that neither arrived nor were lost at random."""
    words = ""
    if audit.overflowed and audit.most_overflowed is not None:
        link = audit.most_overflowed["link"]
        packets = audit.most_overflowed["packets"]
        if packets == audit.overflowed:
            most = f"of {link}"
        else:
            most = f"most of them ({packets:,}) in that of {link}"
        words += f"; {text.count(audit.overflowed, 'packet')} found no room in the buffer {most}"
    if audit.nat_expired and audit.most_nat_expired is not None:
        link = audit.most_nat_expired["link"]
        packets = audit.most_nat_expired["packets"]
        if packets == audit.nat_expired:
            most = f"on {link}"
        else:
            most = f"most of them ({packets:,}) on {link}"
        words += f"; {text.count(audit.nat_expired, 'packet')} came for flows that a NAT had forgotten, {most}"
    if audit.cut_dropped:
        words += f"; {text.count(audit.cut_dropped, 'packet')} met a link that was cut"
    return words


def rates_held(history: History) -> Assessment | None:
    """Check that no link with a rate and no shared medium carried more than its rate while the run used it."""
    if history.simulated:
        return LINKS_MODELLED
    found = busiest(history)
    if not found:
        return None
    wrong = [each for each in found if each.too_fast]
    if wrong:
        which = text.some(f"{each.link} {each.describe()}" for each in wrong)
        return "fail", f"carried more than their rate: {which}"
    listed = "; ".join(f"{each.link_class} {each.describe()}" for each in found)
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
    if any(BUSY_MEANWHILE in probe.detail for probe in failed):
        busy = f"; {BUSY_MEANWHILE}"
    else:
        busy = ""
    probe = max(failed, key=_relative_error)
    values = (probe.measured, probe.asked, _expected(probe))
    measured, configured, expected = (text.quantity(probe.quantity, value) for value in values)
    instead = f", expected {expected}" if expected != configured else ""
    if not busy and LOAD in probe.detail:
        busy = f"; {LOAD}{probe.detail.partition(LOAD)[2]}"
    return f"{_name(probe)} is {measured}{instead}, configured {configured}{busy}"


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
    changed = {  # how close together their packets arrive
        tuple(link)
        for fault in history.plan.get("faults", [])
        if (fault.get("profile") or {}).keys() & {"rate", "latency", "jitter"}
        for link in fault["links"]
    }
    links = {(link["source"], link["target"]): link for link in history.plan.get("links", [])}
    profiles = {
        ends: LinkProfile.from_mapping(link["profile"])
        for ends, link in links.items()
        if "rate" in link["profile"] and "schedule" not in link and ends not in changed
    }
    piece = SUPER_PACKET if "kernel" in (history.engine or "") else FULL_FRAME
    allowed = {  # the most bytes of a packet that counts in a window and was sent before it, in part
        ends: (max(piece, (segments_together(each) or 1) * FULL_FRAME), UNSURE + SPREAD * each.jitter)
        for ends, each in profiles.items()
    }
    found: dict[str, Busiest] = {}
    for ends, window in volumes.fastest(history, READINGS, allowed).items():
        row = Busiest(links[ends]["link_class"], " → ".join(ends), profiles[ends].rate or 0.0, window)
        before = found.get(row.link_class)
        if before is None or row.use > before.use:
            found[row.link_class] = row
    of_links = [found[name] for name in sorted(found)]
    shared = media.busiest(history, READINGS, UNSURE)
    of_channels = [Busiest(name, name, *shared[name]) for name in sorted(shared)]
    return of_links + of_channels
