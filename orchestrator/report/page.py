"""The content of the report's page: words and figures of each section, from the record alone."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from orchestrator import text
from orchestrator.errors import RecordError
from orchestrator.record.directory import write_whole
from orchestrator.record.events.base import RecordedEvent
from orchestrator.record.events.curves import Curves
from orchestrator.record.events.links import LossAudit, ScheduleEnded
from orchestrator.record.events.nodes import Inversion, Overrun, PeerShares, RoundReached
from orchestrator.record.events.run import Checked, HostChanged, Injected, NodeMoved, Note
from orchestrator.record.rows import FaultSpan
from orchestrator.record.schema import COUNTERS
from orchestrator.report import fidelity, figures
from orchestrator.report.activity import course
from orchestrator.report.clients import client_figures, client_rows
from orchestrator.report.courses import course_figures
from orchestrator.report.host import host_figures, host_rows, placement_rows
from orchestrator.report.inversion import inversion
from orchestrator.report.marks import Figure
from orchestrator.report.media import media_figure, media_rows
from orchestrator.report.peers import own_accuracy, peers
from orchestrator.report.template import rendered
from orchestrator.report.timeline import STATES, timeline
from orchestrator.report.topology import picture
from orchestrator.results.checks.network import real_networks
from orchestrator.results.checks.programs import ended_programs
from orchestrator.results.checks.registry import Check, checks, overall
from orchestrator.results.checks.verdicts import MARKS, Verdict
from orchestrator.results.evaluation.personalisation import edge_rows, personalisation
from orchestrator.results.evaluation.privacy import METRICS, measured, statement
from orchestrator.results.facts import CUT_OFF, DEVICE_SCOPES, IN_ROUND
from orchestrator.results.history import History
from orchestrator.results.hosts import hosts
from orchestrator.results.presence import lost_hosts, nodes_by_host, notes
from orchestrator.results.question import question
from orchestrator.results.story import Story
from orchestrator.results.traffic import volumes
from orchestrator.scenario.sections.stack import DEFAULTS as SETTINGS

PICTURED = {**STATES, CUT_OFF: "var(--disconnect)", "done": "var(--state-done)"}  # states in the picture
LOG_LIMIT = 3000  # rows of the log on the page; the record has all
FAULT_LIMIT = 1000  # rows of the table of faults


SHOWN_ELSEWHERE = (
    RoundReached.NAME,
    Note.NAME,
    LossAudit.NAME,
    PeerShares.NAME,
    Inversion.NAME,
    Injected.NAME,
    Checked.NAME,
    Curves.NAME,
)
"""Events that are not in the log."""
_SENTENCES: dict[str, type[RecordedEvent]] = {HostChanged.NAME: HostChanged, NodeMoved.NAME: NodeMoved}

_DATA = {
    "global": "the common test data",
    "own": "test data like its own",
    "train": "what it trains on",
}
"""What the metrics of devices are measured on, by their scope."""

LogRow = tuple[float, str, str, int | None, str]  # time, node, what happened, round, detail


def render(history: History) -> str:
    """The whole page as one HTML text that works offline, without other files."""
    return rendered("report/page.html", **context(history))


def write_report(history: History, path: Path) -> None:
    """Write the report of a run, complete or not. Raises RecordError if the file cannot be written."""
    page = render(history)
    try:
        write_whole(path, page)
    except OSError as error:
        message = f"the report {path} cannot be written ({error.strerror}): free space, then `report`"
        raise RecordError(message) from error


def figures_of(history: History) -> dict[str, Figure]:
    """The figures of the report by their ids. Some may have no marks."""
    drawn: dict[str, Figure] = context(history)["figures"]
    return drawn


def _used_colours(history: History) -> dict[str, str]:
    """The colours of the faults that took effect, by action."""
    actions = set()
    for span in history.faults():
        if span.start is not None:
            actions.add(span.action)
    return {action: colour for action, colour in figures.FAULTS.items() if action in actions}


def _has_rounds(course: dict[str, Any]) -> bool:
    """Whether any node was in a round, as far as the course shows it."""
    for changes in course["nodes"].values():
        if any(what == IN_ROUND for _, what in changes):
            return True
    return False


def _probed(history: History) -> str:
    by_class = volumes.probed_bytes_by_class(history)
    return ", ".join(f"{text.size(size)} ({name})" for name, size in by_class.items())


def context(history: History) -> dict[str, Any]:
    """The variables of the template: of its header, then in the order of its sections."""
    summaries = hosts(history) or []
    moved = course(history)
    faults = _faults(history)
    log = _log(history)
    timeline_figure, left_out = timeline(history)
    courses = course_figures(history)
    host = host_figures(history, summaries)
    planned_hosts = nodes_by_host(history) if summaries else ()
    if history.calibrated:
        calibration = fidelity.probe_figures(history.probes())
    else:
        calibration = {}
    began = history.training_began
    return {
        **_header(history),
        "picture": picture(history),
        "course": moved,
        "states": _states(moved),
        "fault_colours": _used_colours(history),
        "programs": history.plan.get("programs", ()),
        "ended_programs": _ended_programs(history),
        "whose": _whose(history),
        "clients": client_rows(history),
        "personalisation": personalisation(history),
        "personal_models": edge_rows(history),
        "privacy": _privacy(history),
        "inversion": inversion(history),
        "left_out": left_out,
        "hidden_before": text.duration(began) if began else "",
        "tells_of_rounds": _has_rounds(moved),
        "links": _links(history),
        "probes": fidelity.probe_rows(history),
        "probed": _probed(history),
        "kinds": dict.fromkeys(history.link_kinds.values()),
        "real": real_networks(history),
        "media": media_rows(history),
        "looks": fidelity.look_rows(history),
        "overloads": fidelity.overload_rows(history),
        "schedules": [event.data for event in history.events(ScheduleEnded.NAME)],
        "courses": list(courses),
        "calibration": list(calibration),
        "placement": placement_rows(history),
        "hosts": host_rows(summaries, planned_hosts),
        "host_figures": list(host),
        "faults": faults[:FAULT_LIMIT],
        "faults_in_all": len(faults),
        "late": fidelity.late_rows(history),
        "overruns": fidelity.overrun_rows(history),
        "log": log[:LOG_LIMIT],
        "log_left_out": max(0, len(log) - LOG_LIMIT),
        "notes": notes(history),
        "environment": _environment(history),
        "effective": yaml.safe_dump(history.effective, sort_keys=False, allow_unicode=True),
        "figures": {
            **figures.learning(history),
            **figures.of_plugins(history),
            "staleness": figures.staleness(history),
            "timeline": fidelity.mark_overloads(timeline_figure, history),
            "traffic": figures.traffic(history),
            **courses,
            **calibration,
            **host,
            **client_figures(history),
            "media": media_figure(history),
            "peers": peers(history),
            "own-accuracy": own_accuracy(history),
        },
    }


def _header(history: History) -> dict[str, Any]:
    results = checks(history)
    verdict = overall(results)
    if history.status == "running":
        saying = _so_far(history, results)
    else:
        saying = _saying(results, verdict)
    return {
        "name": history.plan.get("name") or history.run,
        "run": history.run,
        "question": question(history),
        "status": history.status,
        "verdict": verdict,
        "saying": saying,
        "lost": lost_hosts(history),
        "marks": MARKS,
        "checks": results,
        "keys": _keys(history),
    }


def _so_far(history: History, results: list[Check]) -> str:
    """Sentences about a running run: how long it still takes, its next fault, and the checks that fail so far."""
    story = Story.of(history)
    details = []
    time_left = story.time_left()
    if time_left is not None:
        details.append(str(time_left))
    next_fault = story.next_fault()
    if next_fault is not None:
        details.append(f"next fault: {next_fault}")
    state = "The run is still running"
    if details:
        state += f": {'; '.join(details)}"
    failing = _named(results, "fail") or "none"
    return f"{state}. Checks that fail so far: {failing}."


def _saying(results: list[Check], verdict: Verdict) -> str:
    """A sentence with the verdict and the checks that cause it."""
    if verdict == "pass":
        return _saying_of_pass(results)
    names = _named(results, verdict)
    if verdict == "fail":
        return f"Checks that failed: {names}. Read why below before relying on these figures."
    return f"Nothing failed, but not everything could be checked: {names}."


def _saying_of_pass(results: list[Check]) -> str:
    modelled = _named(results, "modelled")
    if modelled:
        return f"Done, and every check of what ran passed. Modelled, and so not checked: {modelled}."
    measured = _named(results, "measured")
    if measured:
        return f"Done, and every check of the emulation passed. Real, and so measured but not checked: {measured}."
    return "Done, and every check of the emulation passed."


def _named(results: list[Check], verdict: Verdict) -> str:
    names = [check["name"] for check in results if check["verdict"] == verdict]
    return text.some(names, len(results))


def _keys(history: History) -> list[tuple[str, str, str]]:
    """The key numbers at the top of the page: label, value, note."""
    tiers = history.nodes_by_tier
    nodes = ", ".join(text.count(number, tier) for tier, number in tiers.items())
    planned = history.rounds_planned
    rounds = str(history.rounds_done())
    delivered = sum(volumes.bytes_by_class(history).values())
    messages = 0
    for row in volumes.traffic(history):
        if row.direction == "sent":
            messages += row.messages
    overruns = len(history.events(Overrun.NAME))
    driver = f"driver {history.driver}" if history.driver else ""
    return [
        _main_metric(history),
        ("rounds", rounds, f"of {planned}" if planned is not None else ""),
        ("time", text.duration(history.seconds), _trained(history)),
        ("nodes", f"{tiers.total():,}", nodes),
        ("delivered", text.size(delivered), text.count(messages, "message")),
        _count_of_faults(history),
        ("overruns", str(overruns), "steps slower than configured"),
        ("links", history.engine or "–", driver),
    ]


def _main_metric(history: History) -> tuple[str, str, str]:
    name = history.main_metric
    values = [row.value for row in history.global_series(name)]
    latest = values[-1] if values else None
    numbers = [value for value in values if isfinite(value)]
    notes = []
    if numbers:
        best = max(numbers) if text.is_fraction(name) else min(numbers)
        notes.append(f"best {text.metric(name, best)}")
    coverage = str(history.coverage() or "")
    if coverage:
        notes.append(coverage)
    return name, text.metric(name, latest), ", ".join(notes)


def _trained(history: History) -> str:
    began = history.training_began
    if began is None:
        return "never trained"
    return f"{text.duration(history.training_ended - began)} of training"


def _count_of_faults(history: History) -> tuple[str, str, str]:
    spans = history.faults()
    planned = 0
    took_effect = 0
    for span in spans:
        if span.by:
            continue
        planned += 1
        if span.start is not None:
            took_effect += 1
    note = f"of {planned} planned" if planned else "none planned"
    manual = len(spans) - planned
    if manual:
        note += f", {manual} manual"
    return "faults", str(took_effect), note


def _states(course: dict[str, Any]) -> dict[str, str]:
    """The states that any node had, with their colours: those of the timeline, then those of the picture."""
    states = set()
    for changes in course["nodes"].values():
        states |= {what for _, what in changes}
    return {state: colour for state, colour in PICTURED.items() if state in states}


def _whose(history: History) -> str:
    """A sentence for each tier with curves: on what its metrics are measured."""
    main = history.main_metric
    edge_scopes = set()
    for rows in history.edge_series(main).values():
        edge_scopes |= {row.scope for row in rows}
    device_scopes = set()
    for name in (main, "loss"):
        for rows in history.tier_series(name, "device", *DEVICE_SCOPES).values():
            device_scopes |= {row.scope for row in rows}
    sentences = []
    if "own" in edge_scopes:
        sentences.append("Edges: each on test data like that of its own devices.")
    if device_scopes:
        data = " or ".join(words for scope, words in _DATA.items() if scope in device_scopes)
        sentences.append(f"Devices: each on {data}.")
    if not sentences:
        return ""
    return " ".join(["Global: the leading model on the common test data.", *sentences])


def _ended_programs(history: History) -> defaultdict[str, list[str]]:
    """By the label of a program: when and how it ended before the run was stopped."""
    began = history.training_began or 0.0
    ends = defaultdict(list)
    for program in ended_programs(history):
        ends[program.label].append(f"at {_clock(program.t, began)} ({program.how})")
    return ends


def _links(history: History) -> list[dict[str, Any]]:
    """The link counters, summed by class and kind of the links."""
    totals: dict[tuple[str, str], dict[str, int]] = {}
    for row in volumes.link_counters(history):
        counts = totals.setdefault((row.link_class, row.kind), dict.fromkeys(COUNTERS, 0))
        for counter in COUNTERS:
            counts[counter] += getattr(row, counter)
    rows = []
    for (name, kind), counts in sorted(totals.items()):
        colour = figures.link_colour(name)
        rows.append({"name": name, "kind": kind, "colour": colour, **counts})
    return rows


def _faults(history: History) -> list[dict[str, Any]]:
    began = history.training_began or 0.0
    rows = []
    for span in history.faults():
        lasted = ""
        if span.start is not None and span.end is not None:
            lasted = text.duration(span.end - span.start)
        row = {
            "action": span.action,
            "target": span.target,
            "colour": figures.FAULTS.get(span.action, ""),
            "planned": _planned(span),
            "started": _clock(span.start, began),
            "round": span.round,
            "lasted": lasted,
            "became": _became(span),
        }
        rows.append(row)
    return rows


def _planned(span: FaultSpan) -> str:
    if span.by:
        return f"manual ({span.by})"
    at = span.planned.get("at")
    if at is not None:
        return f"at {text.duration(at)}"
    number = span.planned.get("round")
    if number is not None:
        return f"round {number}"
    event = span.planned.get("event")
    if event is not None:
        return f"event {event}"
    return ""


def _became(span: FaultSpan) -> str:
    if span.skipped is not None:
        return f"skipped: {span.detail}" if span.detail else "skipped"
    if span.start is None:
        return "not reached"
    if span.detail:
        return f"took effect ({span.detail})"
    return "took effect"


def _clock(t: float | None, began: float) -> str:
    if t is None:
        return ""
    return f"{t - began:.2f} s".replace("-", "−")


def _privacy(history: History) -> dict[str, Any] | None:
    """The guarantee for shared features, and the metrics of the first and the last round."""
    sentence = statement(history)
    if sentence is None:
        return None
    by_round = measured(history)
    rows = []
    if by_round:
        for number in dict.fromkeys([min(by_round), max(by_round)]):
            values = by_round[number]
            rows.append((number, [f"{values[name]:.4f}" for name in METRICS]))
    return {"statement": sentence, "rounds": rows}


def _log(history: History) -> list[tuple[str, str, str, int | None, str]]:
    """Events, states and faults in one list, sorted by time; rounds and notes are shown elsewhere."""
    rows: list[LogRow] = list(_event_rows(history))
    for state in history.states():
        rows.append((state.t, state.node, state.state, None, state.detail))
    rows += _fault_rows(history.faults())
    rows.sort(key=lambda row: row[0])
    began = history.training_began or 0.0
    log = []
    for t, node, what, number, detail in rows:
        log.append((_clock(t, began), node, what, number, detail))
    return log


def _event_rows(history: History) -> Iterable[LogRow]:
    for event in history.events():
        if event.name in _SENTENCES:
            sentence = str(_SENTENCES[event.name].from_json(event.data))
            yield event.t, "orchestrator", event.name, event.round, sentence
        elif event.name not in SHOWN_ELSEWHERE:
            values = event.data
            if event.edge_round is not None:
                values = {**values, "edge round": event.edge_round}
            detail = ", ".join(f"{key} {_plain(value)}" for key, value in values.items())
            node = event.node or "orchestrator"
            what = event.name.replace("_", " ")
            yield event.t, node, what, event.round, detail


def _fault_rows(spans: Iterable[FaultSpan]) -> Iterable[LogRow]:
    for span in spans:
        fault = f"manual fault ({span.by})" if span.by else "fault"
        phases = {"begins": span.start, "is over": span.end, "skipped": span.skipped}
        for phase, t in phases.items():
            if t is not None:
                what = f"{fault}: {span.action} {phase}"
                yield t, span.target, what, span.round, span.detail


def _plain(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return text.number(value)
    return str(value)


def _environment(history: History) -> list[tuple[str, str]]:
    facts = {"seed": history.plan.get("seed"), **history.meta}
    rows = []
    for key, value in sorted(facts.items()):
        rows.append((key, _fact(key, value)))
    return rows


def _fact(key: str, value: Any) -> str:
    if key == "packages" and isinstance(value, dict):
        releases = [f"{name} {release}" for name, release in value.items() if release]
        return ", ".join(releases)
    if key == "command" and isinstance(value, list):
        return " ".join(map(str, value))
    if key == "tcp" and isinstance(value, dict):
        settings = [f"{name} {value[name]}" for name in SETTINGS if name in value]
        return ", ".join(settings)
    if key == "memory" and isinstance(value, int):
        return text.size(value)
    if isinstance(value, str):
        return value
    return json.dumps(value)
