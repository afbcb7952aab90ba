"""Invariants of every run, for any scenario. An invariant yields a sentence for each violation."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise, zip_longest
from typing import Any

from netem.tcp.path import SEGMENT
from orchestrator.record.events.run import Continued
from orchestrator.record.rows import COMPLETE, FaultSpan, Round
from orchestrator.record.schema import COUNTERS
from orchestrator.results.history import History
from orchestrator.results.traffic.volumes import link_counters, traffic
from orchestrator.verbs.results.compare import compare, run_overview
from tests.campaign.trial import Trial

Findings = Iterator[str]
Invariant = Callable[[Trial], Findings]

CODES = {"pass": 0, "unknown": 0, "fail": 3}
ENDINGS = {"failed": 1, "interrupted": 130}  # exit codes of runs that ended early, whatever their verdict
TRANSITIONS = {
    "planned": {"starting"},
    "starting": {"registered", "crashed"},
    "registered": {"running", "crashed", "done"},
    "running": {"paused", "crashed", "left", "done"},
    "paused": {"running", "crashed", "done"},
    "crashed": {"restarting", "done"},  # the last message of a node that was just done may arrive after its crash
    "restarting": {"starting"},
    "left": set(),
    "done": {"crashed"},
}
"""The states that may follow each state of a node; after an interruption all nodes start again."""
OURS = re.compile(
    r"a bug of edgebed|Traceback|\w*Warning:|never awaited|never retrieved|was destroyed but it is pending"
)
LEAST, HEADROOM = 3600.0, 50.0  # limit of a run: s of virtual time, plus this multiple of its total waiting time
MEETING = 20.0  # s in which peers connect to each other
FAREWELL = 2  # packets of messages that are not counted as traffic of nodes


def ends(trial: Trial) -> Findings:
    """Every command ends in time, with a documented exit code, and leaves nothing behind."""
    for carried in (trial.first, trial.again):
        for command in carried.commands:
            if command.code is None:
                yield "a command did not end in time"
            elif command.code not in (0, 1, 2, 3) and not (command is carried.up and trial.cut_off):
                yield f"a command ended with code {command.code}: {command.errors[-300:]}"
            if command.left:
                yield f"{command.left} processes outlived their command"
            if command.code == 2 and (carried.directory is not None or not command.errors.startswith("error: ")):
                yield f"refused, but not with one clear message: {command.errors[-300:]}"
        if carried.directory is not None:
            kept = [name for name in ("nodes", "control") if (carried.directory / name).exists()]
            if kept and carried.last.code not in (1, -9):
                yield f"{' and '.join(kept)} of the run's directory is still there"


def has_its_code(trial: Trial) -> Findings:
    """The exit code matches the verdict; a run fails only if its scenario leaves no nodes to continue."""
    if trial.first.directory is None:
        return
    history, outcome = trial.history, trial.history.outcome
    if outcome is None:
        if not trial.killed:
            yield "there is no outcome on record"
        return
    if trial.first.resumed is not None and trial.first.resumed.code == 1 and outcome.ended != "failed":
        if "cannot be continued" not in trial.first.resumed.errors:
            yield f"could not be continued: {trial.first.resumed.errors[-300:]}"
        return
    summary = _summary(trial)
    expected = ENDINGS.get(outcome.ended, CODES[summary["verdict"]])
    if trial.first.last.code != expected:
        yield f"code {trial.first.last.code} for {outcome.ended} with verdict {summary['verdict']}"
    if outcome.ended == "failed" and not ("the nodes wait for ever" in str(outcome.error) and _forsaken(history)):
        yield f"the run failed: {outcome.error}"
    if outcome.ended == "interrupted" and trial.first.resumed is not None:
        yield "the run went on, and says that it was interrupted"


def has_no_defect(trial: Trial) -> Findings:
    """There are no exceptions of edgebed and no warnings of Python."""
    for carried in (trial.first, trial.again):
        texts = {"standard error": "".join(command.errors for command in carried.commands)}
        if carried.directory is not None:
            texts |= {log.name: log.read_text() for log in sorted((carried.directory / "logs").iterdir())}
        for name, text in texts.items():
            if found := OURS.search(text):
                yield f"{name}: {text[found.start() : found.start() + 300]} ... {text.rstrip()[-300:]}"


def time_goes_on(trial: Trial) -> Findings:
    """The run's clock starts at 0, never goes back, and ends within limits."""
    for table, rows in trial.first.rows.items():
        times = [row[0] for row in rows]
        if table != "outcome" and any(later < earlier for earlier, later in pairwise(times)):
            yield f"the times of {table} go back"
        if times and not (times[0] >= 0 and all(map(math.isfinite, times))):
            yield f"the times of {table} are no times of a run"
    if trial.first.directory is None:
        return
    history = trial.history
    plan = history.plan
    waits = max(plan["gathering"]["deadlines"].values(), default=0.0) + plan["timeouts"]["lost_after"]
    faults = sum(fault["duration"] or 0.0 for fault in plan["faults"]) + max(
        (fault["at"] or 0.0 for fault in plan["faults"]), default=0.0
    )
    if history.seconds > LEAST + HEADROOM * plan["stop"]["rounds"] * waits + faults:
        yield f"it took {history.seconds:.0f} s of virtual time"
    if (after := plan["stop"]["after"]) is not None and history.training_began is not None:
        lasted = history.seconds - history.training_began
        if lasted > after + 5.0 + 1e-6:
            yield f"it trained for {lasted} s, {after} s were given"


