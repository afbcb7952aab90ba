"""The agent in a container, which makes containers on its host."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path

from orchestrator.agent.datasets import DataSets
from orchestrator.agent.facts import examine
from orchestrator.agent.host_run import open_host_run
from orchestrator.agent.worker import Tell, Worker
from orchestrator.drivers.docker.engine import Engine, plain_words
from orchestrator.drivers.hosts.agents.container import SENSORS, name_of
from orchestrator.drivers.hosts.agents.settings import DATASETS, Settings
from orchestrator.host.sensors.sensor import Sensor
from orchestrator.host.sensors.sources import discover, memory


def make(settings: Settings, folder: Path, tell: Tell) -> Worker:
    """What serves an orchestrator. See `Worker` for the arguments."""
    on_begin = partial(_rename, settings.run)
    folder_of_datasets = Path(os.environ[DATASETS])
    datasets = DataSets(folder_of_datasets)
    look = partial(examine, datasets.folder)
    return Worker(
        folder,
        tell,
        open_host_run,
        look,
        sensors,
        on_begin=on_begin,
        datasets=datasets,
    )


def sensors() -> list[Sensor]:
    """The sensors of the host. Commands of boards are not among them."""
    proc = Path("/proc")
    return [*discover(SENSORS), *memory(proc)]


def _rename(service: str, run: str) -> None:
    """Give the container of this agent the name of its run, by which `sweep` finds it."""
    if service == run:
        return
    with contextlib.closing(Engine.connect()) as engine, plain_words(f"naming the agent of {run}"):
        container = engine.client.containers.get(name_of(service))
        container.rename(name_of(run))
