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
        alike = {
            case: [run for run in runs if named[run] == case] for case in dict.fromkeys(map(named.__getitem__, runs))
        }
    has_seeds = len(alike) < len(runs)
    over = has_seeds if over_seeds is None else over_seeds
    if over:
        cases = alike
    else:
        cases = cases_of(list(runs), compared.differences, over_seeds=False)
    figures: dict[str, Figure] = {}
    for metric, of in drawn.items():
        by_case = {case: [of[name] for name in names] for case, names in cases.items()}
        figures |= both_curves(looks([*cases]), by_case.__getitem__, metric)
    table = compared.to_json()
    rows = [{**row, "run": name} for name, row in zip(runs, table["runs"], strict=True)]
    numbers = {
        row["run"]: {key: value for key, value in row.items() if isinstance(value, int | float) and key != SEED}
        for row in rows
    }
    return {
        **{"runs": rows, "differences": table["differences"], "has_seeds": has_seeds, "over_seeds": over},
        "cases": [
            {
                **{"case": case, "runs": of},
                "results": {
                    name: [spread.mean, spread.deviation]
                    for name, spread in spreads([numbers[run] for run in of]).items()
                },
            }
            for case, of in cases.items()
        ],
        "figures": figures,
    }


def cases_of_sweep(folder: Path) -> dict[str, str]:
    """The case of each run of the sweep in a folder, by the run's name; empty if its sweep.json does not tell."""
    try:
        cases = read_table(folder / "sweep.json")["cases"]
        return {
            f"{folder.name}/{Path(run['run']).name}": str(case["case"])
            for case in cases
            for run in case["runs"]
            if run["run"]
        }
    except (RecordError, LookupError, TypeError, AttributeError):
        return {}


def cases_of(runs: Sequence[str], differences: Mapping[str, Sequence[Any]], *, over_seeds: bool) -> Cases:
    """The cases of runs, by their differing settings; without ``over_seeds`` each run is one, with its number."""
    left_out = (*NAMES, SEED) if over_seeds else NAMES
    settings = [
        [shown_setting(value) for value in values] for name, values in differences.items() if name not in left_out
    ]
    if settings:
        keys = list(zip(*settings, strict=True))
    else:
        keys = [()] * len(runs)
    if not over_seeds:
        return {_named(number, key): [run] for number, (run, key) in enumerate(zip(runs, keys, strict=True), start=1)}
    found: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for run, key in zip(runs, keys, strict=True):
        found[key].append(run)
    return {
        _named(number if len(found) > 1 else None, key): of for number, (key, of) in enumerate(found.items(), start=1)
    }


def _named(number: int | None, key: Sequence[str]) -> str:
    label = ", ".join(key[:TOLD])
    label = label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…"
    return ": ".join(part for part in ("" if number is None else str(number), label) if part) or "all runs"