def rounds_rise(trial: Trial) -> Findings:
    """Every coordinator counts its rounds one by one, without gaps, each begun and ended once per process life."""
    if trial.first.directory is None:
        return
    history = trial.history
    of_node: defaultdict[str, list[Round]] = defaultdict(list)
    for each in history.rounds():
        of_node[each.node].append(each)
    lives = _lives(history)
    lost = {(event.node, event.data["peer"]) for event in history.events("lost")}
    for node, rounds in of_node.items():
        for earlier, later in pairwise(rounds):
            what = f"{node} begins round {later.round} after round {earlier.round}, ended at {earlier.end}"
            if node not in history.leaders:  # it follows its parent, which may request a round again
                parent = history.nodes[node]["parent"]
                begun = max(_count(lives[each], later.start) for each in (node, parent))
                if _numbers(later) <= _numbers(earlier) and begun < 2 and (node, parent) not in lost:
                    yield what
            elif any(earlier.start <= t <= later.start for t in lives[node]):
                if later.round > earlier.round + 1:
                    yield what
            elif later.round != earlier.round + 1 or earlier.end is None:
                yield what
    done, planned, outcome = history.rounds_done(), history.rounds_planned or 0, history.outcome
    if done > planned or any(each.round > planned for each in history.rounds() if each.node in history.leaders):
        yield f"{done} rounds done of {planned}"
    if outcome is None:
        return
    left = any(history.current_states()[leader].state == "left" for leader in history.leaders)
    if outcome.ended == "rounds" and done != planned and not left:
        yield f"ended by rounds after {done} of {planned}"
    target = history.plan["stop"]["accuracy"]
    if outcome.ended == "accuracy":
        best = max((metric.value for metric in history.metrics("accuracy", "global")), default=0.0)
        if target is None or best < target:
            yield f"ended by accuracy {best}, asked {target}"


def _numbers(each: Round) -> tuple[int, int]:
    """(round, edge round); the edge round is 0 if edges have only one per round."""
    return each.round, each.edge_round or 0


def faults_are_told(trial: Trial) -> Findings:
    """Every planned fault took effect, was skipped with a reason, or was not due; each one that began ended, unless the
    run ended first."""
    if trial.first.directory is None:
        return
    history = trial.history
    ended = history.outcome.t if history.outcome is not None else history.seconds
    began = history.training_began
    last_round = max((each.round for each in history.rounds() if each.node in history.leaders), default=0)
    stopped = _stopped(history)
    for span in history.faults():
        what = f"fault {span.id} ({span.action} {span.target})"
        at, round = span.planned["at"], span.planned["round"]
        if span.start is not None and span.skipped is not None:
            yield f"{what} was made and skipped"
        if span.skipped is not None and not span.detail:
            yield f"{what} was skipped without a reason"
        if span.start is None and span.skipped is None:
            if at is not None and began is not None and began + at < stopped:
                yield f"{what} was due at {began + at} s, and nothing is told of it"
            if round is not None and round < last_round:
                yield f"{what} was due in round {round}, and nothing is told of it"
        if span.start is not None and span.end is None and _is_over(span, history, stopped):
            yield f"{what} began at {span.start} s and has not ended by {ended} s"
        if at is None or began is None or span.start is None or span.action == "join" or _parts(history):
            continue
        if abs(span.start - began - at) > 1e-6:
            yield f"{what} was due {at} s after the start, and made after {span.start - began} s"
    for (id,), count in Counter(row[1:2] for row in trial.first.rows["fault"] if row[4] == "start").items():
        if count > 1:
            yield f"fault {id} began {count} times"


