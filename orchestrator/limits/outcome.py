"""Whether a run survived, and how it failed, from its record."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from orchestrator import text
from orchestrator.limits.reading import Survives
from orchestrator.limits.symptom import Symptom, first_symptom
from orchestrator.record.rows import COMPLETE
from orchestrator.results.checks.programs import asked_to_end
from orchestrator.results.history import History
from orchestrator.results.summary import summary
from orchestrator.results.traffic.volumes import delivered_bytes
from orchestrator.scenario.sections.expectations import CheckName

FailureKind = Literal["crash", "hang", "slow", "wrong"]
HANG_ROUNDS = 3.0  # unimpaired rounds without a finished one
OWN_ROUNDS = 2.0  # of the run itself, the longest, without a finished one: whatever is delivered
LITTLE = 0.1  # of the bytes of an unimpaired round: heartbeats continue while nothing is done
TRUSTED_BY: tuple[CheckName, ...] = (
    "links as configured",
    "TCP as configured",
    "faults took effect",
    "links over time",
    "losses during the run",
    "rates during the run",
    "network between hosts",
    "compute on time",
    "links on time",
)
"""The checks of the links, the faults and the host. If one fails, the run says nothing about the program."""


@dataclass(frozen=True)
class Facts:
    """What a run came to. ``seconds``: of its training, ``wall``: of all of it. ``bytes``: delivered in its training.
    ``doubts``: why it does not count. ``failed``: its checks that failed, in words. ``expected``: whether all that the
    scenario expects was met. ``stopped``: when it was stopped, in s of the run. ``idle``: the seconds before that
    without a finished round. ``longest_round``: in s; 0 if none was finished."""

    run: Path
    ended: str
    error: str | None
    seconds: float
    rounds: int
    accuracy: float | None
    wall: float
    bytes: int
    doubts: tuple[str, ...]
    failed: tuple[str, ...]
    expected: bool
    stopped: float
    idle: float
    longest_round: float

    @property
    def by_time(self) -> bool:
        return self.ended == "after"

    @property
    def finished(self) -> bool:
        return self.ended in COMPLETE


@dataclass(frozen=True)
class Unimpaired:
    """What the runs without impairment came to: the scale of all others. ``accuracy``: the lowest of them, so that none
    of them is wrong by itself."""

    seconds: float
    rounds: int
    accuracy: float | None
    bytes: float
    wall: float
    by_time: bool

    @property
    def round_seconds(self) -> float:
        return self.seconds / max(1, self.rounds)

    @property
    def round_bytes(self) -> float:
        return self.bytes / max(1, self.rounds)


@dataclass(frozen=True)
class Judgement:
    """``survived``: None if the run does not count. ``why``: in words. ``kind`` and ``symptom`` of a failure."""

    survived: bool | None
    why: str
    kind: FailureKind | None = None
    symptom: Symptom | None = None


def facts(history: History) -> Facts:
    """The facts of a run that has ended by itself."""
    of_run = summary(history)
    checks = {check["name"]: check["verdict"] for check in of_run["checks"]}
    failed = [check for check in of_run["checks"] if check["verdict"] == "fail"]
    doubts = [f"{check['name']}: {check['detail']}" for check in failed if check["name"] in TRUSTED_BY]
    last = history.training_began or 0.0
    longest = 0.0
    for round in history.rounds():
        if round.end is not None and round.node in history.leaders:
            last = max(last, round.end)
            longest = max(longest, round.end - round.start)
    stopped = asked_to_end(history)
    return Facts(
        run=history.directory,
        ended=of_run["ended"] or "failed",
        error=of_run["error"],
        seconds=of_run["training_seconds"] or 0.0,
        rounds=of_run["rounds"],
        accuracy=of_run["accuracy"]["global"],
        wall=of_run["wall_seconds"] or 0.0,
        bytes=sum(of_run["bytes"].values()),
        doubts=tuple(doubts),
        failed=tuple(f"{check['name']}: {check['detail']}" for check in failed),
        expected=checks.get("result as expected") != "fail",
        stopped=stopped,
        idle=max(0.0, stopped - last),
        longest_round=longest,
    )


def unimpaired(runs: Sequence[Facts]) -> Unimpaired:
    """The scale from the runs without impairment."""
    count = len(runs)
    accuracies = [run.accuracy for run in runs if run.accuracy is not None]
    accuracy = min(accuracies, default=None)
    return Unimpaired(
        seconds=sum(run.seconds for run in runs) / count,
        rounds=min(run.rounds for run in runs),
        accuracy=accuracy,
        bytes=sum(run.bytes for run in runs) / count,
        wall=sum(run.wall for run in runs) / count,
        by_time=any(run.by_time for run in runs),
    )


def judge(
    run: Facts,
    history: History,
    survives: Survives,
    scale: Unimpaired,
    allowed: float,
) -> Judgement:
    """The judgement of a run. ``allowed``: the seconds that its training may take."""
    if run.doubts:
        return Judgement(None, f"does not count: {text.some(run.doubts)}")
    needed = survives.rounds or scale.rounds
    in_time = run.seconds <= allowed or scale.by_time
    reached = run.finished and run.rounds >= needed and (scale.by_time or not run.by_time)
    if reached and in_time:
        wrong = _wrong(run, survives, scale)
        if wrong is None:
            return Judgement(True, f"survived in {text.duration(run.seconds)}")
        return Judgement(False, wrong, "wrong", first_symptom(history))
    symptom = first_symptom(history)
    done = text.count(run.rounds, "round") if needed else "its start"
    if run.ended == "failed":
        return Judgement(False, f"failed after {done}: {run.error or 'no reason was recorded'}", "crash", symptom)
    if symptom is not None and symptom.crashed:
        return Judgement(False, f"{done} after {text.duration(run.seconds)}: {symptom.what}", "crash", symptom)
    if _hangs(run, history, scale):
        why = f"no round ended in the last {text.duration(run.idle)}, after {done}"
        return Judgement(False, why, "hang", symptom)
    so_far = f"{run.rounds} of {text.count(needed, 'round')} done" if needed else "not finished"
    return Judgement(False, f"{so_far} when the allowed {text.duration(allowed)} were over", "slow", symptom)


def _wrong(run: Facts, survives: Survives, scale: Unimpaired) -> str | None:
    """What is wrong with the result of a run that finished in time; None if nothing is."""
    if not run.expected:
        return "finished, and missed what the scenario expects"
    if survives.accuracy is None or scale.accuracy is None:
        return None
    least = scale.accuracy - survives.accuracy
    if run.accuracy is not None and run.accuracy >= least:
        return None
    return f"finished with {text.percent(run.accuracy)}, at least {text.percent(least)} are needed"


def _hangs(run: Facts, history: History, scale: Unimpaired) -> bool:
    """Whether a run was stalled at its end: no round ended for the time of several unimpaired ones, and either hardly
    anything was delivered, or two of its own rounds would have fitted too. Programs that poll are never silent."""
    patience = HANG_ROUNDS * scale.round_seconds
    if run.idle < patience:
        return False
    if run.rounds and run.idle >= OWN_ROUNDS * run.longest_round:
        return True
    delivered = delivered_since(delivered_bytes(history), run.stopped - patience)
    return delivered < LITTLE * scale.round_bytes


def delivered_since(courses: Mapping[str, Any], since: float) -> int:
    """The bytes that all links delivered after ``since``, in s of the run."""
    delivered = 0
    for times, totals in courses.values():
        if not totals:
            continue
        index = bisect_right(times, since)
        before = totals[index - 1] if index else 0
        delivered += totals[-1] - before
    return delivered
