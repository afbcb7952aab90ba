"""The memory of a client's training: as planned, and as measured.

    python -m benchmarks.memory

Prints one JSON object for each case: the bytes that the plan of a shipped scenario has for its first client
(`orchestrator.planning.learning.memory`), and those by which the resident memory of a process grows at most while it
trains for three steps and evaluates as this client (VmHWM of proc(5)).
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.learners import SCENARIOS, learning_nodes
from node.learning.local_training import EVALUATION_BATCH
from orchestrator.run.launch import prepared_plan
from orchestrator.scenario.reading import load

HELLO, TEXT = "hello.yaml", "lora-over-lte.yaml"
CASES = [
    (HELLO, "model={name: mlp, hidden: 20000}"),
    (HELLO, "model={name: mlp, hidden: 2000, layers: 3}", "algorithm.optimizer=adam"),
    (HELLO, "model={name: resnet18, width: 16}", "algorithm.batch_size=256"),
    (HELLO, "model={name: torchvision, architecture: resnet18, image_size: 64}"),
    (TEXT, "model={name: char-transformer, layers: 4, width: 256}", "algorithm.batch_size=64"),
]


def planned(scenario: str, *overrides: str) -> int:
    plan = prepared_plan(load(SCENARIOS / scenario, overrides), SCENARIOS / scenario)
    return next(iter(plan.training_bytes.values()))


def measured(scenario: str, *overrides: str) -> int:
    """In a process of its own, whose memory has no gaps that others have left."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_measure, scenario, *overrides).result()


def _measure(scenario: str, *overrides: str) -> int:
    nodes, params = learning_nodes(scenario, overrides)
    learner, other, *_ = (each.learner for each in nodes.values() if each.learner.samples)
    other.warm_up(params)  # torch's own memory
    nodes.clear()
    del other

    def work() -> None:
        result = learner.train(learner.initial(), params.local(steps=3), 1)
        for which in learner.tests:
            learner.evaluate(result.weights, which, EVALUATION_BATCH)
        _ = {name: values.copy() for name, values in result.weights.items()}  # the message

    return growth(work)


def growth(work: Callable[[], None]) -> int:
    """The bytes by which the resident memory of this process grows at most during some work."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def main() -> None:
    for case in CASES:
        planned_bytes, measured_bytes = planned(*case), measured(*case)
        ratio = round(planned_bytes / measured_bytes, 2)
        print(json.dumps({"case": case, "planned": planned_bytes, "measured": measured_bytes, "ratio": ratio}))


if __name__ == "__main__":
    main()