def states_follow(trial: Trial) -> Findings:
    """The states of each node follow one another as `TRANSITIONS` allows."""
    if trial.first.directory is None:
        return
    history = trial.history
    now = dict.fromkeys(history.nodes, "planned")
    parts = iter([*_parts(history), math.inf])
    cut = next(parts)
    for t, node, state, detail in history.states():
        while t >= cut and state == "starting" and now[node] not in ("planned", "restarting"):
            now, cut = dict.fromkeys(history.nodes, "planned"), next(parts)
        if state not in TRANSITIONS[now[node]]:
            yield f"{node} is {state} ({detail}) at {t} s after it was {now[node]}"
        now[node] = state


def bytes_add_up(trial: Trial) -> Findings:
    """No node receives bytes that were not sent, and every packet of a link is delivered, dropped, or on its way with a
    message that was not received when the run ended."""
    if trial.first.directory is None:
        return
    history = trial.history
    told_all = _told_all(history, trial)
    flows = {(row.node, row.peer, row.kind, row.direction): row for row in traffic(history)}
    for (node, peer, kind, direction), row in flows.items():
        sent = flows.get((peer, node, kind, "sent"))
        if direction == "received" and told_all[peer] and (sent is None or row.bytes > sent.bytes):
            yield (
                f"{node} has {row.messages} {kind} ({row.bytes} bytes) of {peer}, who sent "
                f"{0 if sent is None else sent.messages} ({0 if sent is None else sent.bytes} bytes)"
            )
    carried: Counter[tuple[str, str]] = Counter()
    on_its_way: Counter[tuple[str, str]] = Counter()  # packets of messages that were sent and not received
    for row in flows.values():
        if row.direction == "received":
            carried[row.peer, row.node] += row.bytes
            on_its_way[row.peer, row.node] -= row.bytes // SEGMENT + row.messages
        else:
            on_its_way[row.node, row.peer] += row.bytes // SEGMENT + row.messages
    for link in link_counters(history):
        where = f"{link.source} → {link.target}"
        gone = link.lost + link.overflowed + link.cut_dropped
        left = link.offered + link.duplicated - link.delivered - gone
        if left < 0 or (left > on_its_way[link.source, link.target] + FAREWELL and all(told_all.values())):
            yield f"{where}: {link.offered} and {link.duplicated} packets, {link.delivered} delivered, {gone} gone"
        if min(getattr(link, counter) for counter in COUNTERS) < 0:
            yield f"{where} counts below 0: {link}"
        whole = not trial.killed and not _parts(history)  # else counters may be older than messages
        if whole and link.delivered_bytes < carried[link.source, link.target]:
            yield (
                f"{where} delivered {link.delivered_bytes} bytes, the messages received had "
                f"{carried[link.source, link.target]}"
            )


def peers_meet_again(trial: Trial) -> Findings:
    """Peers that lost each other reconnect once no fault separates them."""
    if trial.first.directory is None:
        return
    history = trial.history
    stopped = _stopped(history)
    apart: dict[tuple[str, str], float] = {}
    for event in history.events("joined", "lost", "left"):
        ends = event.node or "", str(event.data["peer"])
        if event.name == "lost":
            apart[ends] = event.t
        else:
            apart.pop(ends, None)
    states = history.current_states()
    scheduled = {(link["source"], link["target"]) for link in history.plan["links"] if "schedule" in link}
    for (node, peer), lost in apart.items():
        if {(node, peer), (peer, node)} & scheduled or not all(states[end].state == "done" for end in (node, peer)):
            continue
        free = max([lost, *(_until(span) for span in history.faults() if {node, peer} & set(span.nodes))])
        starts = [state.t for state in history.states() if state.node in (node, peer) and state.state == "starting"]
        over = [state.t for state in history.states() if state.node in (node, peer) and state.state == "done"]
        if max([free, *starts]) + MEETING < min([stopped, *over]):
            yield f"{node} lost {peer} at {lost} s, nothing has kept them apart since {free} s, and they did not meet"


def figures_are_numbers(trial: Trial) -> Findings:
    """Accuracies are fractions; if a metric is not finite, some check does not pass."""
    if trial.first.directory is None:
        return
    checks = _summary(trial)["checks"] if trial.history.outcome is not None else []
    for t, node, _, scope, name, value in trial.first.rows["metric"]:
        if value is None or not math.isfinite(value):
            if all(check["verdict"] == "pass" for check in checks):
                yield f"{name} ({scope}) of {node} is {value} at {t} s, and every check passes"
        elif name == "accuracy" and not 0 <= value <= 1:
            yield f"accuracy ({scope}) of {node} is {value} at {t} s"


