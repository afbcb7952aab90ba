"""The figures of one run that a sweep compares, and their mean and standard deviation over runs."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from orchestrator.results.evaluation.inversion import inversion
from orchestrator.results.evaluation.personalisation import personalisation
from orchestrator.results.evaluation.population import population
from orchestrator.results.evaluation.privacy import privacy
from orchestrator.results.evaluation.targets import Judged, accuracy_series, bytes_between, reached
from orchestrator.results.record.history import History
from orchestrator.results.traffic import volumes
from orchestrator.sweep.reading import Combination, Target

Figures = Mapping[str, float]
"""By name: ``final.global``, ``best.clients`` (fractions), ``to_target.seconds`` ... Missing figures are left out."""


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
    """The mean of a figure over ``count`` runs, and their sample standard deviation; None for a single run."""

    mean: float
    deviation: float | None
    count: int


def figures(history: History, target: Target | None) -> Figures:
    """The figures of a run. Bytes are those delivered by each class of links in training, headers included.

    ``final.``, ``best.``: accuracy of global, clients, edges. ``best.target``: best accuracy in the target's scope.
    ``rounds``; ``seconds`` of training; ``wall_seconds`` of the host. ``bytes_per_round.``: by link class.
    ``message_bytes.``: mean bytes of a message, by its kind. ``to_target.``: rounds, seconds, bytes.link class, if the
    target was reached.
    ``population.``, ``personalisation.``, ``privacy.``, ``inversion.``: the numbers under these names in the run's
    summary, if any.
    """
    found: dict[str, float] = {}
    for judged in get_args(Judged):
        values = [metric.value for metric in accuracy_series(history, judged) if math.isfinite(metric.value)]
        if values:
            found |= {f"final.{judged}": values[-1], f"best.{judged}": max(values)}
    began, ended, rounds = history.training_began or 0.0, history.training_ended, history.rounds_done()
    found |= {"rounds": rounds, "seconds": ended - began}
    if history.outcome is not None and history.outcome.wall is not None:
        found["wall_seconds"] = history.outcome.wall
    if rounds:
        delivered = bytes_between(history, began, history.seconds)
        found |= {f"bytes_per_round.{name}": count / rounds for name, count in delivered.items()}
    found |= _message_bytes(history)
    if target is not None:
        found |= _to_target(history, target)
    about = {
        "population": population(history),
        "personalisation": personalisation(history),
        "privacy": privacy(history),
        "inversion": inversion(history),
    }
    return found | _numbers(about)


def _message_bytes(history: History) -> dict[str, float]:
    messages, sizes = Counter[str](), Counter[str]()
    for row in volumes.traffic(history):
        messages[row.kind] += row.messages
        sizes[row.kind] += row.bytes
    return {f"message_bytes.{kind}": sizes[kind] / count for kind, count in messages.items() if count}


def _numbers(facts: Mapping[str, Any], above: str = "") -> dict[str, float]:
    """The numbers in nested mappings, by dotted path."""
    found: dict[str, float] = {}
    for name, fact in facts.items():
        if isinstance(fact, Mapping):
            found |= _numbers(fact, f"{above}{name}.")
        elif isinstance(fact, int | float) and not isinstance(fact, bool) and math.isfinite(fact):
            found[f"{above}{name}"] = fact
    return found


def _to_target(history: History, target: Target) -> dict[str, float]:
    series = [metric for metric in accuracy_series(history, target.judged) if math.isfinite(metric.value)]
    best = {"best.target": max(metric.value for metric in series)} if series else {}
    made = reached(history, series, target.accuracy)
    if made is None:
        return best
    rounds = {} if made.round is None else {"to_target.rounds": made.round}
    sent = {f"to_target.bytes.{name}": count for name, count in made.bytes.items()}
    return {**best, **rounds, "to_target.seconds": made.seconds, **sent}


def spreads(runs: Sequence[Figures]) -> dict[str, Spread]:
    """The spread of each figure over the runs that have it."""
    found = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        values = [run[name] for run in runs if name in run]
        deviation = statistics.stdev(values) if len(values) > 1 else None
        found[name] = Spread(statistics.fmean(values), deviation, len(values))
    return found
