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
from orchestrator.record.events.links import LossAudit, ScheduleEnded
from orchestrator.record.events.nodes import Inversion, Overrun, PeerShares, RoundReached
from orchestrator.record.events.run import HostChanged, Injected, NodeMoved, Note
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
)
"""Events that are not in the log."""
_SENTENCES: dict[str, type[RecordedEvent]] = {HostChanged.NAME: HostChanged, NodeMoved.NAME: NodeMoved}

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
        raise RecordError(
            f"the report {path} cannot be written ({error.strerror}): free space, then `report`"
        ) from error


def figures_of(history: History) -> dict[str, Figure]:
    """The figures of the report by their ids. Some may have no marks."""
    found: dict[str, Figure] = context(history)["figures"]
    return found


def context(history: History) -> dict[str, Any]:
    """The variables of the template: of its header, then in the order of its sections."""
    summaries = hosts(history) or []
    moved = course(history)
    faults = _faults(history)
    log = _log(history)
    acted = {span.action for span in history.faults() if span.start is not None}
    timeline_figure, left_out = timeline(history)
    courses = course_figures(history)
    host = host_figures(history, summaries)
    if history.calibrated:
        calibration = fidelity.probe_figures(history.probes())
    else:
        calibration = {}
    return {
        **_header(history),
        "picture": picture(history),
        "course": moved,
        "states": _states(moved),
        "fault_colours": {action: colour for action, colour in figures.FAULTS.items() if action in acted},
        "programs": history.plan.get("programs", ()),
        "ended_programs": _ended_programs(history),
        "whose": _whose(history),
        "clients": client_rows(history),
        "personalisation": personalisation(history),
        "personal_models": edge_rows(history),
        "privacy": _privacy(history),
        "inversion": inversion(history),
        "left_out": left_out,
        "hidden_before": text.duration(history.training_began) if history.training_began else "",
        "tells_of_rounds": any(what == IN_ROUND for of in moved["nodes"].values() for _, what in of),
        "links": _links(history),
        "probes": fidelity.probe_rows(history),
        "probed": ", ".join(f"{text.size(n)} ({name})" for name, n in volumes.probed_bytes_by_class(history).items()),
        "kinds": dict.fromkeys(history.link_kinds.values()),
        "real": real_networks(history),
        "media": media_rows(history),
        "looks": fidelity.look_rows(history),
        "overloads": fidelity.overload_rows(history),
        "schedules": [event.data for event in history.events(ScheduleEnded.NAME)],
        "courses": list(courses),
        "calibration": list(calibration),
        "placement": placement_rows(history),
        "hosts": host_rows(summaries, nodes_by_host(history) if summaries else ()),
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
    return {
        "name": history.plan.get("name") or history.run,
        "run": history.run,
        "question": question(history),
        "status": history.status,
        "verdict": verdict,
        "saying": _so_far(history, results) if history.status == "running" else _saying(results, verdict),
        "lost": lost_hosts(history),
        "marks": MARKS,
        "checks": results,
        "keys": _keys(history),
    }


def _so_far(history: History, results: list[Check]) -> str:
    """Sentences about a running run: how long it still takes, its next fault, and the checks that fail so far."""
    story = Story.of(history)
    left = story.time_left()
    coming = story.next_fault()
    known = [str(left)] * (left is not None) + [f"next fault: {coming}"] * (coming is not None)
    details = f": {'; '.join(known)}" if known else ""
    return f"The run is still running{details}. Checks that fail so far: {_named(results, 'fail') or 'none'}."


def _saying(results: list[Check], verdict: Verdict) -> str:
    """A sentence with the verdict and the checks that cause it."""
    names = _named(results, verdict)
    match verdict:
        case "pass" if modelled := _named(results, "modelled"):
            return f"Done, and every check of what ran passed. Modelled, and so not checked: {modelled}."
        case "pass" if measured := _named(results, "measured"):
            return f"Done, and every check of the emulation passed. Real, and so measured but not checked: {measured}."
        case "pass":
            return "Done, and every check of the emulation passed."
        case "fail":
            return f"Checks that failed: {names}. Read why below before relying on these figures."
        case _:
            return f"Nothing failed, but not everything could be checked: {names}."


def _named(results: list[Check], verdict: Verdict) -> str:
    return text.some((check["name"] for check in results if check["verdict"] == verdict), len(results))


def _keys(history: History) -> list[tuple[str, str, str]]:
    """The key numbers at the top of the page: label, value, note."""
    main = history.main_metric
    values = [row.value for row in history.global_series(main)]
    best = (max if text.is_fraction(main) else min)(filter(isfinite, values), default=None)
    notes = [] if best is None else [f"best {text.metric(main, best)}"]
    covered = str(history.coverage() or "")
    if covered:
        notes.append(covered)
    planned = history.rounds_planned
    sent = volumes.traffic(history)
    messages = sum(row.messages for row in sent if row.direction == "sent")
    spans = history.faults()
    planned_faults = [span for span in spans if not span.by]
    made = sum(1 for span in planned_faults if span.start is not None)
    by_hand = f", {len(spans) - len(planned_faults)} manual" if len(planned_faults) < len(spans) else ""
    tiers = history.nodes_by_tier
    began = history.training_began
    trained = "never trained" if began is None else f"{text.duration(history.training_ended - began)} of training"
    return [
        (
            main,
            text.metric(main, values[-1] if values else None),
            ", ".join(notes),
        ),
        ("rounds", str(history.rounds_done()), f"of {planned}" if planned is not None else ""),
        ("time", text.duration(history.seconds), trained),
        ("nodes", f"{tiers.total():,}", ", ".join(text.count(number, tier) for tier, number in tiers.items())),
        ("delivered", text.size(sum(volumes.bytes_by_class(history).values())), text.count(messages, "message")),
        ("faults", str(made), (f"of {len(planned_faults)} planned" if planned_faults else "none planned") + by_hand),
        ("overruns", str(len(history.events(Overrun.NAME))), "steps slower than configured"),
        ("links", history.engine or "–", f"driver {history.driver}" if history.driver else ""),
    ]


def _states(course: dict[str, Any]) -> dict[str, str]:
    """The states that any node had, with their colours: those of the timeline, then those of the picture."""
    had = {what for changes in course["nodes"].values() for _, what in changes}
    return {state: colour for state, colour in PICTURED.items() if state in had}


def _whose(history: History) -> str:
    """A sentence for each tier with curves: on what its metrics are measured."""
    edges = {row.scope for rows in history.edge_series(history.main_metric).values() for row in rows}
    devices = {
        row.scope
        for name in (history.main_metric, "loss")
        for rows in history.tier_series(name, "device", *DEVICE_SCOPES).values()
        for row in rows
    }
    sentences = ["Global: the leading model on the common test data."]
    sentences += ["Edges: each on test data like that of its own devices."] if "own" in edges else []
    on = {"global": "the common test data", "own": "test data like its own", "train": "what it trains on"}
    data = " or ".join(words for scope, words in on.items() if scope in devices)
    sentences += [f"Devices: each on {data}."] if devices else []
    if len(sentences) > 1:
        return " ".join(sentences)
    return ""


def _ended_programs(history: History) -> defaultdict[str, list[str]]:
    """By the label of a program: when and how it ended before the run was asked to end."""
    began = history.training_began or 0.0
    found = defaultdict(list)
    for each in ended_programs(history):
        found[each.label].append(f"at {_clock(each.t, began)} ({each.how})")
    return found


def _links(history: History) -> list[dict[str, Any]]:
    """The link counters, summed by class and kind of the links."""
    totals: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTERS, 0))
    for row in volumes.link_counters(history):
        for counter in COUNTERS:
            totals[row.link_class, row.kind][counter] += getattr(row, counter)
    return [
        {"name": name, "kind": kind, "colour": figures.link_colour(name), **counts}
        for (name, kind), counts in sorted(totals.items())
    ]


