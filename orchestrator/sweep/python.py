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
from orchestrator.sweep.figures import Result, compare, judged_by, spreads
from orchestrator.sweep.page import PAGE
from orchestrator.sweep.reading import load, parse
from orchestrator.sweep.running import carry_out
from orchestrator.sweep.sweeper import Sweeper
from orchestrator.sweep.tables import spread_in_words
from orchestrator.verbs.examples import chosen
from orchestrator.verbs.results.cards import badge, link, sparkline, table
from orchestrator.verbs.results.plots import X, plotted
from orchestrator.verbs.runs import RUNS, Run, carried_out, frame
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
        return {_key(each): Run(each.run) for each in self.results if each.run is not None}

    @property
    def errors(self) -> dict[tuple[str, int], str]:
        """Why runs failed, by case and seed."""
        return {_key(each): each.error for each in self.results if each.error is not None}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row for each case: case, runs (the number of complete runs), and the mean over its runs of each figure
        under the figure's name, as in sweep.json. With several seeds the sample standard deviation follows, under the
        same name and ``.deviation``."""
        found = []
        for case, own in self._complete.items():
            row: dict[str, Any] = {"case": case, "runs": len(own)}
            for name, spread in spreads([each.figures for each in own]).items():
                row[name] = spread.mean
                if spread.deviation is not None:
                    row[f"{name}.deviation"] = spread.deviation
            found.append(row)
        return found

    @property
    def table(self) -> DataFrame:
        """`rows` as a table."""
        return frame(self.rows, ("case", "runs"))

    @property
    def comparisons(self) -> DataFrame:
        """Each case minus its reference (the first case under the same varied values), paired over the seeds of both:
        figure, case, reference, seeds, difference; its 95% interval low to high; p_value, p_holm (adjusted for all
        rows), and smallest, the difference that such a sweep finds with a probability of 80%. NaN with one seed."""
        return frame([each.row() for each in compare(self.results)], ("figure", "case", "reference", "difference"))

    def plot(self, *, x: X = "round") -> Plot:
        """The mean accuracy of each case over "round" or "seconds" of training, in a band from its lowest to its
        highest run, as a figure of plotly (the extra `plots`). RunError without plotly."""
        bands = self._bands(x)
        label = "round" if x == "round" else "seconds of training"
        return plotted(curves(looks([*bands]), [*bands.values()], label))

    def _repr_html_(self) -> str:
        judged = judged_by(self.results)
        cells = []
        for case, drawn in self._bands("round").items():
            verdicts = {each.verdict or "failed" for each in self.results if each.combination.case == case}
            own = [each.figures for each in self._complete[case]]
            spread = spreads(own).get(f"final.{judged}")
            line = "" if drawn is None else sparkline(drawn.mean)
            if spread is None:
                last = "–"
            else:
                last = spread_in_words(spread, text.percent, len(own))
            cells.append((escape(case), str(len(own)), " ".join(map(badge, sorted(verdicts))), line, last))
        headings = ("case", "runs", "verdict", f"accuracy ({judged})", "at the end")
        page = link(self.path / PAGE, "page of the sweep")
        return f"<div><b>{escape(self.path.name)}</b> &nbsp; {page}</div>{table(headings, cells)}"

    @property
    def _complete(self) -> dict[str, list[Result]]:
        found: dict[str, list[Result]] = {each.combination.case: [] for each in self.results}
        for each in self.results:
            if not each.failed:
                found[each.combination.case].append(each)
        return found

    def _bands(self, x: X) -> dict[str, CurveBand | None]:
        """The accuracy of each case: the mean and the range over its complete runs."""
        judged = judged_by(self.results)
        found = {}
        for case, own in self._complete.items():
            read = [read_curve(each.run, judged) for each in own if each.run is not None]
            found[case] = band([curve.by_round if x == "round" else curve.by_seconds for curve in read])
        return found


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
    return carried_out(partial(_sweep, file, written(overrides, driver), Path(runs), workers, again))


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
        if isinstance(inner := file.get("scenario"), Mapping):
            file = {**file, "scenario": UNNAMED.name}
            text = as_yaml(inner)
        read = parse(as_yaml(file), UNNAMED_SWEEP, overrides, text)
    else:
        read = load(chosen(os.fspath(file), sweep=True), overrides)
    for each in read.combinations:
        check_workers(workers, each.scenario.driver)
    outcome = carry_out(Sweeper(read, runs / read.name, workers, lambda _: None, again=again))
    if outcome.interrupted:
        raise KeyboardInterrupt
    return SweepRuns(outcome.directory, outcome.results)


def _key(result: Result) -> tuple[str, int]:
    return result.combination.case, result.combination.seed
