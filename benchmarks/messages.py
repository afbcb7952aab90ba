"""The messages per second that a simulation carries without training.

    python -m benchmarks.messages [devices] [rounds]        (default 10000 10)

A cloud publishes 40 kB to every device and gathers as much from each. Roles, transport and links are those of the `sim`
driver, in one process on the virtual clock. Prints one JSON object: messages of the roles (not the transport's own) per
second of the host's clock, over the whole run with hellos and goodbyes, and over the rounds. ``messages_cpu_s`` is the
same over the rounds for a second of the processor: a busy machine disturbs it least.
"""

from __future__ import annotations

import asyncio
import json
import math
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.rounds import Silent
from netem.profile import LinkProfile
from netem.tcp.lockstep import Flows
from node.assignment import Assignment, DataAssignment, Keypair, PeerAddress, Stop
from node.messaging.memory import MemoryNetwork, MemoryTransport
from node.role import Role
from node.runtime.clock import run_virtual

BYTES = 40_000
LINK = LinkProfile(latency=0.01, rate=100e6)
UPDATE = {"values": np.random.default_rng(2).random(BYTES // 4, np.float32)}


class Cloud(Role):
    """A cloud that publishes and gathers. ``seconds`` and ``cpu_seconds``: of the host's clock and of its processor."""

    seconds = cpu_seconds = 0.0
    answers = 0

    async def run(self) -> None:
        tensors = {"values": np.random.default_rng(1).random(BYTES // 4, np.float32)}
        began, cpu_began = time.perf_counter(), time.process_time()
        async for t in self.rounds():
            await self.publish(self.children, "model", tensors, round=t)
            self.answers += len(await self.gather("update", self.children, round=t))
        self.seconds, self.cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began


class Device(Role):
    """A device that answers each model with as many bytes of its own, which the transport has to copy."""

    async def run(self) -> None:
        while True:
            message = await self.receive("model", sender=self.parent)
            await self.send(self.parent, "update", UPDATE, round=message.round)


class Unused:
    """A `node.runtime.compute.Compute` for roles that compute nothing."""

    async def run(self, fn: Callable[..., Any], args: tuple[Any, ...], samples: int, mode: str) -> Any:
        raise NotImplementedError

    async def aside(self, fn: Callable[..., None], *args: Any) -> None:
        raise NotImplementedError


def star(devices: int, rounds: int) -> list[Assignment]:
    """The assignments of a cloud and its devices, the cloud first."""
    keys = Keypair(public="", secret="")
    names = [f"device-{place}" for place in range(devices)]
    cloud = PeerAddress(name="cloud", tier="cloud", relation="parent", host="", port=0, public_key="")
    below = tuple(replace(cloud, name=name, tier="device", relation="child") for name in names)
    first = Assignment(
        run="benchmark",
        node="cloud",
        tier="cloud",
        index=1,
        seed=1,
        host="",
        port=0,
        keys=keys,
        control_endpoint="",
        control_key="",
        peers=below,
        algorithm="fedavg",
        model="cnn",
        data=DataAssignment(dataset="digits", directory="", shards=""),
        stop=Stop(rounds=rounds),
        checkpoint_directory="",
        leads=True,
    )
    return [first, *(replace(first, node=name, tier="device", peers=(cloud,), leads=False) for name in names)]


def messages(devices: int = 10_000, rounds: int = 10) -> dict[str, Any]:
    """Run the benchmark once."""

    async def perform() -> Cloud:
        flows = Flows()
        network = MemoryNetwork(lambda source, target: flows.flow(LINK, LINK, 1, math.inf, math.inf))

        def transport(of: Assignment) -> MemoryTransport:
            return network.transport(of.node, [peer.name for peer in of.peers], timeouts=of.timeouts)

        first, *others = assignments
        cloud = Cloud(first, transport(first), Unused(), Silent())
        devices = [Device(each, transport(each), Unused(), Silent()) for each in others]
        await asyncio.gather(*(role.perform() for role in (cloud, *devices)))
        return cloud

    assignments = star(devices, rounds)
    began = time.perf_counter()
    cloud = run_virtual(perform())
    seconds = time.perf_counter() - began
    if cloud.answers != devices * rounds:
        raise RuntimeError(f"{cloud.answers} answers of {devices * rounds} arrived")
    sent = 2 * devices * rounds
    return {
        "devices": devices,
        "rounds": rounds,
        "bytes": BYTES,
        "messages": sent,
        "seconds": round(seconds, 3),
        "messages_s": round(sent / seconds),
        "messages_s_in_rounds": round(sent / cloud.seconds),
        "messages_cpu_s": round(sent / cloud.cpu_seconds),
        "megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
    }


if __name__ == "__main__":
    print(json.dumps(messages(*map(int, sys.argv[1:]))))
