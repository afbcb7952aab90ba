"""The file expected.json of an archive: the figures of each run, and their tolerances for a repetition."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from node.files import read_untrusted
from orchestrator.errors import ArchiveError, MistakeError, RunError
from orchestrator.record.rows import COMPLETE
from orchestrator.record.schema import LONGEST_DOCUMENT
from orchestrator.results.checks.registry import checks, overall
from orchestrator.results.history import History
from orchestrator.scenario.language.strict import Strict
from orchestrator.scenario.sections.drivers import kind_of
from orchestrator.sweep.quantities import figures
from orchestrator.sweep.reading import Target

FILE = "expected.json"
_POINTS = ("final.", "best.")


class ExpectedFigure(Strict):
    """A figure, and its tolerance. It applies to real nodes and to another kind of processor."""

    expected: float
    tolerance: float


class ExpectedRun(Strict):
    """The result of a run."""

    case: str
    seed: int
    driver: str
    verdict: str
    figures: dict[str, ExpectedFigure]


class Expected(Strict):
    """The content of expected.json: the results of the runs by their ids, and the target of their sweep."""

    target: Target | None = None
    runs: dict[str, ExpectedRun]


@dataclass(frozen=True)
class RunDifference:
    """A difference between a repetition and the archive. ``expected`` and ``actual`` are texts to print."""

    run: str
    figure: str
    expected: str
    actual: str


def read_expected(file: Path) -> Expected:
    """Read an archive's expected.json. ArchiveError if it cannot be read."""
    try:
        text = read_untrusted(file, LONGEST_DOCUMENT)
        return Expected.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        steps = map(str, first["loc"])
        where = ".".join(steps)
        raise ArchiveError(f"{FILE} of the archive cannot be read: {where}: {first['msg']}") from None
    except OSError as error:
        raise ArchiveError(f"{FILE} of the archive cannot be read: {error.strerror}") from None


def expected_run(
    history: History,
    target: Target | None,
    tolerances: Mapping[str, str | float],
) -> ExpectedRun:
    """The result of a complete run. ``tolerances``: see `tolerance_of`. RunError if the run is not complete."""
    if history.outcome is None or history.outcome.ended not in COMPLETE:
        raise RunError(f"{history.run} is not complete, so it has no result to expect: run it again")
    expected = {}
    for name, value in figures(history, target).items():
        if name == "wall_seconds":
            continue
        tolerance = tolerance_of(name, value, tolerances)
        expected[name] = ExpectedFigure(expected=value, tolerance=tolerance)
    case = history.meta.get("case", history.plan["name"])
    return ExpectedRun(
        case=str(case),
        seed=history.plan["seed"],
        driver=history.driver,
        verdict=overall(checks(history)),
        figures=expected,
    )


def tolerance_of(
    name: str,
    value: float,
    tolerances: Mapping[str, str | float],
) -> float:
    """The tolerance of a figure. ``tolerances`` has numbers, or percentages of a figure. The default is two points for
    accuracies. For others it is a tenth of the figure, but at least one round, one second, or 0.02. MistakeError if a
    tolerance is not a number."""
    if name in tolerances:
        written = str(tolerances[name])  # a program may give a number
        try:
            number = float(written.removesuffix("%"))
        except ValueError:
            number = math.nan
        if not 0 <= number < math.inf:
            raise MistakeError(f"tolerance: {name}: '{written}' is no tolerance: write 0.03 or 5%")
        if written.endswith("%"):
            return number / 100 * abs(value)
        return number
    if name.startswith(_POINTS):
        return 0.02
    if name.endswith(("rounds", "seconds")):
        least = 1.0
    else:
        least = 0.02
    return max(abs(value) / 10, least)


def inexact(archived: History, repeated: History) -> list[str]:
    """The reasons why two runs may have different figures; empty if they must be equal to the last bit."""
    if not kind_of(repeated.driver).simulated:
        return ["real nodes"]
    on_accelerator = any("device" in node for node in repeated.plan["nodes"])
    if on_accelerator:
        return ["training on an accelerator"]
    before = facts(archived.meta)
    after = facts(repeated.meta)
    reasons = []
    for key, value in before.items():
        if value != after.get(key):
            reasons.append(f"{key}: {value}, here {after.get(key)}")
    return reasons


def facts(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The processor, the minor version of Python, and the versions of packages that a simulation computes with."""
    packages = meta.get("packages") or {}
    version = str(meta.get("python"))
    major_and_minor = version.split(".")[:2]
    return {
        "processor": meta.get("cpu"),
        "Python": ".".join(major_and_minor),
        **packages,
    }


def differences(
    name: str,
    expected: ExpectedRun,
    repeated: ExpectedRun,
    *,
    exact: bool,
) -> Iterator[RunDifference]:
    """The figures of a repetition that differ by more than their tolerance, or at all if ``exact``. The verdict is
    compared if ``exact``, or if the checks of the repetition failed."""
    for key, figure in expected.figures.items():
        tolerance = 0.0 if exact else figure.tolerance
        repeated_figure = repeated.figures.get(key)
        if repeated_figure is None:
            actual = "–"
        elif abs(repeated_figure.expected - figure.expected) <= tolerance:
            continue
        else:
            actual = f"{repeated_figure.expected!r}"
        wanted = f"{figure.expected!r}"
        if tolerance:
            wanted += f" ± {tolerance:g}"
        yield RunDifference(name, key, wanted, actual)
    verdict_counts = exact or repeated.verdict == "fail"
    if verdict_counts and repeated.verdict != expected.verdict:
        yield RunDifference(name, "verdict", expected.verdict, repeated.verdict)
