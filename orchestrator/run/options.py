"""What a run is started with, in addition to its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from node.resources import processors
from orchestrator.errors import MistakeError
from orchestrator.exports.destinations import Destination
from orchestrator.record.directory import RunDirectory
from orchestrator.run.control.pace import speed_of
from orchestrator.run.display.events import Listener
from orchestrator.run.links.earlier_measurements import EarlierMeasurements
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.alternatives import listed
from orchestrator.scenario.sections.drivers import DriverKind


@dataclass(frozen=True)
class Origin:
    """The scenario of a run, and where it was read: a ``file`` with ``overrides``, or ``text``. ``meta``: facts.
    ``files``: texts of files that the scenario names, which are not read."""

    scenario: Scenario
    file: Path
    overrides: Sequence[str] = ()
    text: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunOptions:
    """How a run is executed. Its results do not depend on this.

    workers    number of processes that train simulated nodes; None: one for each processor
    calibrate  measure the links at length, and do not train
    listener   receives the events of the run; its error ends the run and is left to the caller
    track      destinations that follow the run
    pace       of a simulation, see `orchestrator.run.control.pace`
    measured   the links that earlier runs of this command have measured
    started      called once, when the record exists
    """

    workers: int | None = None
    calibrate: bool = False
    listener: Listener | None = None
    track: Sequence[Destination] = ()
    pace: str | None = None
    begun: Callable[[RunDirectory], object] | None = None
    measured: EarlierMeasurements | None = None

    @property
    def processes(self) -> int:
        """The number of processes that train simulated nodes."""
        return self.workers or processors()

    def check(self, driver: DriverKind) -> None:
        """MistakeError if a driver has no workers or no pace, or if the pace is none."""
        check_workers(self.workers, driver)
        if self.pace is None:
            return
        if not driver.simulated:
            raise MistakeError(f"pace: only for the driver {listed(simulated=True)}; {driver.name} works in real time")
        try:
            speed_of(self.pace)
        except ValueError as error:
            raise MistakeError(f"pace: {error}") from None


def check_workers(workers: int | None, driver: DriverKind, option: str = "workers") -> None:
    """MistakeError if the driver has no processes that train for several nodes."""
    if workers is not None and not driver.simulated:
        only = listed(simulated=True)
        raise MistakeError(f"{option}: only for the driver {only}; under {driver.name} every node has a process")
