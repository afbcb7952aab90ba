"""The schedulers that execute the tasks of a sweep as a job: those of the drivers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from orchestrator.scenario.sections.drivers import DRIVERS

if TYPE_CHECKING:
    from orchestrator.drivers.scheduler import Scheduler

SCHEDULERS = tuple(kind.name for kind in DRIVERS.values() if kind.scheduler)
"""Their names, which are those of the drivers."""


def scheduler_of(name: str) -> Scheduler:
    """The scheduler of this name. Its module is imported here, so that the names are known without it."""
    module = importlib.import_module(DRIVERS[name].scheduler)
    scheduler: Scheduler = module.SCHEDULER
    return scheduler


def names_of(*, contained: bool) -> list[str]:
    """The schedulers with tasks in containers, or the others."""
    return [name for name in SCHEDULERS if scheduler_of(name).contained is contained]
