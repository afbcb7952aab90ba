"""Sweeps from Python: run a sweep, and read its runs and its table. `edgebed` exports these names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.errors import RunError
from orchestrator.host.places import check_folder
from orchestrator.sweep.figures import Result, spreads
from orchestrator.sweep.on_swarm import refusal
from orchestrator.sweep.reading import load, parse
from orchestrator.sweep.running import carry_out
from orchestrator.verbs import frames
from orchestrator.verbs.runs import RUNS, UNNAMED, Run, as_yaml, carried_out, check_workers, written

if TYPE_CHECKING:
    from pandas import DataFrame

UNNAMED_SWEEP = Path("sweep.yaml")
"""The file name for a sweep that is a mapping. Paths in the sweep are relative to the working directory."""


@dataclass(frozen=True)
class SweepRuns:
    """The runs of a sweep, and their directory ``path``, which also holds sweep.json and sweep.md."""

    path: Path
    results: tuple[Result, ...]

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
        for case in dict.fromkeys(each.combination.case for each in self.results):
            own = [each.figures for each in self.results if each.combination.case == case and not each.failed]
            row: dict[str, Any] = {"case": case, "runs": len(own)}
            for name, spread in spreads(own).items():
                row[name] = spread.mean
                if spread.deviation is not None:
                    row[f"{name}.deviation"] = spread.deviation
            found.append(row)
        return found

    @property
    def table(self) -> DataFrame:
        """`rows` as a table."""
        return frames.frame(self.rows, ("case", "runs"))


def sweep(
    file: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Mapping[str, Any] | Sequence[str] = (),
    *,
    driver: str | None = None,
    runs: str | os.PathLike[str] = RUNS,
    workers: int | None = None,
    again: bool = False,
    on: Literal["swarm"] | None = None,
) -> SweepRuns:
    """Run a scenario in every case of a sweep and with every seed, like the command `sweep`.

    ``file`` is a sweep's file, or a mapping with its content. In a mapping, ``scenario`` may be a mapping too.
    ``overrides`` and ``driver`` are for all runs, as in `up`. The runs' directories are made below a folder of the
    sweep's name in ``runs``. A combination with a complete run there is not run again, unless ``again``.
    ``on="swarm"`` spreads runs of the driver `sim` over the hosts of a Docker Swarm. Then ``workers`` is how many runs
    each host carries out at once.

    A failed run does not end the sweep: `SweepRuns.errors` says why it failed. Before anything runs, ScenarioError
    lists every mistake with its place, and PlaceError and RunError say what is missing. KeyboardInterrupt if a signal
    ended a run, and with it the sweep; the directories stay.
    """
    return carried_out(partial(_sweep, file, written(overrides, driver), Path(runs), workers, again, on))


def _sweep(
    file: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Sequence[str],
    runs: Path,
    workers: int | None,
    again: bool,
    on: str | None,
) -> SweepRuns:
    check_folder(runs, "choose another folder for runs")
    if isinstance(file, Mapping):
        text = None
        if isinstance(inner := file.get("scenario"), Mapping):
            file, text = {**file, "scenario": UNNAMED.name}, as_yaml(inner)
        read = parse(as_yaml(file), UNNAMED_SWEEP, overrides, text)
    else:
        read = load(Path(file), overrides)
    for each in read.combinations:
        check_workers(workers, each.scenario)
    if on is not None and (reason := refusal(read)) is not None:
        raise RunError(f"on: {reason}")
    outcome = carry_out(read, runs / read.name, workers=workers, again=again, tell=lambda _: None, on=on)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return SweepRuns(outcome.directory, outcome.results)


def _key(result: Result) -> tuple[str, int]:
    return result.combination.case, result.combination.seed
