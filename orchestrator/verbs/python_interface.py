"""Runs from Python: run a scenario, and read the results of a run. `edgebed` exports these names."""

from __future__ import annotations

import asyncio
import io
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console

from orchestrator.exports.destinations import Destination
from orchestrator.host.commands import extend_path
from orchestrator.host.places import check_folder
from orchestrator.host.process.signals import INTERRUPTED, answered, in_thread
from orchestrator.host.tail import follow_file, log_of
from orchestrator.record.directory import RunDirectory, find_run, known_runs
from orchestrator.record.rows import Event
from orchestrator.report.topology import drawing
from orchestrator.results.checks.verdicts import Verdict
from orchestrator.results.history import History
from orchestrator.results.overview import overview
from orchestrator.results.summary import summary
from orchestrator.results.tables import TABLES, check_kind, rows_of
from orchestrator.run.display.events import Listener
from orchestrator.run.display.single_line import Glimpse
from orchestrator.run.launch import launch, prepared_plan
from orchestrator.run.options import Origin, RunOptions
from orchestrator.verbs.results import cards, plots
from orchestrator.verbs.results.cards import Drawing
from orchestrator.verbs.results.logs import follow_record
from orchestrator.verbs.sources import Given, Overrides, Source

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure as Plot

    from orchestrator.verbs.results.plots import X

T = TypeVar("T")

RUNS = Path("runs")


@dataclass(frozen=True)
class Run:
    """A run in its directory ``path``. The run may still be running.

    Every access reads the record again. Raises RecordError if the record cannot be read.
    """

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))  # callers without type checks pass strings

    def __repr__(self) -> str:
        here = Path.cwd()
        shown = self.path
        if shown.is_relative_to(here):
            shown = shown.relative_to(here)
        return f"Run({str(shown)!r})"

    @property
    def id(self) -> str:
        """The name of the run's directory, such as "first-20260101-120000-1a2b"."""
        return self.path.resolve().name

    @property
    def name(self) -> str:
        """The scenario's name."""
        return str(self._planned("name"))

    @property
    def driver(self) -> str:
        """The driver, such as "sim"."""
        return str(self._planned("driver"))

    @property
    def seed(self) -> int:
        """The scenario's seed."""
        return int(self._planned("seed"))

    @property
    def duration(self) -> float:
        """Seconds from the start of the run to its end, or until now, on the run's clock: virtual in a simulation."""
        with self.history() as history:
            return history.seconds

    @property
    def report(self) -> Path:
        """The report page. `up` writes it when the run ends."""
        return RunDirectory(self.path).report

    def logs(self, node: str) -> str:
        """The log of a node. For a simulated node, its lines in the record. RunError if there is no such node."""
        with self.history() as history:
            if history.simulated:
                return "".join(follow_record(history, node, _stop))
        log = log_of(RunDirectory(self.path), node)
        return "".join(follow_file(log, _stop))

    @property
    def summary(self) -> dict[str, Any]:
        """The object that `up --json` prints."""
        with self.history() as history:
            return summary(history)

    @property
    def verdict(self) -> Verdict:
        """Whether the run can be trusted: "pass", "fail", or "unknown" if a check could not be made."""
        verdict: Verdict = self.summary["verdict"]
        return verdict

    @property
    def accuracy(self) -> DataFrame:
        """Every accuracy that a node reported: round, seconds, node, scope, value, step."""
        return self.frame("accuracy")

    @property
    def checks(self) -> DataFrame:
        """The checks behind the verdict: name, verdict, detail."""
        return self.frame("checks")

    @property
    def nodes(self) -> DataFrame:
        """The nodes: name, tier, parent, samples, model, hardware, speed, host, device."""
        return self.frame("nodes")

    @property
    def links(self) -> DataFrame:
        """The totals of each link direction in training, in packets and bytes."""
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
        """What hosts reported about themselves: t, host, quantity, source, scope, value, detail."""
        return self.frame("sensors")

    @property
    def traffic(self) -> DataFrame:
        """The messages and bytes that each node sent to and received from each peer, by kind of message."""
        return self.frame("traffic")

    @property
    def bytes(self) -> DataFrame:
        """The old name of `traffic`. The next version removes it."""
        warnings.warn("run.bytes has a new name: run.traffic", DeprecationWarning, stacklevel=2)
        return self.traffic

    def frame(self, kind: str) -> DataFrame:
        """`rows` as a table."""
        rows = self.rows(kind)
        return frame(rows, TABLES[kind].row._fields)

    def rows(self, kind: str) -> list[dict[str, Any]]:
        """The rows of one kind: accuracy, channels, checks, events, faults, links, metrics, nodes, probes, resources,
        rounds, sensors, states or traffic. Times are seconds since the start of the run. ValueError for another
        kind."""
        check_kind(kind)
        with self.history() as history:
            return rows_of(history, kind)

    def history(self) -> History:
        """The reader of the record, for a ``with`` statement. Its methods may change between versions."""
        return History.open(self.path)

    def plot(self, metric: str = "accuracy", *, x: X = "round") -> Plot:
        """A metric of the global model, the edges and the devices over "round" or "seconds", with the faults: the
        report's curves as a figure of plotly (the extra `plots`). RunError without plotly, or if no
        node has reported the metric."""
        with self.history() as history:
            return plots.curves(history, metric, x)

    def topology(self) -> Drawing:
        """The report's picture of nodes and links, with the state of each node and the faults that hit it."""
        with self.history() as history:
            return Drawing(drawing(history))

    def _repr_html_(self) -> str:
        with self.history() as history:
            return cards.run_card(history)

    def _planned(self, key: str) -> Any:
        with self.history() as history:
            return history.plan[key]


