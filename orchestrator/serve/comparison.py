"""Several runs side by side, or those of a sweep: curves over one another, or as bands over the seeds. JSON values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.errors import RecordError
from orchestrator.record.directory import RunDirectory
from orchestrator.report.marks import Figure
from orchestrator.results.history import History
from orchestrator.sweep.curves import RunCurve, curve_of
from orchestrator.sweep.drawing import both_curves, looks
from orchestrator.sweep.quantities import spreads
from orchestrator.verbs.results.compare import RunOverview, compare_many, run_overview, shown_setting
from orchestrator.verbs.results.export import read_table

METRICS = ("accuracy", "loss")
LABEL_SETTINGS = 3  # settings that name a case
LONGEST = 60  # characters of a case's name
NAMES = ("name",)  # settings that make no case
SEED = "seed"

Key = tuple[str, ...]  # the differing settings of a case
Json = dict[str, Any]
Cases = dict[str, list[str]]  # the runs of each case, by its name
Figures = dict[str, Figure]
Curves = Mapping[str, RunCurve]  # by run
Row = Mapping[str, Any]  # a run of the table


def several(
    runs: Mapping[str, RunDirectory],
    *,
    over_seeds: bool | None,
    named: Mapping[str, str] | None = None,
) -> Json:
    """Runs side by side, by their names: results, settings that differ, and the curves of the global model as figures.

    ``over_seeds``: runs that differ in nothing but their seed are one case, which is drawn as their mean over a band
    from the lowest to the highest; None: if there are any. ``cases``: name, runs, and of each result its mean and
    standard deviation (None for a single run). ``named``: the case of each run of a sweep, by the run's name.
    """
    overviews: list[RunOverview] = []
    curves: defaultdict[str, dict[str, RunCurve]] = defaultdict(dict)
    for name, directory in runs.items():
        with History.open(directory.path) as history:
            overviews.append(run_overview(history))
            began = history.training_began or 0.0
            for metric in METRICS:
                curves[metric][name] = curve_of(history.global_series(metric), began)
    compared = compare_many(overviews)
    if named and named.keys() >= runs.keys():
        alike = _by_given_case(runs, named)
    else:
        alike = cases_of(list(runs), compared.differences, over_seeds=True)
    has_seeds = len(alike) < len(runs)
    over = has_seeds if over_seeds is None else over_seeds
    if over:
        cases = alike
    else:
        cases = cases_of(list(runs), compared.differences, over_seeds=False)
    table = compared.to_json()
    rows = []
    for name, row in zip(runs, table["runs"], strict=True):
        rows.append({**row, "run": name})
    return {
        "runs": rows,
        "differences": table["differences"],
        "has_seeds": has_seeds,
        "over_seeds": over,
        "cases": _case_rows(cases, rows),
        "figures": _figures(cases, curves),
    }


def _by_given_case(runs: Iterable[str], named: Mapping[str, str]) -> Cases:
    """The runs by the case that a sweep names for each."""
    cases: Cases = {}
    for run in runs:
        cases.setdefault(named[run], []).append(run)
    return cases


def _figures(cases: Cases, curves: Mapping[str, Curves]) -> Figures:
    """The figures of each metric with a curve, or a band, for each case."""
    case_looks = looks([*cases])
    figures: Figures = {}
    for metric, by_run in curves.items():
        by_case = {}
        for case, names in cases.items():
            by_case[case] = [by_run[name] for name in names]
        figures |= both_curves(case_looks, by_case.__getitem__, metric)
    return figures


def _case_rows(cases: Cases, rows: Iterable[Row]) -> list[Json]:
    """The results of each case: their mean and standard deviation over its runs."""
    numbers = {row["run"]: _numbers(row) for row in rows}
    case_rows = []
    for case, runs in cases.items():
        results = {}
        of_runs = [numbers[run] for run in runs]
        for name, spread in spreads(of_runs).items():
            results[name] = [spread.mean, spread.deviation]
        case_rows.append({"case": case, "runs": runs, "results": results})
    return case_rows


def _numbers(row: Row) -> dict[str, int | float]:
    """The numeric results of a run."""
    numbers = {}
    for key, value in row.items():
        if key != SEED and isinstance(value, int | float):
            numbers[key] = value
    return numbers


def cases_of_sweep(folder: Path) -> dict[str, str]:
    """The case of each run of the sweep in a folder, by the run's name; empty if its sweep.json does not list them."""
    named = {}
    try:
        for case in read_table(folder / "sweep.json")["cases"]:
            for run in case["runs"]:
                if run["run"]:
                    name = Path(run["run"]).name
                    named[f"{folder.name}/{name}"] = str(case["case"])
    except (RecordError, LookupError, TypeError, AttributeError):
        return {}
    return named


def cases_of(
    runs: Sequence[str],
    differences: Mapping[str, Sequence[Any]],
    *,
    over_seeds: bool,
) -> Cases:
    """The cases of runs, by their differing settings; without ``over_seeds`` each run is one, with its number."""
    left_out = (*NAMES, SEED) if over_seeds else NAMES
    keys: list[list[str]] = [[] for _ in runs]
    for setting, values in differences.items():
        if setting not in left_out:
            for key, value in zip(keys, values, strict=True):
                key.append(shown_setting(value))
    cases: Cases = {}
    if not over_seeds:
        for index, run in enumerate(runs):
            name = _named(index + 1, keys[index])
            cases[name] = [run]
        return cases
    by_key: defaultdict[Key, list[str]] = defaultdict(list)
    for run, key in zip(runs, keys, strict=True):
        by_key[tuple(key)].append(run)
    for settings, alike in by_key.items():
        number = len(cases) + 1 if len(by_key) > 1 else None
        cases[_named(number, settings)] = alike
    return cases


def _named(number: int | None, key: Sequence[str]) -> str:
    """The name of a case: its number, if it has one, and the first settings that distinguish it."""
    label = ", ".join(key[:LABEL_SETTINGS])
    if len(label) > LONGEST:
        label = f"{label[: LONGEST - 1]}…"
    if number is None:
        return label or "all runs"
    return f"{number}: {label}" if label else str(number)
