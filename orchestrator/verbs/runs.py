"""Runs from Python: run a scenario, and read the results of a run. `edgebed` exports these names."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from orchestrator.errors import Problem, RunError, ScenarioError
from orchestrator.exports.kinds import Destination, check
from orchestrator.host.commands import extend_path
from orchestrator.host.directory import find_run
from orchestrator.host.places import check_folder
from orchestrator.host.signals import INTERRUPTED, answered, in_thread
from orchestrator.results.history import History
from orchestrator.results.overview import overview
from orchestrator.results.rows import Event
from orchestrator.results.summary import summary
from orchestrator.results.tables import TABLES
from orchestrator.results.verdicts import Verdict
from orchestrator.run.launch import launch, prepared_plan
from orchestrator.run.listening import Listener
from orchestrator.run.progress_line import Glimpse
from orchestrator.scenario import reading
from orchestrator.scenario.drivers import DRIVERS, listed
from orchestrator.scenario.schema import Scenario
from orchestrator.verbs import frames

if TYPE_CHECKING:
    from pandas import DataFrame

T = TypeVar("T")

RUNS = Path("runs")
UNNAMED = Path("scenario.yaml")
"""The file name for a scenario that is a mapping. Paths in the scenario are relative to the working directory."""


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
        """Every accuracy that a node reported: round, seconds, node, scope, value."""
        with self.history() as history:
            return frames.accuracy(history)

    @property
    def checks(self) -> DataFrame:
        """The checks behind the verdict: name, verdict, detail."""
        with self.history() as history:
            return frames.checks(history)

    @property
    def nodes(self) -> DataFrame:
        """The nodes: name, tier, parent, samples, model, hardware, speed, host, device."""
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
    def sensors(self) -> DataFrame:
        """What hosts told about themselves: t, host, quantity, source, scope, value, detail."""
        with self.history() as history:
            return frames.sensors(history)

    @property
    def bytes(self) -> DataFrame:
        """What each node sent to and received from each peer, by kind of message."""
        return self.frame("traffic")

    def frame(self, kind: str) -> DataFrame:
        """`rows` as a table."""
        return frames.frame(self.rows(kind))

    def rows(self, kind: str) -> list[dict[str, Any]]:
        """The rows of one kind: accuracy, checks, events, faults, links, metrics, nodes, probes, resources, rounds,
        sensors, states or traffic. Times are seconds since the run began. ValueError for another kind."""
        if kind not in TABLES:
            raise ValueError(f"a record has no {kind!r}; it has {', '.join(TABLES)}")
        with History.open(self.path) as history:
            return [row._asdict() for row in TABLES[kind].read(history)]

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
    on_event: Callable[[Event], object] | None = None,
    track: str | Iterable[str] = (),
) -> Run:
    """Run a scenario to its end, like the command `up`. ``scenario`` is a file, or a mapping with its content.

    ``overrides`` are those of `--set`, as ``{"algorithm.rounds": 5}`` or ``["algorithm.rounds=5"]``. ``driver`` takes
    the place of the scenario's. The run's directory is made below ``runs``.
    ``workers`` is the number of processes that train simulated nodes, by default one for each processor.
    ``track`` names places that show the run while it goes on, as "tensorboard:DIR" or "mlflow:URI".

    ``on_event`` is called with each `Event` while the run goes on, in the order of the record, in the thread of the
    run. It must return soon, because the orchestrator waits for it. If it raises, the run ends in order as failed, and
    the function raises the same error when the run's directory is complete.

    If a run fails after it began, the function still returns it. Its verdict is not "pass", and ``summary["error"]``
    says why. Before the run begins, ScenarioError lists every mistake with its place, and PlanError, PlaceError,
    HostError and RunError say what is missing. KeyboardInterrupt if a signal ended the run; its directory stays, with
    the record so far. Signals reach only a run of the main thread. In a running event loop, such as a notebook's, the
    run has a thread of its own, and the call waits for it.
    """
    listener = None if on_event is None else Listener(on_event)
    places = [Destination.parse(each) for each in ([track] if isinstance(track, str) else track)]
    return carried_out(partial(_up, scenario, written(overrides, driver), Path(runs), workers, listener, places))


def _up(
    scenario: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Sequence[str],
    runs: Path,
    workers: int | None,
    listener: Listener | None,
    track: Sequence[Destination],
) -> Run:
    check_folder(runs, "choose another folder for runs")
    check(track)
    file, text = (UNNAMED, as_yaml(scenario)) if isinstance(scenario, Mapping) else (Path(scenario), None)
    read = reading.load(file, overrides) if text is None else reading.parse(text, str(file), overrides)
    check_workers(workers, read)
    with reading.placed(file, overrides, text):
        plan = prepared_plan(read, file)
    outcome, directory = launch(
        plan,
        read,
        file,
        overrides,
        runs,
        lambda _: Glimpse(plan.name),
        workers=workers,
        text=text,
        listener=listener,
        track=track,
    )
    if outcome.exit_code == INTERRUPTED:
        raise KeyboardInterrupt
    if listener is not None and listener.error is not None:
        raise listener.error
    return Run(directory.path)


def load(run: str | os.PathLike[str] | None = None, *, runs: str | os.PathLike[str] = RUNS) -> Run:
    """The run in the directory ``run``, or with the id ``run`` below ``runs``. By default the latest run there.

    RunError if there is no such run.
    """
    return Run(find_run(None if run is None else os.fspath(run), Path(runs)).path)


def carried_out(work: Callable[[], T]) -> T:
    """The result of ``work``, which carries out runs for a program that goes on. KeyboardInterrupt if a signal came. In
    a running event loop the work has a thread of its own."""
    extend_path()
    with answered():
        return in_thread(work) if _in_event_loop() else work()


def check_workers(workers: int | None, scenario: Scenario) -> None:
    """RunError if the scenario's driver has no processes that train for several nodes."""
    if workers is not None and not DRIVERS[scenario.driver].simulated:
        only = listed(simulated=True)
        raise RunError(f"workers: they are for the driver {only}; under {scenario.driver} every node has a process")


def as_yaml(mapping: Mapping[str, Any]) -> str:
    """The text of a file with this content. ScenarioError if YAML has no form for it."""
    try:
        return yaml.safe_dump(dict(mapping), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        raise ScenarioError([Problem("the mapping", "", f"cannot be written as YAML: {error}")]) from None


def compare(runs: Iterable[Run | str | os.PathLike[str]]) -> DataFrame:
    """A table of runs, one row each: scenario, algorithm, driver, seed, verdict, rounds, seconds, the accuracies of the
    last round, and the bytes of each class of links."""
    rows = []
    for each in runs:
        run = each if isinstance(each, Run) else load(each)
        with run.history() as history:
            rows.append(overview(history))
    return frames.frame(rows)


def written(overrides: Mapping[str, Any] | Sequence[str], driver: str | None) -> list[str]:
    """The overrides, and the driver if one is given, as `--set` takes them: JSON is YAML, too."""
    own = [] if driver is None else [f"driver={driver}"]
    if not isinstance(overrides, Mapping):
        return [*overrides, *own]
    return [f"{path}={json.dumps(value)}" for path, value in overrides.items()] + own


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
