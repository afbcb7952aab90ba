"""What nodes train on, and how many simulated clients at once."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.errors import PlanError
from orchestrator.planning.plan import NodePlan
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.compute import PROCESSOR
from orchestrator.scenario.sections.drivers import DRIVERS, listed

CLIENTS_AT_ONCE = 64
"""Clients in a batch on an accelerator: it waits for Python with one client of a small model. On a processor one client
after the other is faster."""


def refuse_stretched_accelerators(nodes: Iterable[NodePlan]) -> None:
    """Raise PlanError if a node trains on an accelerator and emulates the speed of a slower processor: its steps are
    stretched by their processor time, which does not tell how long an accelerator took."""
    for node in nodes:
        if node.device != PROCESSOR and node.hardware.speed is not None:
            raise PlanError(
                ("hardware", node.tier),
                f"{node.name} emulates the speed of a processor ({node.hardware.name}) and cannot train"
                f" on {node.device} at the same time: take the class host, a real board, or the driver"
                f" {listed(simulated=True)}",
            )


def clients_at_once(scenario: Scenario, nodes: Iterable[NodePlan]) -> int:
    """How many simulated clients train as one batch."""
    if scenario.compute.clients_at_once is not None:
        return scenario.compute.clients_at_once
    accelerated = any(node.device != PROCESSOR for node in nodes)
    return CLIENTS_AT_ONCE if accelerated and DRIVERS[scenario.driver].simulated else 1
