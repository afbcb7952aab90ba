"""Transfer times of modelled links against real ones: messages over the userspace engine and by `Flow`.

    python -m benchmarks.transfers [--repeat 3] [--congestion cubic]

Messages of 40 kB, 1 MB and 7 MB cross links of 20 and 100 Mbit/s, 10 and 80 ms one way, without loss and with 1 %. The
engine carries them from one `node.messaging.transport.ZmqTransport` to another, each a process in its own network
namespace, with the switch between them. `netem.tcp.flow.Flow` models the same sequence. A message is sent 0.5 s after
the acknowledgement of the previous one, as in a federated round; TCP reduces its window in that pause. The transfer
time is from `send` until the receiver has the whole message.

Prints one JSON object: for each size and link the medians (s) of engine and model, and model / engine. The links
without loss are measured in parallel, then those with loss, on --repeat pairs of nodes each, since their results vary
randomly. On links with loss the largest messages are first, so the small ones get the window that losses leave. The
namespaces use --congestion regardless of the host's setting; the model is of CUBIC, Linux' default.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import zmq

from benchmarks.common import star
from netem.profile import LinkProfile
from netem.tcp.flow import Flow
from node.assignment import Assignment, Timeouts
from node.messaging.delivery.association import Joined, Received
from node.messaging.transport import ZmqTransport
from node.messaging.wire import Message
from node.process.main import keep_freed_memory
from tests.netem.wiring import ROOT, Lab, Namespace, NamespacesRefusedError

SMALL, MIDDLE, LARGE = 40_000, 1_000_000, 7_000_000
RATES = (20e6, 100e6)
LATENCIES = (0.01, 0.08)
LOSS = 0.01
JITTER = 0.003  # s
PAUSE = 0.5  # s, longer than a retransmission timeout
WARM_UP = 2  # small messages that are not counted
MODEL_RUNS = 40
PORT = 7000
TIMEOUTS = Timeouts(beat=60.0, lost_after=600.0)  # no heartbeats between messages: they would change TCP's window
LARGEST_LAB = 13  # pairs; nodes are named by letters


@dataclass(frozen=True)
class Case:
    """A link, with the same profile in both directions, and the sizes of its messages."""

    rate: float
    latency: float
    loss: float
    sizes: tuple[int, ...]
    jitter: float = 0.0

    @property
    def forward(self) -> LinkProfile:
        return LinkProfile(latency=self.latency, rate=self.rate, loss=self.loss, jitter=self.jitter)


def cases(loss: float, counts: Mapping[int, int]) -> list[Case]:
    """All links with one loss; ``counts``: the number of messages by size, in the order of sending."""
    plan = (SMALL,) * WARM_UP + tuple(size for size, count in counts.items() for _ in range(count))
    return [Case(rate, latency, loss, plan) for rate in RATES for latency in LATENCIES]


# The engine


def measure(cases: Sequence[Case], congestion: str) -> list[list[float]]:
    """The transfer times (s) of each case's messages; all cases run at the same time."""
    with Lab(2 * len(cases)) as lab:
        lab.start_switch()
        pairs = list(zip(lab.names[::2], lab.names[1::2], strict=True))
        for place, (case, (source, sink)) in enumerate(zip(cases, pairs, strict=True)):
            for name in (source, sink):
                set_congestion(lab.nodes[name], congestion)
            # Loss applies to single packets, so packets must not be merged when they reach the link.
            lab.segment_offload(source, on=not case.loss)
            lab.segment_offload(sink, on=not case.loss)
            profile = case.forward.to_mapping()
            lab.ask("link", source=source, target=sink, profile=profile, seed=2 * place)
            lab.ask("link", source=sink, target=source, profile=profile, seed=2 * place + 1)
        started = [start(lab, case, *pair) for case, pair in zip(cases, pairs, strict=True)]
        return [
            [arrived - sent for sent, arrived in zip(times(source), times(sink), strict=True)]
            for source, sink in started
        ]


def set_congestion(namespace: Namespace, name: str) -> None:
    setting = "net.ipv4.tcp_congestion_control"
    if namespace.run("sysctl", "-n", setting).strip() != name:
        try:
            namespace.run("sysctl", "-qw", f"{setting}={name}")
        except NamespacesRefusedError as error:
            allowed = "net.ipv4.tcp_allowed_congestion_control"
            raise NamespacesRefusedError(
                f'{error}; have the host allow it: sysctl -w {allowed}="$(sysctl -n {allowed}) {name}"'
            ) from None


def start(lab: Lab, case: Case, source: str, sink: str) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    assignments = star("source", ["sink"])
    hosts = {"source": lab.address(source), "sink": lab.address(sink)}

    def end(role: str, namespace: Namespace) -> subprocess.Popen[str]:
        mine = assignments[role]
        peers = tuple(replace(peer, host=hosts[peer.name], port=PORT) for peer in mine.peers)
        assignment = replace(mine, host=hosts[role], port=PORT, peers=peers, timeouts=TIMEOUTS)
        process = subprocess.Popen(
            [*namespace.prefix, sys.executable, "-m", "benchmarks.transfers", "--end", role],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({"assignment": assignment.to_json(), "sizes": case.sizes}) + "\n")
        process.stdin.flush()
        return process

    return end("source", lab.nodes[source]), end("sink", lab.nodes[sink])


