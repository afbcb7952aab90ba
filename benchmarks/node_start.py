"""What a node of the `namespaces` driver costs until it registers, by step, and after a training.

    python -m benchmarks.node_start [nodes ...]        (default 101 1001)

Forks one node of a run with so many nodes at a time, as `node.process.forkserver` does, but without an orchestrator and
links. Prints one JSON object: milliseconds of the processor and kilobytes of memory of its own (private and dirty) by
step, medians over the nodes, and the milliseconds of a fork with its exit, with and without huge pages.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import zmq

import node.process.main as process
from benchmarks.startup import SCENARIO
from node.assignment import Assignment
from node.messaging.control import ControlClient
from node.messaging.transport import ZmqTransport
from node.process import namespaces
from node.process.confinement import Confinement, confine
from node.process.forkserver import NODE_NAMESPACES, prepare_forks, rehearsed
from node.process.rehearsal import Rehearsal
from node.process.seccomp import filter_for
from node.process.view import FileView
from node.runtime.compute import WorkerCompute
from orchestrator.drivers.namespaces.entry import first_to_train
from orchestrator.planning.assignments import assignments, seen_from_inside
from orchestrator.planning.keys import RunKeys
from orchestrator.record.directory import RunDirectory
from orchestrator.run.launch import prepared_plan
from orchestrator.scenario.reading import load

REPEATS = 9


def private_kilobytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))


def in_a_fork(work: Callable[[], Any]) -> Any:
    """The result of ``work`` in a child process with a PID namespace of its own."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    read, write = os.pipe()
    namespaces.unshare(namespaces.CLONE_NEWPID)
    child = os.fork()
    if child == 0:
        try:
            os.write(write, json.dumps(work()).encode())
        finally:
            os._exit(0)
    namespaces.enter(own, namespaces.CLONE_NEWPID)
    os.close(own)
    os.close(write)
    with open(read, "rb") as answer:
        result = answer.read()
    os.waitpid(child, 0)
    return json.loads(result)


def fork_milliseconds() -> float:
    began = time.perf_counter()
    for _ in range(REPEATS):
        in_a_fork(lambda: None)
    return (time.perf_counter() - began) / REPEATS * 1e3


def start(text: str, view: FileView, checkpoints: Path, rehearsal: Rehearsal | None) -> list[tuple[str, float, int]]:
    """Become a node and train. Returns each step with its milliseconds of the processor and kilobytes of memory."""
    steps, last = [], [time.process_time(), private_kilobytes()]

    def mark(step: str) -> None:
        now = time.process_time(), private_kilobytes()
        steps.append((step, (now[0] - last[0]) * 1e3, round(now[1] - last[1])))
        last[:] = [time.process_time(), now[1]]

    async def live() -> None:
        mark("event loop")
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        control = ControlClient(assignment, "benchmark", context)
        compute = WorkerCompute(assignment.hardware, control)
        transport = ZmqTransport(assignment, "benchmark", context)
        mark("sockets and keys")
        role: Any = process._make_role(assignment, transport, compute, control, rehearsal)
        mark("model and data")
        await compute.prepare(role.learner.warm_up, role.params)
        mark("warm-up")
        control.register()
        await asyncio.sleep(0.05)
        mark("registration")
        for _ in range(3):
            await compute.run(role.learner.train, (role.learner.initial(), role.params, 1), 1, "train")
        mark("three trainings")

    mark("(the measurement itself)")
    assignment = Assignment.from_json(text)
    mark("assignment")
    namespaces.unshare(NODE_NAMESPACES)
    namespaces.private_mounts()
    mark("namespaces")
    confine(Confinement(str(checkpoints)), view, filter_for(os.uname().machine))
    mark("mounts, rights, seccomp")
    asyncio.run(live())
    return steps


def measured(nodes: int, folder: Path) -> dict[str, Any]:
    """The medians of the steps of a node, one of ``nodes``. Changes the mounts of this process."""
    scenario = folder / "startup.yaml"
    scenario.write_text(SCENARIO.format(nodes=nodes, devices=(nodes - 5) // 4))
    plan = prepared_plan(load(scenario), scenario)
    directory = RunDirectory.create(folder, "startup")
    plan.shards.write(directory.shards)
    keys = RunKeys.make([each.name for each in plan.nodes])
    text = seen_from_inside(assignments(plan, directory, keys, "ipc://nobody")["device-0-3"]).to_json()
    (tree := directory.nodes / "tree").mkdir(parents=True)
    (checkpoints := directory.checkpoints_of("device-0-3")).mkdir(parents=True)
    given = {"data": plan.data_directory, "shards.npz": str(directory.shards), "control": str(directory.control)}
    view = FileView(str(tree), given, str(folder))
    view.make()
    rehearsal = rehearsed(view, first_to_train(plan, directory))
    prepare_forks(nodes)
    runs = [in_a_fork(lambda: start(text, view, checkpoints, rehearsal)) for _ in range(REPEATS)]
    medians = {
        each[0][0]: [round(statistics.median(value), 2) for value in list(zip(*each, strict=True))[1:]]
        for each in zip(*runs, strict=True)
    }
    return {
        "steps_ms_kb": medians,
        "total_ms_kb": [round(sum(each), 1) for each in zip(*medians.values(), strict=True)],
    }


def main(sizes: list[int]) -> None:
    process.preload()
    gc.collect()
    gc.freeze()
    small = fork_milliseconds()
    namespaces.use_huge_pages()
    forks = {"small_pages": round(small, 1), "huge_pages": round(fork_milliseconds(), 1)}
    nodes = {}
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            nodes[str(size)] = in_a_fork(partial(measured, size, Path(folder)))
    print(json.dumps({"benchmark": "node_start", "fork_and_exit_ms": forks, "nodes": nodes}))


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [101, 1001])
