from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node.catalogue.models import MODELS
from node.catalogue.sizes import Size
from node.learning.local_training import LocalTraining
from orchestrator.planning.learning.memory import training_bytes
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.scenario.reading import parse
from tests.orchestrator.labels import prepared
from tests.texts import containing

SCENARIO = """\
algorithm: fedavg
model: {name: mlp, hidden: 1000}
topology: {devices: 2}
hardware: {device: {class: raspberry-pi-3, memory: %s}}
driver: %s
"""


@pytest.mark.parametrize(
    ("tests", "params", "most"),
    [
        (0, {}, 2 * 75_010),  # the trained state and its message: 64 * 1000 + 1000 + 1000 * 10 + 10 parameters, twice
        (0, {"momentum": 0.9}, 2 * 75_010 + 32 * 1_074),  # saved of a sample: 64 pixels, 1000 features, 10 logits
        (0, {"momentum": 0.9, "weight_decay": 0.1}, 3 * 75_010 + 32 * 1_074),
        (0, {"optimizer": "adam"}, 4 * 75_010 + 32 * 1_074),
        (0, {"optimizer": "adam", "batch_size": 512}, 4 * 75_010 + 100 * 1_074),  # a client has 100 samples
        (300, {}, 75_010 + 250 * 3 * 1_000),  # the trained state; a batch before and after an activation, and a copy
    ],
)
def test_training_takes_what_its_largest_part_takes(tests: int, params: dict[str, Any], most: int) -> None:
    size = MODELS["mlp"].size((1, 8, 8), 10, {"hidden": 1000})
    always = 100 * 64 + 2 * 4 * 75_010  # samples, the model, and the state that it was sent
    assert training_bytes(size, LocalTraining(**params), 100, 64, tests) == always + 4 * most
    fixed = replace(size, fixed=1_000_000)
    assert training_bytes(fixed, LocalTraining(**params), 100, 64, tests) == always + 4 * (most + 1_000_000)


def test_statistics_and_counters_are_a_part_of_the_state() -> None:
    """The model, the state that it was sent, and the trained state with its message: 1,000 parameters and 100 numbers
    of statistics, and 3 counters of 8 bytes."""
    size = Size(1000, buffers=100, counters=3)
    assert training_bytes(size, LocalTraining(), 0, 64, 0) == 4 * (4 * 1100 + 3 * 8)


def planned(memory: str, driver: str) -> Plan:
    return make_plan(parse(SCENARIO % (memory, driver), "f.yaml"), prepared())


@pytest.mark.parametrize(
    ("memory", "driver", "end"),
    [
        ("100mib", "namespaces", "nodes share Python and torch"),
        ("1mib", "namespaces", "run out of memory"),
        ("100mib", "docker", "run out of memory"),
        ("100mib", "sim", "no limits of memory"),
    ],
)
def test_hardware_with_too_little_memory_is_noted(memory: str, driver: str, end: str) -> None:
    (note,) = planned(memory, driver).notes()
    assert note == containing("device-0, device-1: training needs", "3 MB", "170 MB")
    assert end in note


def test_hardware_with_enough_memory_is_not_noted() -> None:
    made = planned("256mib", "docker")
    assert made.notes() == []
    tests = {name: sum(made.node(name).test_counts) for name in ("device-0", "device-1")}
    assert made.training_bytes == {name: 12 * 75_010 + 4 * 3 * 1_000 * count for name, count in tests.items()}
