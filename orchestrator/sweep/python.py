"""Sweeps from Python: run a sweep, and read its runs and its table. `edgebed` exports these names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import text
from orchestrator.host.places import check_folder
from orchestrator.run.options import check_workers
from orchestrator.sweep.curves import CurveBand, band, read_curve
from orchestrator.sweep.drawing import curves, looks
from orchestrator.sweep.page import PAGE
from orchestrator.sweep.quantities import Result, compare, judged_by, spreads
from orchestrator.sweep.reading import load, parse
from orchestrator.sweep.running import carry_out
from orchestrator.sweep.sweeper import Sweeper
from orchestrator.sweep.tables import results_of, spread_in_words
from orchestrator.verbs.examples import chosen
from orchestrator.verbs.python_interface import RUNS, Run, carried_out, frame
from orchestrator.verbs.results.cards import badge, link, sparkline, table
from orchestrator.verbs.results.plots import X, plotted
from orchestrator.verbs.sources import UNNAMED, Given, Overrides, as_yaml, written

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure as Plot

UNNAMED_SWEEP = Path("sweep.yaml")
"""The file name for a sweep that is a mapping. Paths in the sweep are relative to the working directory."""


@dataclass(frozen=True)
class SweepRuns:
    """The runs of a sweep, and their directory ``path``, which also holds sweep.json and sweep.md."""

    path: Path
    results: tuple[Result, ...]

    def __repr__(self) -> str:
        return f"<{text.count(len(self.results), 'run')} in {str(self.path)!r}>"

    @property
    def runs(self) -> dict[tuple[str, int], Run]:
        """Each run by its case and its seed, also a failed one that has a directory."""
        runs = {}
        for result in self.results:
            if result.run is not None:
                runs[_key(result)] = Run(result.run)
        return runs

    @property
    def errors(self) -> dict[tuple[str, int], str]:
        """Why runs failed, by case and seed."""
        errors = {}
        for result in self.results:
            if result.error is not None:
                errors[_key(result)] = result.error
        return errors

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row for each case: case, runs (the number of complete runs), and the mean over its runs of each figure
        under the figure's name, as in sweep.json. With several seeds the sample standard deviation follows, under the
        same name and ``.deviation``."""
        rows = []
        for case, results in self._complete.items():
            row: dict[str, Any] = {"case": case, "runs": len(results)}
            figures = spreads([result.figures for result in results])
            for name, spread in figures.items():
                row[name] = spread.mean
                if spread.deviation is not None:
                    row[f"{name}.deviation"] = spread.deviation
            rows.append(row)
        return rows

    @property
    def table(self) -> DataFrame:
        """`rows` as a table."""
        return frame(self.rows, ("case", "runs"))

    @property
    def comparisons(self) -> DataFrame:
        """Each case minus its reference (the first case under the same varied values), paired over the seeds of both:
        figure, case, reference, seeds, difference; its 95% interval low to high; p_value, p_holm (adjusted for all
        rows), and smallest, the difference that such a sweep finds with a probability of 80%. NaN with one seed."""
        rows = [comparison.row() for comparison in compare(self.results)]
        return frame(rows, ("figure", "case", "reference", "difference"))

    def plot(self, *, x: X = "round") -> Plot:
        """The mean accuracy of each case over "round" or "seconds" of training, in a band from its lowest to its
        highest run, as a figure of plotly (the extra `plots`). RunError without plotly."""
        bands = self._bands(x)
        label = "round" if x == "round" else "seconds of training"
        cases = looks(list(bands))
        figure = curves(cases, list(bands.values()), label)
        return plotted(figure)

    def _repr_html_(self) -> str:
        judged = judged_by(self.results)
        rows = []
        for case, drawn in self._bands("round").items():
            verdicts = {result.verdict or "failed" for result in results_of(case, self.results)}
            badges = map(badge, sorted(verdicts))
            own = [result.figures for result in self._complete[case]]
            line = ""
            if drawn is not None:
                line = sparkline(drawn.mean)
            last = "–"
            spread = spreads(own).get(f"final.{judged}")
            if spread is not None:
                last = spread_in_words(spread, text.percent, len(own))
            row = (
                escape(case),
                str(len(own)),
                " ".join(badges),
                line,
                last,
            )
            rows.append(row)
        headings = ("case", "runs", "verdict", f"accuracy ({judged})", "at the end")
        page = link(self.path / PAGE, "page of the sweep")
        return f"<div><b>{escape(self.path.name)}</b> &nbsp; {page}</div>{table(headings, rows)}"

    @property
    def _complete(self) -> dict[str, list[Result]]:
        complete: dict[str, list[Result]] = {}
        for result in self.results:
            of_case = complete.setdefault(result.combination.case, [])
            if not result.failed:
                of_case.append(result)
        return complete

    def _bands(self, x: X) -> dict[str, CurveBand | None]:
        """The accuracy of each case: the mean and the range over its complete runs."""
        judged = judged_by(self.results)
        bands = {}
        for case, results in self._complete.items():
            read = []
            for result in results:
                if result.run is not None:
                    curve = read_curve(result.run, judged)
                    read.append(curve.by_round if x == "round" else curve.by_seconds)
            bands[case] = band(read)
        return bands


def sweep(
    file: Given,
    overrides: Overrides = (),
    *,
    driver: str | None = None,
    runs: str | os.PathLike[str] = RUNS,
    workers: int | None = None,
    again: bool = False,
) -> SweepRuns:
    """Run a scenario in every case of a sweep and with every seed, like the command `sweep`.

    ``file`` is a sweep's file, the name of an example, or a mapping with the content of a file. In a mapping,
    ``scenario`` may be a mapping too.
    ``overrides`` and ``driver`` are for all runs, as in `up`. The runs' directories are made below a folder of the
    sweep's name in ``runs``. A combination with a complete run there is not run again, unless ``again``.

    A failed run does not end the sweep: `SweepRuns.errors` says why it failed. Before anything runs, ScenarioError
    lists every mistake with its place, and PlaceError and RunError say what is missing. KeyboardInterrupt if a signal
    ended a run, and with it the sweep; the directories stay.
    """
    settings = written(overrides, driver)
    execute = partial(_sweep, file, settings, Path(runs), workers, again)
    return carried_out(execute)


def _sweep(
    file: Given,
    overrides: Sequence[str],
    runs: Path,
    workers: int | None,
    again: bool,
) -> SweepRuns:
    check_folder(runs, "choose another folder for runs")
    if isinstance(file, Mapping):
        text = None
        scenario = file.get("scenario")
        if isinstance(scenario, Mapping):
            file = {**file, "scenario": UNNAMED.name}
            text = as_yaml(scenario)
        read = parse(as_yaml(file), UNNAMED_SWEEP, overrides, text)
    else:
        path = chosen(os.fspath(file), "sweep")
        read = load(path, overrides)
    for combination in read.combinations:
        check_workers(workers, combination.scenario.driver_kind)
    folder = runs / read.name
    sweeper = Sweeper(read, folder, workers, lambda _: None, again=again)
    outcome = carry_out(sweeper)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return SweepRuns(outcome.directory, outcome.results)


def _key(result: Result) -> tuple[str, int]:
    return result.combination.case, result.combination.seed