def up(
    scenario: Given,
    overrides: Overrides = (),
    *,
    driver: str | None = None,
    runs: str | os.PathLike[str] = RUNS,
    workers: int | None = None,
    on_event: Callable[[Event], object] | None = None,
    track: str | Iterable[str] = (),
) -> Run:
    """Run a scenario to its end, like the command `up`.

    ``scenario`` is a file, the name of an example, or a mapping with the content of a file.
    ``overrides`` are those of `--set`, as ``{"algorithm.rounds": 5}`` or ``["algorithm.rounds=5"]``. ``driver`` takes
    the place of the scenario's. The run's directory is made below ``runs``.
    ``workers`` is the number of processes that train simulated nodes, by default one for each processor.
    ``track`` names places that show the run while it runs, as "tensorboard:DIR" or "mlflow:URI".

    ``on_event`` is called with each `Event` during the run, in the order of the record, in the thread of the
    run. It must return soon, because the orchestrator waits for it. If it raises, the run ends in order as failed, and
    the function raises the same error when the run's directory is complete.

    If a run fails after its start, the function still returns it. Its verdict is not "pass", and ``summary["error"]``
    says why. Before the run starts, ScenarioError lists every mistake with its place, and PlanError, PlaceError,
    HostError and RunError say what is missing. KeyboardInterrupt if a signal ended the run; its directory stays, with
    the record so far. Signals reach only a run of the main thread. In a running event loop, such as a notebook's, the
    run has a thread of its own, and the call waits for it.
    """
    listener = None if on_event is None else Listener(on_event)
    source = Source.of(scenario, overrides, driver)
    places = destinations(track)
    options = RunOptions(workers, listener=listener, track=places)
    return carried_out(lambda: execute(source, Path(runs), options))


def execute(source: Source, runs: Path, options: RunOptions) -> Run:
    """Run a scenario to its end, as `up` does.

    KeyboardInterrupt if the run was interrupted.
    """
    check_folder(runs, "choose another folder for runs")
    for place in options.track:
        place.check()
    scenario = source.read()
    options.check(scenario.driver_kind)
    with source.placed():
        plan = prepared_plan(scenario, source.file)
    # While a run is in the background, the terminal belongs to the program.
    if options.begun is None:
        console = None
    else:
        console = Console(file=io.StringIO())
    origin = Origin(scenario, source.file, source.overrides, source.text)

    def view(_virtual: bool) -> Glimpse:
        return Glimpse(plan.name, console)

    outcome, directory = launch(plan, origin, runs, view, options)
    if outcome.exit_code == INTERRUPTED:
        raise KeyboardInterrupt
    if options.listener is not None and options.listener.error is not None:
        raise options.listener.error
    return Run(directory.path)


def load(
    run: str | os.PathLike[str] | None = None,
    *,
    runs: str | os.PathLike[str] = RUNS,
) -> Run:
    """The run in the directory ``run``, or with the id ``run`` below ``runs``. By default the latest run there.

    RunError if there is no such run.
    """
    name = None if run is None else os.fspath(run)
    directory = find_run(name, Path(runs))
    return Run(directory.path)


def runs(folder: str | os.PathLike[str] = RUNS) -> list[Run]:
    """The runs in a folder, oldest first. `compare` makes a table of them. A sweep has its runs in its own folder."""
    return [Run(directory.path) for directory in known_runs(Path(folder))]


def destinations(track: str | Iterable[str]) -> list[Destination]:
    """The places that ``track`` names."""
    places = [track] if isinstance(track, str) else track
    return [Destination.parse(place) for place in places]


def carried_out(work: Callable[[], T]) -> T:
    """The result of ``work``, which executes runs for a program that continues afterwards. KeyboardInterrupt after a
    signal. In a running event loop the work has a thread of its own."""
    extend_path()
    with answered():
        if _in_event_loop():
            return in_thread(work)
        return work()


def compare(runs: Iterable[Run | str | os.PathLike[str]]) -> DataFrame:
    """A table of runs, one row each: scenario, algorithm, driver, seed, verdict, rounds, seconds, the accuracies of the
    last round, and the bytes of each class of links."""
    rows = []
    for run in runs:
        loaded = run if isinstance(run, Run) else load(run)
        with loaded.history() as history:
            rows.append(overview(history))
    return frame(rows)


def frame(
    rows: Iterable[Mapping[str, Any]],
    columns: Iterable[str] = (),
) -> DataFrame:
    """A table of rows, with the named columns first if there is no row."""
    from pandas import DataFrame  # takes half a second

    values = list(rows)
    names = None if values else list(columns)
    return DataFrame(values, columns=names)


def _stop() -> bool:
    """Do not follow a log: read what it has now."""
    return False


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