def _faults(history: History) -> list[dict[str, Any]]:
    began = history.training_began or 0.0
    return [
        {
            **{"action": span.action, "target": span.target, "colour": figures.FAULTS.get(span.action, "")},
            **{"planned": _planned(span), "started": _clock(span.start, began), "round": span.round},
            "lasted": text.duration(span.end - span.start) if span.start is not None and span.end is not None else "",
            "became": _became(span),
        }
        for span in history.faults()
    ]


def _planned(span: FaultSpan) -> str:
    if span.by:
        return f"manual ({span.by})"
    if span.planned.get("at") is not None:
        return f"at {text.duration(span.planned['at'])}"
    if span.planned.get("round") is not None:
        return f"round {span.planned['round']}"
    return ""


def _became(span: FaultSpan) -> str:
    if span.skipped is not None:
        return f"skipped: {span.detail}" if span.detail else "skipped"
    if span.start is None:
        return "not reached"
    return "took effect" + (f" ({span.detail})" if span.detail else "")


def _clock(t: float | None, began: float) -> str:
    return "" if t is None else f"{t - began:.2f} s".replace("-", "−")


def _privacy(history: History) -> dict[str, Any] | None:
    """The guarantee for shared features, and the metrics of the first and the last round."""
    sentence = statement(history)
    if sentence is None:
        return None
    rounds = measured(history)
    if rounds:
        ends = dict.fromkeys([min(rounds), max(rounds)])
    else:
        ends = {}
    return {"statement": sentence, "rounds": [(r, [f"{rounds[r][name]:.4f}" for name in METRICS]) for r in ends]}


