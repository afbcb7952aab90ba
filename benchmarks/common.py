"""Shared code of the node's benchmarks: nodes on loopback without a scenario, a model's tensors, processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from node.assignment import Assignment, DataAssignment, PeerAddress, Stop
from node.role import Role
from tests.node.assignments import free_port, make_keys

MODEL_BYTES = 1_663_370 * 4  # McMahan's CNN for MNIST, 6.65 MB

_fork = multiprocessing.get_context("fork")


def model() -> dict[str, Any]:
    """Eight tensors of random numbers, with the CNN's total size."""
    values = np.random.default_rng(1).random(MODEL_BYTES // 4, np.float32)
    return {f"layer{place}": part.copy() for place, part in enumerate(np.array_split(values, 8))}


class Echo(Role):
    """A role that sends back the models it receives."""

    async def run(self) -> None:
        while True:
            message = await self.receive("model")
            await self.send(self.parent, "update", message.tensors, round=message.round)


def star(center: str, leaves: Sequence[str], rounds: int = 1) -> dict[str, Assignment]:
    """Assignments of a cloud and its devices on loopback, by name."""
    names = [center, *leaves]
    keys = {name: make_keys() for name in names}
    ports = {name: free_port() for name in names}

    def address(name: str, relation: Any) -> PeerAddress:
        return PeerAddress(
            name=name,
            tier="cloud" if name == center else "device",
            relation=relation,
            host="127.0.0.1",
            port=ports[name],
            public_key=keys[name].public,
        )

    def assignment(name: str) -> Assignment:
        peers = [address(each, "child") for each in leaves] if name == center else [address(center, "parent")]
        return Assignment(
            run="benchmark",
            node=name,
            tier="cloud" if name == center else "device",
            index=names.index(name) + 1,
            seed=1,
            host="127.0.0.1",
            port=ports[name],
            keys=keys[name],
            control_endpoint="",
            control_key="",
            peers=tuple(peers),
            algorithm="fedavg",
            model="cnn",
            data=DataAssignment(dataset="digits", directory="", shards=""),
            stop=Stop(rounds=rounds),
            checkpoint_directory="",
            leads=name == center,
        )

    return {name: assignment(name) for name in names}


@contextmanager
def processes(work: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> Iterator[None]:
    """Fork a process for each tuple of arguments. Raises RuntimeError at the end if one of them failed."""
    children = [_fork.Process(target=work, args=each) for each in arguments]
    for child in children:
        child.start()
    try:
        yield
        for child in children:
            child.join(30)
    finally:
        for child in children:
            if child.is_alive():
                child.terminate()
                child.join()
    if any(child.exitcode for child in children):
        raise RuntimeError("a process of the benchmark failed")
