"""The figures of one run that a sweep compares, their mean and standard deviation over runs, and the comparison of
cases."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from orchestrator.exports.scalars import settings
from orchestrator.results.evaluation.targets import Judged, accuracy_series, bytes_between, reached
from orchestrator.results.facts import DEVICE_SCOPES
from orchestrator.results.history import History
from orchestrator.results.means import mean
from orchestrator.results.summary import evaluations
from orchestrator.results.traffic import volumes
from orchestrator.sweep.reading import Combination, Target
from orchestrator.sweep.statistics import PairedDifference, available, holm, paired, restricted

Figures = Mapping[str, float]
"""By name: ``final.global``, ``best.clients`` (fractions), ``to_target.seconds`` ... Missing figures are left out."""

_TO_TARGET = "to_target."
REACHED = f"{_TO_TARGET}reached"
COMPARED = ("final.global", "final.clients", "final.edges", f"{_TO_TARGET}rounds", f"{_TO_TARGET}seconds")
"""The figures in which cases are compared."""


@dataclass(frozen=True)
class Result:
    """The result of one combination. If its run did not complete, ``verdict`` is None and ``error`` has the reason."""

    combination: Combination
    run: Path | None
    verdict: str | None
    error: str | None
    figures: Figures

    @property
    def failed(self) -> bool:
        return self.error is not None

    def to_json(self) -> dict[str, Any]:
        return {
            "seed": self.combination.seed,
            "run": None if self.run is None else str(self.run),
            "verdict": self.verdict,
            "error": self.error,
            "figures": dict(self.figures),
        }


@dataclass(frozen=True)
class Spread:
    """The mean of a figure over ``count`` runs, and their sample standard deviation; None for a single run.

    ``censored``: how many of these runs never reached the target, if the figure is a time or size until then. Such a
    mean is a lower bound (`restrict`).
    """

    mean: float
    deviation: float | None
    count: int
    censored: int = 0


@dataclass(frozen=True)
class Comparison:
    """A case minus its reference, in one of the figures ``COMPARED``. ``p_holm``: the p-value, adjusted for all
    comparisons of the sweep; None as in `PairedDifference`."""

    figure: str
    case: str
    reference: str
    difference: PairedDifference
    p_holm: float | None

    def row(self) -> dict[str, Any]:
        found = self.difference
        return {
            **{"figure": self.figure, "case": self.case, "reference": self.reference, "seeds": len(found.by_seed)},
            **{"difference": found.mean, "low": found.low, "high": found.high},
            **{"p_value": found.p_value, "p_holm": self.p_holm, "smallest": found.smallest},
        }


def figures(history: History, target: Target | None) -> Figures:
    """The figures of a run. Bytes are those delivered by each class of links in training, headers included.

    ``final.``, ``best.``: accuracy of global, clients, edges. ``best.target``: best accuracy in the target's scope.
    ``reported.``: by scope and name, the last values in scopes of the algorithm itself, mean over the nodes.
    ``rounds``; ``seconds`` of training; ``wall_seconds`` of the host. ``bytes_per_round.``: by link class.
    ``message_bytes.``: mean bytes of a message, by its kind.
    ``to_target.``: rounds, seconds, bytes.link class until the target was reached, or until the end without
    (``to_target.reached`` is 1 or 0).
    ``population.``, ``personalisation.``, ``privacy.``, ``inversion.``: the numbers under these names in the run's
    summary, if any.
    """
    found: dict[str, float] = {}
    for judged in get_args(Judged):
        values = [metric.value for metric in accuracy_series(history, judged) if math.isfinite(metric.value)]
        if values:
            found |= {f"final.{judged}": values[-1], f"best.{judged}": max(values)}
    found |= _reported(history)
    began = history.training_began or 0.0
    ended = history.training_ended
    rounds = history.rounds_done()
    found |= {"rounds": rounds, "seconds": ended - began}
    if history.outcome is not None and history.outcome.wall is not None:
        found["wall_seconds"] = history.outcome.wall
    if rounds:
        delivered = bytes_between(history, began, history.seconds)
        found |= {f"bytes_per_round.{name}": count / rounds for name, count in delivered.items()}
    found |= _message_bytes(history)
    if target is not None:
        found |= _to_target(history, target, began, ended)
    return found | _numbers(evaluations(history))


def _reported(history: History) -> dict[str, float]:
    found = {}
    for scope, name in history.metric_names():
        if scope not in (*DEVICE_SCOPES, "updates"):
            reports = history.metrics(name, scope)
            latest = {metric.node: metric.value for metric in reports if history.counts(metric.node)}
            if latest:
                found[f"reported.{scope}.{name}"] = mean(latest.values())
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _message_bytes(history: History) -> dict[str, float]:
    messages = Counter[str]()
    sizes = Counter[str]()
    for row in volumes.traffic(history):
        messages[row.kind] += row.messages
        sizes[row.kind] += row.bytes
    return {f"message_bytes.{kind}": sizes[kind] / count for kind, count in messages.items() if count}


def _numbers(facts: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers in nested mappings, by dotted path."""
    numbers = {path: fact for path, fact in settings(facts) if isinstance(fact, int | float)}
    return {path: fact for path, fact in numbers.items() if not isinstance(fact, bool) and math.isfinite(fact)}


