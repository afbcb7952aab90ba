"""The figures of one run that a sweep compares, their mean and standard deviation over runs, and the comparison of
cases."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
        difference = self.difference
        return {
            "figure": self.figure,
            "case": self.case,
            "reference": self.reference,
            "seeds": len(difference.by_seed),
            "difference": difference.mean,
            "low": difference.low,
            "high": difference.high,
            "p_value": difference.p_value,
            "p_holm": self.p_holm,
            "smallest": difference.smallest,
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
    figures: dict[str, float] = {}
    for judged in get_args(Judged):
        series = accuracy_series(history, judged)
        values = [metric.value for metric in series if math.isfinite(metric.value)]
        if values:
            figures[f"final.{judged}"] = values[-1]
            figures[f"best.{judged}"] = max(values)
    figures |= _reported(history)
    began = history.training_began or 0.0
    ended = history.training_ended
    rounds = history.rounds_done()
    figures["rounds"] = rounds
    figures["seconds"] = ended - began
    if history.outcome is not None and history.outcome.wall is not None:
        figures["wall_seconds"] = history.outcome.wall
    if rounds:
        delivered = bytes_between(history, began, history.seconds)
        for link_class, count in delivered.items():
            figures[f"bytes_per_round.{link_class}"] = count / rounds
    figures |= _message_bytes(history)
    if target is not None:
        figures |= _to_target(history, target, began, ended)
    return figures | _numbers(evaluations(history))


def _reported(history: History) -> dict[str, float]:
    figures = {}
    for scope, name in history.metric_names():
        if scope in (*DEVICE_SCOPES, "updates"):
            continue
        latest = {}
        for metric in history.metrics(name, scope):
            if history.counts(metric.node):
                latest[metric.node] = metric.value
        if not latest:
            continue
        value = mean(latest.values())
        if math.isfinite(value):
            figures[f"reported.{scope}.{name}"] = value
    return figures


def _message_bytes(history: History) -> dict[str, float]:
    messages = Counter[str]()
    sizes = Counter[str]()
    for row in volumes.traffic(history):
        messages[row.kind] += row.messages
        sizes[row.kind] += row.bytes
    figures = {}
    for kind, count in messages.items():
        if count:
            figures[f"message_bytes.{kind}"] = sizes[kind] / count
    return figures


def _numbers(facts: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers in nested mappings, by dotted path."""
    numbers = {}
    for path, fact in settings(facts):
        is_number = isinstance(fact, int | float) and not isinstance(fact, bool)
        if is_number and math.isfinite(fact):
            numbers[path] = fact
    return numbers


def _to_target(
    history: History,
    target: Target,
    began: float,
    ended: float,
) -> dict[str, float]:
    series = []
    for metric in accuracy_series(history, target.judged):
        if math.isfinite(metric.value):
            series.append(metric)
    if not series:
        return {}
    milestone = reached(history, series, target.accuracy)
    rounds: int | None
    if milestone is None:
        rounds = history.rounds_done()
        seconds = ended - began
        delivered = bytes_between(history, began, history.seconds)
    else:
        rounds = milestone.round
        seconds = milestone.seconds
        delivered = milestone.bytes
    figures = {
        "best.target": max(metric.value for metric in series),
        REACHED: float(milestone is not None),
    }
    if rounds is not None:
        figures[f"{_TO_TARGET}rounds"] = rounds
    figures[f"{_TO_TARGET}seconds"] = seconds
    for link_class, count in delivered.items():
        figures[f"{_TO_TARGET}bytes.{link_class}"] = count
    return figures


def spreads(runs: Sequence[Figures]) -> dict[str, Spread]:
    """The spread of each figure over the runs that have it, with restricted means to the target."""
    spread_of = {}
    runs = restrict(runs)
    names: dict[str, None] = {}  # in the order in which they first occur
    for run in runs:
        names |= dict.fromkeys(run)
    for name in names:
        own = [run for run in runs if name in run]
        values = [run[name] for run in own]
        deviation = None
        if len(values) > 1:
            deviation = statistics.stdev(values)
        censored = 0
        if _until_target(name):
            censored = sum(not run.get(REACHED, 1) for run in own)
        mean = statistics.fmean(values)
        spread_of[name] = Spread(mean, deviation, len(values), censored)
    return spread_of