def is_judged(trial: Trial) -> Findings:
    """No check crashed, summary.json is valid JSON, the report exists, and the run compares equal to itself."""
    if trial.first.directory is None or trial.history.outcome is None:
        return
    directory = trial.first.directory
    summary = _summary(trial)
    for check in summary["checks"]:
        if "itself broke" in check["detail"]:
            yield f"{check['name']}: {check['detail']}"
    if not (directory / "report.html").exists() or (directory / "report.html").stat().st_size < 10_000:
        yield "there is no report"
    comparison = compare(run_overview(trial.history), run_overview(trial.history))
    if not comparison.both.same_scenario or any(row.change for row in comparison.rows):
        yield f"it is not like itself: {comparison}"
    json.dumps(comparison.to_json(), allow_nan=False)


def repeats(trial: Trial) -> Findings:
    """A process with another hash seed and another number of workers writes the same record."""
    if trial.killed:
        return
    codes = [[command.code for command in each.commands] for each in (trial.first, trial.again)]
    if codes[0] != codes[1]:
        yield f"it ended with {codes[0]}, and with {codes[1]} when repeated"
    one, other = trial.first.rows, trial.again.rows
    for table in one.keys() | other.keys():
        for number, (row, same) in enumerate(zip_longest(one.get(table, []), other.get(table, []))):
            if row != same:
                yield f"row {number} of {table} is {row}, and {same} when repeated"
                break


INVARIANTS: dict[str, Invariant] = {
    invariant.__name__: invariant
    for invariant in (
        ends,
        has_no_defect,
        has_its_code,
        time_goes_on,
        rounds_rise,
        faults_are_told,
        states_follow,
        bytes_add_up,
        peers_meet_again,
        figures_are_numbers,
        is_judged,
        repeats,
    )
}


def broken(trial: Trial) -> dict[str, list[str]]:
    """The violated invariants, with their sentences."""
    return {name: found for name, invariant in INVARIANTS.items() if (found := list(invariant(trial)))}


def _summary(trial: Trial) -> dict[str, Any]:
    assert trial.first.directory is not None

    def refuse(constant: str) -> None:
        raise ValueError(f"summary.json holds {constant}, which is not JSON")

    summary: dict[str, Any] = json.loads((trial.first.directory / "summary.json").read_text(), parse_constant=refuse)
    return summary


def _parts(history: History) -> list[float]:
    """The times at which the run continued after an interruption."""
    return [event.t for event in history.events(Continued.NAME)]


def _lives(history: History) -> defaultdict[str, list[float]]:
    """The times at which each node started."""
    lives: defaultdict[str, list[float]] = defaultdict(list)
    for state in history.states():
        if state.state == "starting":
            lives[state.node].append(state.t)
    return lives


def _count(times: list[float], end: float) -> int:
    return sum(t <= end for t in times)


def _stopped(history: History) -> float:
    """The time at which the nodes were asked to end; faults that are due later do not happen."""
    if history.outcome is None or history.outcome.ended not in COMPLETE:
        return 0.0
    asked = [event.t for event in history.events("schedule ended")]
    return min(asked, default=history.training_ended)


def _is_over(span: FaultSpan, history: History, stopped: float) -> bool:
    """Whether a fault that began should have ended during the run."""
    assert span.start is not None
    if _parts(history) or span.action in ("join", "leave"):
        return False
    if span.planned["lasts_a_round"]:
        begun = [
            each.start
            for each in history.rounds()
            if each.node in history.leaders and each.round > (span.planned["round"] or 0)
        ]
        return any(start < stopped for start in begun)
    duration = span.planned["duration"]
    return duration is not None and span.start + duration < stopped


def _until(span: FaultSpan) -> float:
    """The time at which a fault was over; infinity if it did not end."""
    if span.start is None:
        return 0.0
    return math.inf if span.end is None and span.action not in ("join", "leave") else span.end or span.start


def _forsaken(history: History) -> bool:
    """Whether faults have permanently removed a leading node, or all other nodes."""
    away = {
        node
        for span in history.faults()
        for node in span.nodes
        if (span.action in ("crash", "pause") and span.start is not None and span.end is None)
        or (span.action == "join" and span.start is None)
    }
    left = {node for span in history.faults() for node in span.nodes if span.action == "leave"}
    needed = {*history.leaders}
    return not away.isdisjoint(needed) or away | left >= history.nodes.keys() - needed


def _told_all(history: History, trial: Trial) -> dict[str, bool]:
    """Whether each node reported all of its traffic, which it does if it ends before its run."""
    last = {state.node: state.state for state in history.states()}
    return {node: not trial.killed and last.get(node) in ("done", "left", "crashed") for node in history.nodes}
