"""Checks whether a run can be trusted. They use only its record, so they can be repeated at any time.

The verdict of a check is pass, fail or unknown. The run's verdict is the worst of them: fail, then unknown, then pass.
"Unknown" means that nothing was measured, or that the check itself failed. "Modelled" is no judgement: a simulation
computes the quantity that the check would measure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Literal, TypedDict, TypeVar

from orchestrator import text
from orchestrator.fidelity.loss_audit import EVENT as LOOKED
from orchestrator.fidelity.overload import BUSY_MEANWHILE, merged
from orchestrator.fidelity.overload import EVENT as OVERLOAD
from orchestrator.results import carried
from orchestrator.results.expectations import as_expected
from orchestrator.results.facts import Facts
from orchestrator.results.fault_timing import ON_TIME, timely
from orchestrator.results.history import History
from orchestrator.results.host_load import slow_because
from orchestrator.results.learned import learned
from orchestrator.results.link_assessments import LATE_SHARE, judge_losses, judge_overloads
from orchestrator.results.network import network_held
from orchestrator.results.participation import participation
from orchestrator.results.population import clients_available
from orchestrator.results.rates import busiest
from orchestrator.results.record import CONTINUED
from orchestrator.results.refused import messages_accepted
from orchestrator.results.rows import SHARED, FaultSpan, ProbeResult
from orchestrator.results.unplanned import no_unplanned_failures
from orchestrator.results.verdicts import NOT_YET, Assessment, Verdict, missing, worst
from orchestrator.scenario.sections.expectations import CheckName

AWAY = ("crashed", "paused", "restarting", "left", "planned", "starting")
SETTLING = 0.2  # s after a cut and before its end in which a sample may still count packets from outside the cut
SCHEDULE_LATE = 0.05  # s, limit of the 99th percentile of the lateness of a schedule's changes
OVERTAKEN_SHARE = 0.01  # of a schedule's changes that may be left out because the next one was due
STILL_RAN = (
    "its program got SIGTERM, still ran {} later and got SIGKILL: let it end on SIGTERM, or give it a longer"
    " `stop_grace`"
)
LINKS_REAL: Assessment = "measured", "every link is real: no values were configured, and edgebed shaped nothing"
LINKS_MODELLED: Assessment = "modelled", "the sim driver computes every link from its profile: nothing was measured"
PACE_MODELLED: Assessment = "modelled", "the sim driver computes how long each step takes: nothing was measured"


F = TypeVar("F", bound=Facts)


class Check(TypedDict):
    """One verdict, with one sentence that gives the numbers."""

    name: str
    verdict: Verdict
    detail: str


def checks(history: Facts) -> list[Check]:
    """The results of all ``CHECKS`` that apply to the run; a check that crashes is unknown. While the run
    continues, the known results of ``SO_FAR``, as if it ended now."""
    assessments: dict[str, Assessment | None]
    if isinstance(history, History) and history.status != "running":
        assessments = {name: _assessment(check, history) for name, check in CHECKS.items()}
    else:
        assessments = {name: _assessment(check, history) for name, check in SO_FAR.items()}
    known = {name: found for name, found in assessments.items() if found is not None and found != NOT_YET}
    return [Check(name=name, verdict=verdict, detail=detail) for name, (verdict, detail) in known.items()]


def _assessment(check: Callable[[F], Assessment | None], history: F) -> Assessment | None:
    try:
        return check(history)
    except Exception as error:  # a broken check must hide neither the others nor the run
        return "unknown", f"the check itself broke: {type(error).__name__}: {error}"


def overall(results: Iterable[Check]) -> Verdict:
    """The worst verdict: fail, then unknown, then pass; unknown if nothing was checked."""
    return worst(result["verdict"] for result in results)


def finished(history: History) -> Assessment:
    """Check that a stop rule of the scenario ended the run."""
    done, planned = history.rounds_done(), history.rounds_planned
    rounds = f"{done} of {text.count(planned, 'round')}" if planned is not None else text.count(done, "round")
    abandoned = len({each.round for each in history.rounds() if each.abandoned and each.node in history.leaders})
    rounds += f" ({abandoned} abandoned for lack of answers)" if abandoned else ""
    remedy = f"; `resume {history.run}` continues from there" if done else ""
    outcome = history.outcome
    if outcome is None:
        return "fail", f"the orchestrator ended without an outcome after {rounds}{remedy}"
    enough: Verdict = "pass" if planned is None or done >= planned else "fail"
    match outcome.ended:
        case "rounds":
            if done == 0 and planned != 0:
                return "fail", f"the nodes ended without finishing a round ({rounds})"
            return enough, f"{rounds} done"
        case "accuracy":
            return "pass", f"the target accuracy was reached after {rounds}"
        case "programs":
            return enough, "the programs ended with exit code 0" + (f" after {rounds}" if planned or done else "")
        case "after":
            return "pass", f"the time given was over after {rounds} and {text.duration(outcome.t)}"
        case "calibrated":
            return "pass", "the links were measured; there was no training"
        case "interrupted":
            return "fail", f"interrupted after {rounds}{remedy}"
        case _:
            return "fail", f"failed after {rounds}: {outcome.error or 'no reason was recorded'}{remedy}"


def came_to_what_was_expected(history: History) -> Assessment | None:
    """Check that the run met all expectations of the scenario; None without expectations or training."""

    def verdict(name: CheckName) -> Verdict | None:
        found = _assessment(CHECKS[name], history)
        return found[0] if found else None

    return as_expected(history, verdict)


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
    if failed := [probe for probe in probes if probe.verdict == "fail"]:
        busy = f"; {BUSY_MEANWHILE}" if any(BUSY_MEANWHILE in probe.detail for probe in failed) else ""
        return "fail", f"{len(failed)} of {text.count(len(probes), 'probe')} failed: {_worst(failed)}{busy}"
    if unprobed := [each for each in classes if each not in {probe.link_class for probe in found}]:
        return missing(history, f"no probe of {text.some(unprobed)}: those links were not measured")
    if tally["unknown"]:
        which = text.some(_name(probe) for probe in probes if probe.verdict == "unknown")
        return "unknown", f"{tally['unknown']} of {text.count(len(probes), 'probe')} gave no clear result: {which}"
    measured = text.count(len(found) - len(probes), "figure") if len(found) > len(probes) else ""
    if not probes:
        return "measured", f"every link is real: {measured} of {_classes(len(classes))}, and no values were configured"
    asked = {probe.link_class for probe in probes}
    of = _classes(len(asked - {SHARED})) + " and of shared media" * (SHARED in asked)
    real = f"; {measured} of real links without configured values" if measured else ""
    return "pass", f"{text.count(len(probes), 'probe')} of {of} agree with their profiles{real}"


def faults_took_effect(history: Facts) -> Assessment:
    """Check that every planned fault that was due took effect, and in time, and that no packet crossed a cut link."""
    faults = history.faults()
    spans, by_hand = [span for span in faults if not span.by], [span for span in faults if span.by]
    if not faults:
        return "pass", "no faults were planned"
    made = [span for span in spans if span.start is not None]
    moot = [span for span in spans if span.skipped is not None and _moot(history, span, by_hand)]
    refused = [span for span in spans if span.skipped is not None and span not in moot]
    not_reached = [span for span in spans if span.start is None and span.skipped is None]
    missed = _missed(history, not_reached)
    summary = f"{len(made)} of {text.count(len(spans), 'planned fault')} took effect" if spans else "none was planned"
    summary += f"; {len(by_hand)} {'was' if len(by_hand) == 1 else 'were'} made manually" if by_hand else ""
    if refused:
        reasons = text.some(f"{span.action} {span.target} ({span.detail})" for span in refused)
        return "fail", f"{summary}; not possible: {reasons}"
    if missed:
        return "fail", f"{summary}; never made: {text.some(f'{span.action} {span.target}' for span in missed)}"
    continued = [event.t for event in history.events(CONTINUED)]
    over = history if isinstance(history, History) and history.status != "running" else None  # a story has no readings
    if over is not None and (leaks := _leaks(over, (*made, *by_hand), continued)):
        return "fail", f"{summary}, but packets crossed a link while it was cut: {text.some(leaks)}"
    verdict, late = timely(history, (*made, *moot))
    summary += f", {len(moot)} met a node that was already away" if moot else ""
    running = history.status == "running"
    to_come = f"{len(not_reached)} to come" if running else f"the run ended before {len(not_reached)} of them"
    summary += f"; {to_come}" if not_reached else ""
    return verdict, summary + late


def links_followed(history: History) -> Assessment:
    """Check that links with a schedule changed on time."""
    links = sum(1 for link in history.plan.get("links", []) if "schedule" in link)
    channels = sum(len(medium.get("schedules", ())) for medium in history.plan.get("media", []))
    if not links + channels:
        return "pass", "no links were planned to change over time"
    courses = [event.data for event in history.events("schedule ended")]
    if not courses:
        return missing(history, "the run ended before this was recorded")
    changes, overtaken = (sum(course[key] for course in courses) for key in ("changes", "overtaken"))
    latest = max(courses, key=lambda course: course["late_p99"])
    counted = ((links, "link direction"), (channels, "shared channel"))
    of = " and ".join(text.count(number, what) for number, what in counted if number)
    summary = (
        f"{text.count(changes, 'change')} of {of}, 99% of them at most "
        f"{text.duration(latest['late_p99'])} late, the latest {text.duration(max(c['late_max'] for c in courses))}"
    )
    if failures := sum(course["failures"] for course in courses):
        errors = dict.fromkeys(str(event.data.get("error")) for event in history.events("schedule failed"))
        return "fail", f"{summary}; {failures} could not be made: {text.some(errors, 2)}"
    if overtaken > OVERTAKEN_SHARE * (changes + overtaken):
        why = slow_because(history, "so many changes")
        return "fail", f"{summary}; {overtaken:,} were skipped because the next change was due: {why}"
    if latest["late_p99"] > SCHEDULE_LATE:
        return "fail", f"{summary}, in {latest['links']}: {slow_because(history, 'so many changes')}"
    made = {course["links"] for course in courses if course["changes"]}
    if idle := {course["links"]: course.get("first") for course in courses if course["links"] not in made}:
        listed = text.some(
            f"{links} (" + ("its schedule changes nothing)" if at is None else f"first change at {text.duration(at)})")
            for links, at in idle.items()
        )
        return "unknown", f"{summary}; no change of its schedule took effect on {listed}"
    return "pass", summary


def compute_on_time(history: Facts) -> Assessment | None:
    """Check that no node lost time to a host that is slower than its hardware. ``LATE_SHARE`` of the training is
    allowed. None for programs: edgebed does not know their steps."""
    overruns = history.overruns()
    began = history.training_began
    if began is None:
        calibrated = history.outcome is not None and history.outcome.ended == "calibrated"
        return ("pass", "no node trained") if calibrated else missing(history, "the training never started")
    if history.simulated:
        return PACE_MODELLED
    if history.plan.get("programs"):
        return None
    if not overruns:
        return "pass", "every step of every node took the time of its hardware"
    node, (_, seconds) = max(overruns.items(), key=lambda item: item[1][1])
    share = seconds / max(history.training_ended - began, 1e-9)
    late = text.count(sum(steps for steps, _ in overruns.values()), "step")
    steps = f"{late} on {text.count(len(overruns), 'node')} took longer than their hardware needs"
    worst = f"the latest is {node}, by {text.duration(seconds)} or {share:.1%} of the training"
    if share <= LATE_SHARE:
        return "pass", f"{steps}; {worst}"
    remedy = "use fewer or slower nodes, or `--driver sim`: its time is virtual"
    return "fail", f"{steps}; {worst}: {slow_because(history, 'so many or so fast nodes')}; {remedy}"


def links_on_time(history: Facts) -> Assessment:
    """Check that the link engine sent packets on time and lost only the packets that its profiles ask for."""
    if history.simulated:
        return LINKS_MODELLED
    if overloads := merged(event.data for event in history.events(OVERLOAD)):
        began = history.training_began or 0.0
        return judge_overloads(overloads, began, history.training_ended - began, history.packets or 0)
    if history.engine == "kernel":
        return "pass", "the kernel shapes the links itself, and no packet was lost before the links"
    if not history.link_classes:
        return "pass", "the plan has no links"
    if history.packets is None:
        if history.outcome is not None and history.outcome.ended == "calibrated":
            return "pass", "see what was measured"
        return missing(history, "the link engine's counters were never read")
    return "pass", "every packet left on time (at most 50 ms late), and no packet was lost beyond the configured loss"


def losses_during_the_run(history: Facts) -> Assessment:
    """Check that the links lost the share of packets that their profiles ask for while the run used them."""
    if history.simulated:
        return LINKS_MODELLED
    if not history.link_classes:
        return "pass", "the plan has no links"
    if set(history.link_kinds.values()) == {"real"}:
        return LINKS_REAL
    looks = history.events(LOOKED)
    if not looks:
        if history.outcome is not None and history.outcome.ended == "calibrated":
            return "pass", "see what was measured"
        return missing(history, "the links were not sampled during the run")
    began = history.training_began or 0.0
    return judge_losses([(look.t - began, look.data) for look in looks])


def rates_held(history: History) -> Assessment | None:
    """Check that no link with a rate and no shared medium carried more than its rate while the run used it."""
    if history.simulated:
        return LINKS_MODELLED
    if not (found := busiest(history)):
        return None
    listed = "; ".join(f"{each.link_class} {text.rate(each.carried)} of {text.rate(each.asked)}" for each in found)
    if wrong := [each for each in found if each.too_fast]:
        which = text.some(
            f"{each.link} {text.rate(each.carried)}, configured {text.rate(each.asked)}" for each in wrong
        )
        return "fail", f"carried more than their rate: {which}"
    return "pass", f"none carried more than its rate, the busiest of each class for some seconds: {listed}"


def nodes_responded(history: History) -> Assessment:
    """Check that every node answered at the end, except those that a fault had removed."""
    outcome = history.outcome
    if outcome is None:
        return missing(history, "the orchestrator ended before it could ask the nodes")
    excused = {node for span in history.faults() if _takes_away(span, outcome.t) for node in span.nodes}
    excused |= _joining_later(history)
    states = history.current_states()
    silent = {name: row.state for name, row in states.items() if row.state != "done" and name not in excused}
    away = sum(1 for name, row in states.items() if row.state != "done" and name in excused)
    note = f", {away} away as planned" if away else ""
    if silent:
        killed = {event.node: event.data["grace"] for event in history.events("killed at the end")}
        listed = text.some(
            f"{name} ({state if name not in killed else STILL_RAN.format(text.duration(killed[name]))})"
            for name, state in silent.items()
        )
        return "fail", f"{len(silent)} of {text.count(len(states), 'node')} did not answer at the end: {listed}{note}"
    return "pass", f"{len(states) - away} of {text.count(len(states), 'node')} answered at the end{note}"


CHECKS: dict[CheckName | Literal["result as expected", "messages accepted"], Callable[[History], Assessment | None]] = {
    "finished": finished,
    "learned": learned,
    "participation": participation,
    "result as expected": came_to_what_was_expected,
    "links as configured": links_as_configured,
    "faults took effect": faults_took_effect,
    "links over time": links_followed,
    "losses during the run": losses_during_the_run,
    "rates during the run": rates_held,
    "network between hosts": network_held,
    "compute on time": compute_on_time,
    "links on time": links_on_time,
    "clients available": clients_available,
    "nodes responded": nodes_responded,
    "messages accepted": messages_accepted,
    "no unplanned failures": no_unplanned_failures,
}


SO_FAR: dict[str, Callable[[Facts], Assessment | None]] = {
    "links as configured": links_as_configured,
    "faults took effect": faults_took_effect,
    "losses during the run": losses_during_the_run,
    "network between hosts": network_held,
    "compute on time": compute_on_time,
    "links on time": links_on_time,
    "messages accepted": messages_accepted,
    "no unplanned failures": no_unplanned_failures,
}


def _name(probe: ProbeResult) -> str:
    return f"{probe.quantity} of {probe.link}"


def _worst(failed: list[ProbeResult]) -> str:
    """The failed probe with the largest relative error, in words."""
    probe = max(failed, key=lambda probe: abs((probe.measured or 0.0) - (probe.asked or 0.0)) / (probe.asked or 1.0))
    measured, asked = (text.quantity(probe.quantity, value) for value in (probe.measured, probe.asked))
    return f"{_name(probe)} is {measured}, configured {asked}"


def _classes(number: int) -> str:
    return "1 link class" if number == 1 else f"{number} link classes"


def _moot(history: Facts, span: FaultSpan, by_hand: Sequence[FaultSpan]) -> bool:
    """Whether a skipped fault was moot when it was due: its nodes were away already or, if they were to join, had been
    made to join by hand, or the run was over."""
    assert span.skipped is not None
    outcome = history.outcome
    if outcome is not None and span.skipped >= outcome.t:
        return True
    if span.action == "join" and any(each.action == "join" and each.nodes == span.nodes for each in by_hand):
        return True
    now = {state.node: state.state for state in history.states() if state.t <= span.skipped}
    return bool(span.nodes) and all(now.get(node, "planned") in (*AWAY, "done") for node in span.nodes)


def _missed(history: Facts, spans: Iterable[FaultSpan]) -> list[FaultSpan]:
    """Those faults past whose planned time the training continued."""
    began = history.training_began
    if began is None or history.status == "running":
        return []
    ended, done = history.training_ended, history.rounds_done()

    def was_due(span: FaultSpan) -> bool:
        at, round = span.planned.get("at"), span.planned.get("round")
        return began + at + ON_TIME < ended if at is not None else round is not None and done >= int(round)

    return [span for span in spans if was_due(span)]


def _leaks(history: History, spans: Iterable[FaultSpan], continued: Sequence[float]) -> list[str]:
    """The links that faults cut and that delivered packets while they were cut. When a run is ``continued``, its links
    are made anew."""
    windows: list[tuple[str, str, float, float]] = []
    moved = {way[:2] for span in spans for way in map(tuple, span.planned.get("crossings", ()))}
    cut: list[tuple[str, FaultSpan]] = []  # the link and the fault of each window
    for span in spans:
        if span.action not in ("disconnect", "partition") or span.start is None:
            continue
        end = span.end if span.end is not None else history.seconds
        parts = list(pairwise((span.start, *(t for t in continued if span.start < t < end), end)))
        for source, target in span.planned.get("links") or ():
            if "medium" in span.planned and (source, target) in moved:
                continue  # it may have crossed another medium
            windows += [(source, target, start + SETTLING, stop - SETTLING) for start, stop in parts]
            cut += [(f"{source} → {target}", span)] * len(parts)
    packets: dict[tuple[str, int], tuple[int, str]] = {}
    for (link, span), counted in zip(cut, carried.delivered(history, windows), strict=True):
        before, _ = packets.get((link, span.id), (0, ""))
        packets[link, span.id] = before + (counted[1] if counted else 0), span.target
    return [
        f"{link} ({text.count(count, 'packet')} in {target})" for (link, _), (count, target) in packets.items() if count
    ]


def _takes_away(span: FaultSpan, end: float) -> bool:
    """Whether a fault that keeps its nodes from answering was still active when the run ended."""
    if span.start is None:
        return False
    if span.action == "leave":
        return True
    return span.action in ("crash", "pause") and (span.end is None or span.end >= end)


def _joining_later(history: History) -> set[str]:
    """The nodes that were planned to join, but had not joined when the run ended."""
    joins = [span for span in history.faults() if span.action == "join" and span.start is None]
    return {node for span in joins for node in span.nodes}
