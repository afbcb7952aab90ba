"""Runs from Python: run a scenario, and read the results of a run. `edgebed` exports these names."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from orchestrator.errors import Problem, RunError, ScenarioError
from orchestrator.exports.kinds import Destination, check
from orchestrator.host.commands import extend_path
from orchestrator.host.directory import find_run
from orchestrator.host.places import check_folder
from orchestrator.host.signals import INTERRUPTED, in_thread
from orchestrator.results.history import History
from orchestrator.results.summary import summary
from orchestrator.results.verdicts import Verdict
from orchestrator.run.launch import launch, prepared_plan
from orchestrator.run.progress_line import Glimpse
from orchestrator.scenario import reading
from orchestrator.scenario.drivers import DRIVERS, listed
from orchestrator.verbs import frames

if TYPE_CHECKING:
    from pandas import DataFrame

RUNS = Path("runs")
UNNAMED = Path("scenario.yaml")
"""The file name for a scenario that is a mapping. Paths in the scenario are relative to the working directory."""

_ROWS: dict[str, Callable[[History], Sequence[NamedTuple]]] = {
    "events": lambda history: history.events(),
    "faults": lambda history: history.faults(),
    "links": lambda history: history.link_counters(),
    "metrics": lambda history: history.metrics(None),
    "probes": lambda history: history.probes(),
    "resources": lambda history: history.resources(),
    "rounds": lambda history: history.rounds(),
    "states": lambda history: history.states(),
    "traffic": lambda history: history.traffic(),
}


@dataclass(frozen=True)
class Run:
    """A run in its directory ``path``. The run may still be running.

    Every access reads the record anew. Raises RecordError if the record cannot be read.
    """

    path: Path

    @property
    def summary(self) -> dict[str, Any]:
        """The object that `up --json` prints."""
        with History.open(self.path) as history:
            return summary(history)

    @property
    def verdict(self) -> Verdict:
        """Whether the run can be trusted: "pass", "fail", or "unknown" if a check could not be made."""
        verdict: Verdict = self.summary["verdict"]
        return verdict

    @property
    def accuracy(self) -> DataFrame:
        """Every accuracy that a node reported: round, seconds, node, scope, value. This and the other tables need
        pandas (`pip install edgebed[analysis]`); RunError without it."""
        with self.history() as history:
            return frames.accuracy(history)

    @property
    def checks(self) -> DataFrame:
        """The checks behind the verdict: name, verdict, detail."""
        with self.history() as history:
            return frames.checks(history)

    @property
    def nodes(self) -> DataFrame:
        """The nodes: name, tier, parent, samples, model, hardware, speed."""
        with self.history() as history:
            return frames.nodes(history)

    @property
    def links(self) -> DataFrame:
        """The counters of each link direction, in packets and bytes, as they were read over time."""
        return self.frame("links")

    @property
    def faults(self) -> DataFrame:
        """What was injected: when, where, until when."""
        return self.frame("faults")

    @property
    def events(self) -> DataFrame:
        """What the nodes and the orchestrator noted."""
        return self.frame("events")

    @property
    def bytes(self) -> DataFrame:
        """What each node sent to and received from each peer, by kind of message."""
        return self.frame("traffic")

    def frame(self, kind: str) -> DataFrame:
        """`rows` as a table."""
        return frames.frame(self.rows(kind))

    def rows(self, kind: str) -> list[dict[str, Any]]:
        """The rows of one kind in the record: events, faults, links, metrics, probes, resources, rounds, states or
        traffic. Times are seconds since the run began. ValueError for another kind."""
        if kind not in _ROWS:
            raise ValueError(f"a record has no {kind!r}; it has {', '.join(_ROWS)}")
        with History.open(self.path) as history:
            return [row._asdict() for row in _ROWS[kind](history)]

    def history(self) -> History:
        """The reader of the record, for a ``with`` statement. Its methods may change between versions."""
        return History.open(self.path)


def up(
    scenario: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Mapping[str, Any] | Sequence[str] = (),
    *,
    driver: str | None = None,
    runs: str | os.PathLike[str] = RUNS,
    workers: int | None = None,
    track: str | Iterable[str] = (),
) -> Run:
    """Run a scenario to its end, like the command `up`. ``scenario`` is a file, or a mapping with its content.

    ``overrides`` are those of `--set`, as ``{"algorithm.rounds": 5}`` or ``["algorithm.rounds=5"]``. ``driver`` takes
    the place of the scenario's. The run's directory is made below ``runs``.
    ``workers`` is the number of processes that train simulated nodes, by default one for each processor.
    ``track`` names places that show the run while it goes on, as "tensorboard:DIR" or "mlflow:URI".

    If a run fails after it began, the function still returns it. Its verdict is not "pass", and ``summary["error"]``
    says why. Before the run begins, ScenarioError lists every mistake with its place, and PlanError, PlaceError,
    HostError and RunError say what is missing. KeyboardInterrupt if a signal ended the run; its directory stays, with
    the record so far. Signals reach only a run of the main thread. In a running event loop, such as a notebook's, the
    run has a thread of its own, and the call waits for it.
    """
    given = _written(overrides) + ([] if driver is None else [f"driver={driver}"])
    places = [Destination.parse(each) for each in ([track] if isinstance(track, str) else track)]
    carry_out = partial(_up, scenario, given, Path(runs), workers, places)
    return in_thread(carry_out) if _in_event_loop() else carry_out()


def _up(
    scenario: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Sequence[str],
    runs: Path,
    workers: int | None,
    track: Sequence[Destination],
) -> Run:
    extend_path()
    check_folder(runs, "choose another folder for runs")
    check(track)
    file, text = (UNNAMED, _yaml(scenario)) if isinstance(scenario, Mapping) else (Path(scenario), None)
    read = reading.load(file, overrides) if text is None else reading.parse(text, str(file), overrides)
    if workers is not None and not DRIVERS[read.driver].simulated:
        only = listed(simulated=True)
        raise RunError(f"workers: they are for the driver {only}; under {read.driver} every node has a process")
    with reading.placed(file, overrides, text):
        plan = prepared_plan(read, file)
    outcome, directory = launch(
        plan, read, file, overrides, runs, lambda _: Glimpse(plan.name), workers=workers, text=text, track=track
    )
    if outcome.exit_code == INTERRUPTED:
        raise KeyboardInterrupt
    return Run(directory.path)


def load(run: str | os.PathLike[str] | None = None, *, runs: str | os.PathLike[str] = RUNS) -> Run:
    """The run in the directory ``run``, or with the id ``run`` below ``runs``. By default the latest run there.

    RunError if there is no such run.
    """
    return Run(find_run(None if run is None else os.fspath(run), Path(runs)).path)


def _yaml(scenario: Mapping[str, Any]) -> str:
    try:
        return yaml.safe_dump(dict(scenario), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        raise ScenarioError([Problem("the mapping", "", f"cannot be written as YAML: {error}")]) from None


def compare(runs: Iterable[Run | str | os.PathLike[str]]) -> DataFrame:
    """A table of runs, one row each: scenario, algorithm, driver, seed, verdict, rounds, seconds, the accuracies of the
    last round, and the bytes of each class of links."""
    rows = []
    for each in runs:
        run = each if isinstance(each, Run) else load(each)
        with run.history() as history:
            rows.append(frames.overview(history, run.path.name))
    return frames.frame(rows)


def _written(overrides: Mapping[str, Any] | Sequence[str]) -> list[str]:
    """The overrides as `--set` takes them: JSON is YAML, too."""
    if not isinstance(overrides, Mapping):
        return list(overrides)
    return [f"{path}={json.dumps(value)}" for path, value in overrides.items()]


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