def _log(history: History) -> list[tuple[str, str, str, int | None, str]]:
    """Events, states and faults in one list, sorted by time; rounds and notes are shown elsewhere."""
    began = history.training_began or 0.0
    rows = [
        *_event_rows(history),
        *((state.t, state.node, state.state, None, state.detail) for state in history.states()),
        *_fault_rows(history.faults()),
    ]
    rows.sort(key=lambda row: row[0])
    return [(_clock(row[0], began), *row[1:]) for row in rows]


def _event_rows(history: History) -> Iterable[LogRow]:
    for event in history.events():
        if event.name in _SENTENCES:
            sentence = str(_SENTENCES[event.name].from_json(event.data))
            yield event.t, "orchestrator", event.name, event.round, sentence
        elif event.name not in SHOWN_ELSEWHERE:
            if event.edge_round is None:
                values = event.data
            else:
                values = {**event.data, "edge round": event.edge_round}
            detail = ", ".join(f"{key} {_plain(value)}" for key, value in values.items())
            yield event.t, event.node or "orchestrator", event.name.replace("_", " "), event.round, detail


def _fault_rows(spans: Iterable[FaultSpan]) -> Iterable[LogRow]:
    for span in spans:
        for phase, t in (("begins", span.start), ("is over", span.end), ("skipped", span.skipped)):
            if t is not None:
                what = f"manual fault ({span.by})" if span.by else "fault"
                yield t, span.target, f"{what}: {span.action} {phase}", span.round, span.detail


def _plain(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return text.number(value)
    return str(value)


def _environment(history: History) -> list[tuple[str, str]]:
    facts = {"seed": history.plan.get("seed"), **history.meta}
    return [(key, _fact(key, value)) for key, value in sorted(facts.items())]


def _fact(key: str, value: Any) -> str:
    if key == "packages" and isinstance(value, dict):
        return ", ".join(f"{name} {release}" for name, release in value.items() if release)
    if key == "command" and isinstance(value, list):
        return " ".join(map(str, value))
    if key == "tcp" and isinstance(value, dict):
        return ", ".join(f"{name} {value[name]}" for name in SETTINGS if name in value)
    if key == "memory" and isinstance(value, int):
        return text.size(value)
    if isinstance(value, str):
        return value
    return json.dumps(value)
