"""Several runs side by side, or those of a sweep: curves over one another, or as bands over the seeds. JSON values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.errors import RecordError
from orchestrator.record.directory import RunDirectory
from orchestrator.report.marks import Figure
from orchestrator.results.history import History
from orchestrator.sweep.curves import RunCurve, curve_of
from orchestrator.sweep.drawing import both_curves, looks
from orchestrator.sweep.figures import spreads
from orchestrator.verbs.results.compare import RunOverview, compare_many, run_overview, shown_setting
from orchestrator.verbs.results.export import read_table

METRICS = ("accuracy", "loss")
TOLD = 3  # settings that name a case
LONGEST = 60  # characters of a case's name
NAMES = ("name",)  # settings that make no case
SEED = "seed"

Cases = dict[str, list[str]]  # the runs of each case, by its name


def several(
    runs: Mapping[str, RunDirectory], *, over_seeds: bool | None, named: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Runs side by side, by their names: results, settings that differ, and the curves of the global model as figures.

    ``over_seeds``: runs that differ in nothing but their seed are one case, which is drawn as their mean over a band
    from the lowest to the highest; None: if there are any. ``cases``: name, runs, and of each result its mean and
    standard deviation (None for a single run). ``named``: the case of each run of a sweep, by the run's name.
    """
    read: list[RunOverview] = []
    drawn: dict[str, dict[str, RunCurve]] = {metric: {} for metric in METRICS}
    for name, directory in runs.items():
        with History.open(directory.path) as history:
            read.append(run_overview(history))
            began = history.training_began or 0.0
            for metric in METRICS:
                drawn[metric][name] = curve_of(history.global_series(metric), began)
    compared = compare_many(read)
    alike = cases_of(list(runs), compared.differences, over_seeds=True)
    if named and named.keys() >= runs.keys():
        alike = {}
        for run in runs:
            alike.setdefault(named[run], []).append(run)
    has_seeds = len(alike) < len(runs)
    if over_seeds is None:
        over_seeds = has_seeds
    cases = alike
    if not over_seeds:
        cases = cases_of(list(runs), compared.differences, over_seeds=False)
    figures: dict[str, Figure] = {}
    for metric, curves in drawn.items():
        by_case = {}
        for case, names in cases.items():
            by_case[case] = [curves[name] for name in names]
        figures |= both_curves(looks([*cases]), by_case.__getitem__, metric)
    table = compared.to_json()
    rows = [{**row, "run": name} for name, row in zip(runs, table["runs"], strict=True)]
    numbers = {row["run"]: _numbers(row) for row in rows}
    case_rows = []
    for case, names in cases.items():
        results = {}
        for name, spread in spreads([numbers[run] for run in names]).items():
            results[name] = [spread.mean, spread.deviation]
        case_rows.append({"case": case, "runs": names, "results": results})
    return {
        "runs": rows,
        "differences": table["differences"],
        "has_seeds": has_seeds,
        "over_seeds": over_seeds,
        "cases": case_rows,
        "figures": figures,
    }


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The results of a run that are numbers; its seed is a setting."""
    numbers = {}
    for key, value in row.items():
        if isinstance(value, int | float) and key != SEED:
            numbers[key] = value
    return numbers


def cases_of_sweep(folder: Path) -> dict[str, str]:
    """The case of each run of the sweep in a folder, by the run's name; empty if its sweep.json does not tell."""
    case_of = {}
    try:
        for case in read_table(folder / "sweep.json")["cases"]:
            for run in case["runs"]:
                if run["run"]:
                    name = Path(run["run"]).name
                    case_of[f"{folder.name}/{name}"] = str(case["case"])
        return case_of
    except (RecordError, LookupError, TypeError, AttributeError):
        return {}


def cases_of(runs: Sequence[str], differences: Mapping[str, Sequence[Any]], *, over_seeds: bool) -> Cases:
    """The cases of runs, by their differing settings; without ``over_seeds`` each run is one, with its number."""
    left_out = (*NAMES, SEED) if over_seeds else NAMES
    settings = []
    for name, values in differences.items():
        if name not in left_out:
            settings.append([shown_setting(value) for value in values])
    keys: list[tuple[str, ...]] = [()] * len(runs)
    if settings:
        keys = list(zip(*settings, strict=True))
    keyed_runs = list(zip(runs, keys, strict=True))
    if not over_seeds:
        return {_named(number, key): [run] for number, (run, key) in enumerate(keyed_runs, start=1)}
    by_key: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for run, key in keyed_runs:
        by_key[key].append(run)
    if len(by_key) == 1:
        return {_named(None, key): names for key, names in by_key.items()}
    return {_named(number, key): names for number, (key, names) in enumerate(by_key.items(), start=1)}


def _named(number: int | None, key: Sequence[str]) -> str:
    label = ", ".join(key[:TOLD])
    if len(label) > LONGEST:
        label = f"{label[: LONGEST - 1]}…"
    parts = []
    if number is not None:
        parts.append(str(number))
    if label:
        parts.append(label)
    return ": ".join(parts) or "all runs"