def restrict(runs: Sequence[Figures]) -> list[Figures]:
    """The runs, with times and sizes until the target cut where the first run ended that never reached it."""
    restricted_runs = [dict(run) for run in runs]
    names: set[str] = set()
    for run in runs:
        names.update(filter(_until_target, run))
    for name in names:
        own = [run for run in restricted_runs if name in run]
        values = []
        has_reached = []
        for run_with_name in own:
            values.append(run_with_name[name])
            has_reached.append(bool(run_with_name.get(REACHED, 1)))
        cut_values = restricted(values, has_reached)
        for cut_run, value in zip(own, cut_values, strict=True):
            cut_run[name] = value
    return list(restricted_runs)


def _until_target(name: str) -> bool:
    return name.startswith(_TO_TARGET) and name != REACHED


def judged_by(results: Iterable[Result]) -> Judged:
    """The first kind of test set on which a run reports its accuracy."""
    names: set[str] = set()
    for result in results:
        names.update(result.figures)
    kinds: tuple[Judged, ...] = get_args(Judged)
    for judged in kinds:
        if f"final.{judged}" in names:
            return judged
    return "global"


def compare(results: Sequence[Result]) -> list[Comparison]:
    """Each case minus its reference, over the seeds with which both have complete runs. A pair of cases that never
    reached the target is not compared in it. Empty without SciPy."""
    if not available():
        return []
    runs: dict[str, dict[int, Figures]] = {}
    references: dict[str, str] = {}
    for result in results:
        combination = result.combination
        if not result.failed:
            runs.setdefault(combination.case, {})[combination.seed] = result.figures
        if combination.reference:
            references[combination.case] = combination.reference
    comparisons: list[Comparison] = []
    for case, reference in references.items():
        of_case = runs.get(case, {})
        of_reference = runs.get(reference, {})
        for figure in COMPARED:
            difference = _difference(figure, of_case, of_reference)
            if difference is not None:
                comparison = Comparison(figure, case, reference, difference, None)
                comparisons.append(comparison)
    return _adjusted(comparisons)


def _adjusted(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The comparisons with p-values that are adjusted for all of them."""
    comparisons = list(comparisons)
    tested = []
    for comparison in comparisons:
        p_value = comparison.difference.p_value
        if p_value is not None:
            tested.append(p_value)
    p_holm = dict(zip(tested, holm(tested), strict=True))
    adjusted = []
    for comparison in comparisons:
        p_value = comparison.difference.p_value
        if p_value is not None:
            comparison = replace(comparison, p_holm=p_holm[p_value])
        adjusted.append(comparison)
    return adjusted


def _difference(
    figure: str,
    of_case: Mapping[int, Figures],
    of_reference: Mapping[int, Figures],
) -> PairedDifference | None:
    """The difference of two cases, with their runs by seed; None if there is nothing to compare."""
    seeds = []
    for seed, run in of_case.items():
        reference_run = of_reference.get(seed, {})
        if figure in run and figure in reference_run:
            seeds.append(seed)
    if not seeds:
        return None
    case_runs = [of_case[seed] for seed in seeds]
    reference_runs = [of_reference[seed] for seed in seeds]
    both = restrict(case_runs + reference_runs)
    case_values = {}
    reference_values = {}
    for place, seed in enumerate(seeds):
        case_run = both[place]
        reference_run = both[place + len(seeds)]
        case_values[seed] = case_run[figure]
        reference_values[seed] = reference_run[figure]
    all_reached = all(run.get(REACHED, 1) for run in both)
    if case_values == reference_values and not all_reached:
        return None
    return paired(case_values, reference_values)
