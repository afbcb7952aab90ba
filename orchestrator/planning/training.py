"""What a plan says of training: the algorithm, the model, the data, and what a round needs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from node.assignment import Tier
from node.catalogue.datasets import Form
from node.catalogue.models import largest
from node.catalogue.sizes import Size
from orchestrator.planning.data_plan import plan_data
from orchestrator.planning.gathering import System, plan_gathering, round_work, tests_of
from orchestrator.planning.learning.memory import training_bytes
from orchestrator.planning.learning.model_size import model_sizes
from orchestrator.planning.learning.shards import PreparedLabels, Shards
from orchestrator.planning.names import Names
from orchestrator.planning.plan import NodePlan
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.compute import PROCESSOR

CLIENTS_AT_ONCE = 64
"""Clients in a batch on an accelerator: it waits for Python with one client of a small model. On a processor one client
after the other is faster."""


def plan_learning(
    scenario: Scenario,
    names: Names,
    system: System,
    shards: Shards,
    data: PreparedLabels | None,
) -> dict[str, Any]:
    """The fields of a plan about its algorithm, model and data. ``data``: None if it has not been read."""
    if names.form is None:
        sizes = [Size(0)]
    else:
        sizes = model_sizes(scenario, names.form)
    work = round_work(scenario, system, sizes, names.form or Form((1,), 1), data)
    return dict(
        params=asdict(scenario.parameters),
        clients_at_once=_clients_at_once(scenario, system.nodes),
        precision=scenario.compute.precision.removeprefix("float32"),
        model=names.model.name,
        model_params=names.model_params,
        model_bytes=largest(sizes).bytes,
        training_bytes=_training_bytes(scenario, system.nodes, sizes, data),
        data=plan_data(scenario, names.partition_params, data, shards),
        gathering=plan_gathering(scenario, work, system),
    )


def _training_bytes(
    scenario: Scenario,
    nodes: tuple[NodePlan, ...],
    sizes: list[Size],
    data: PreparedLabels | None,
) -> dict[str, int]:
    """The memory of each node's training, by its name. Clients of each tier have the models in turn (`model_of`)."""
    if data is None:
        return {}
    memory = {}
    number_in_tier = Counter[Tier]()
    labels = math.prod(data.form.labels)
    for node in nodes:
        kind = number_in_tier[node.tier] % len(sizes)
        number_in_tier[node.tier] += 1
        if node.samples:
            tests = tests_of(scenario, node, len(data.test), labels)
            memory[node.name] = training_bytes(
                sizes[kind],
                scenario.parameters,
                samples=node.samples,
                sample_bytes=data.sample_bytes,
                tests=tests,
            )
    return memory


def _clients_at_once(scenario: Scenario, nodes: Iterable[NodePlan]) -> int:
    """How many simulated clients train as one batch."""
    configured = scenario.compute.clients_at_once
    if configured is not None:
        return configured
    accelerated = any(node.device != PROCESSOR for node in nodes)
    if accelerated and scenario.driver_kind.simulated:
        return CLIENTS_AT_ONCE
    return 1