def _to_target(history: History, target: Target, began: float, ended: float) -> dict[str, float]:
    series = [metric for metric in accuracy_series(history, target.judged) if math.isfinite(metric.value)]
    if not series:
        return {}
    made = reached(history, series, target.accuracy)
    rounds = history.rounds_done() if made is None else made.round
    if made is None:
        sent = bytes_between(history, began, history.seconds)
    else:
        sent = made.bytes
    return {
        "best.target": max(metric.value for metric in series),
        REACHED: float(made is not None),
        **({} if rounds is None else {f"{_TO_TARGET}rounds": rounds}),
        f"{_TO_TARGET}seconds": ended - began if made is None else made.seconds,
        **{f"{_TO_TARGET}bytes.{name}": count for name, count in sent.items()},
    }


def spreads(runs: Sequence[Figures]) -> dict[str, Spread]:
    """The spread of each figure over the runs that have it, with restricted means to the target."""
    found = {}
    runs = restrict(runs)
    for name in dict.fromkeys(name for run in runs for name in run):
        own = [run for run in runs if name in run]
        values = [run[name] for run in own]
        if len(values) > 1:
            deviation = statistics.stdev(values)
        else:
            deviation = None
        if _until_target(name):
            censored = sum(not run.get(REACHED, 1) for run in own)
        else:
            censored = 0
        found[name] = Spread(statistics.fmean(values), deviation, len(values), censored)
    return found


def restrict(runs: Sequence[Figures]) -> list[Figures]:
    """The runs, with times and sizes until the target cut where the first run ended that never reached it."""
    found = [dict(run) for run in runs]
    for name in {name for run in runs for name in run if _until_target(name)}:
        own = [run for run in found if name in run]
        cut = restricted([run[name] for run in own], [bool(run.get(REACHED, 1)) for run in own])
        for run, value in zip(own, cut, strict=True):
            run[name] = value
    return list(found)


def _until_target(name: str) -> bool:
    return name.startswith(_TO_TARGET) and name != REACHED


def judged_by(results: Iterable[Result]) -> Judged:
    """The first kind of test set on which a run reports its accuracy."""
    found = {name for each in results for name in each.figures}
    return next((each for each in get_args(Judged) if f"final.{each}" in found), "global")


def compare(results: Sequence[Result]) -> list[Comparison]:
    """Each case minus its reference, over the seeds with which both have complete runs. A pair of cases that never
    reached the target is not compared in it. Empty without SciPy."""
    if not available():
        return []
    runs: dict[str, dict[int, Figures]] = {}
    for each in results:
        if not each.failed:
            runs.setdefault(each.combination.case, {})[each.combination.seed] = each.figures
    pairs = {each.combination.case: each.combination.reference for each in results if each.combination.reference}
    found: list[tuple[str, str, str, PairedDifference]] = []
    for case, reference in pairs.items():
        of_case = runs.get(case, {})
        of_reference = runs.get(reference, {})
        for figure in COMPARED:
            seeds = [seed for seed in of_case if figure in of_case[seed] and figure in of_reference.get(seed, {})]
            both = restrict([of_case[seed] for seed in seeds] + [of_reference[seed] for seed in seeds])
            if not seeds:
                continue
            values = [run[figure] for run in both]
            a, b = (dict(zip(seeds, part, strict=True)) for part in (values[: len(seeds)], values[len(seeds) :]))
            if a == b and not all(run.get(REACHED, 1) for run in both):
                continue
            found.append((figure, case, reference, paired(a, b)))
    tested = [difference.p_value for *_, difference in found if difference.p_value is not None]
    adjusted = dict(zip(tested, holm(tested), strict=True))
    return [Comparison(*each, None if (p := each[3].p_value) is None else adjusted[p]) for each in found]