def times(process: subprocess.Popen[str]) -> list[float]:
    """The output of an end: the time at which each message was sent, or had arrived."""
    said, _ = process.communicate()
    if process.returncode:
        raise RuntimeError("an end of the benchmark failed")
    moments: list[float] = json.loads(said)
    return moments


def be_end(role: str) -> None:
    """Run one of the two processes: read its task from standard input, print its times."""
    task = json.loads(sys.stdin.readline())
    keep_freed_memory()
    work = source if role == "source" else sink
    print(json.dumps(asyncio.run(work(Assignment.from_json(task["assignment"]), task["sizes"]))))


async def source(assignment: Assignment, sizes: Sequence[int]) -> list[float]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    transport = ZmqTransport(assignment, "source", context)
    await transport.start()
    while not isinstance(await transport.receive(), Joined):
        pass
    moments = []
    for size in sizes:
        tensors = {"values": np.random.default_rng(1).random(size // 4, np.float32)}
        await asyncio.sleep(PAUSE)
        moments.append(time.monotonic())
        await transport.send(["sink"], Message("model", "source", None, {}, tensors))
        await message(transport)
    await transport.close(1.0)
    context.destroy()
    return moments


async def sink(assignment: Assignment, sizes: Sequence[int]) -> list[float]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    transport = ZmqTransport(assignment, "sink", context)
    await transport.start()
    moments = []
    for _ in sizes:
        await message(transport)
        moments.append(time.monotonic())
        await transport.send(["source"], Message("got-it", "sink"))
    await transport.close(1.0)
    context.destroy()
    return moments


async def message(transport: ZmqTransport) -> Message:
    while True:
        event = await transport.receive()
        if isinstance(event, Received):
            return event.message


# The model


def model(case: Case, seed: int) -> list[float]:
    """The transfer times (s) of the case's messages by the model."""
    flow = Flow(case.forward, case.forward, seed)
    now = 0.0
    taken = []
    for size in case.sizes:
        arrived = flow.send(now, size)
        taken.append(arrived - now)
        now = arrived + case.latency + PAUSE
    return taken


def medians(case: Case, turns: Sequence[Sequence[float]]) -> dict[int, float]:
    """The median time of each size over the messages of all turns, without the warm-up."""
    by_size = defaultdict(list)
    for turn in turns:
        for size, seconds in zip(case.sizes[WARM_UP:], turn[WARM_UP:], strict=True):
            by_size[size].append(seconds)
    return {size: median(values) for size, values in by_size.items()}


def rows(case: Case, engine: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    measured = medians(case, engine)
    modelled = medians(case, [model(case, seed) for seed in range(MODEL_RUNS)])
    return [
        {
            "bytes": size,
            "mbit_s": case.rate / 1e6,
            "latency_ms": 1000 * case.latency,
            "loss": case.loss,
            "jitter_ms": 1000 * case.jitter,
            "engine_s": round(measured[size], 4),
            "model_s": round(modelled[size], 4),
            "ratio": round(modelled[size] / measured[size], 3),
        }
        for size in measured
    ]


def benchmark(repeat: int, congestion: str) -> dict[str, Any]:
    # Few small messages: each grows the window a little; once 40 kB fit, they take one round trip instead of two.
    clean = cases(0.0, {SMALL: 6, MIDDLE: 2 * repeat, LARGE: repeat})
    lossy = cases(LOSS, {LARGE: 1, MIDDLE: 4, SMALL: 15})
    results = [rows(case, [turn]) for case, turn in zip(clean, measure(clean, congestion), strict=True)]
    wavering = [
        Case(RATES[0], LATENCIES[0], loss, (SMALL,) * WARM_UP + (MIDDLE,) * 4 + (SMALL,) * 15, JITTER)
        for loss in (0.0, LOSS)
    ]
    for several in (lossy, wavering):
        turns = measure([case for case in several for _ in range(repeat)], congestion)
        results += [rows(case, turns[place * repeat : (place + 1) * repeat]) for place, case in enumerate(several)]
    return {"congestion": congestion, "transfers": [row for each in results for row in each]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, choices=range(1, LARGEST_LAB // 4 + 1))
    parser.add_argument("--congestion", default="cubic")
    parser.add_argument("--end", choices=("source", "sink"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.end:
        be_end(arguments.end)
    else:
        try:
            print(json.dumps(benchmark(arguments.repeat, arguments.congestion), indent=2))
        except NamespacesRefusedError as error:
            sys.exit(f"benchmarks.transfers: {error}")


if __name__ == "__main__":
    main()
