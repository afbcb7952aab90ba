"""The cost of the userspace engine: round trip, TCP throughput and packets per second, against bare veth pairs.

    python -m benchmarks.links

Prints one JSON object. "bare" means the same veth pairs, joined by a kernel bridge instead of the switch. Both are
measured in turn, three times in the same run; the results are medians. Needs root or unprivileged user namespaces.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from tests.netem.traffic import goodput, round_trips
from tests.netem.wiring import Lab, NamespacesRefusedError, Wiring, bridge

REPEATS = 3
SECONDS = 1.5
DELAY = "5ms"


def packets_per_second(lab: Wiring, source: str = "a", target: str = "b") -> float:
    """The small datagrams per second that reach the target's interface while the source sends at full speed."""
    with lab.bound(source, socket.SOCK_DGRAM) as near, lab.bound(target, socket.SOCK_DGRAM) as far:
        near.connect(far.getsockname())
        before, began = received(lab, target), time.monotonic()
        while time.monotonic() < began + SECONDS:
            for _ in range(50):
                near.send(bytes(60))
        took = time.monotonic() - began
        rate = (received(lab, target) - before) / took
        drain(lab, target)
        return rate


def drain(lab: Wiring, node: str) -> None:
    """Wait until no packet has arrived at the node for a while: what is queued would delay the next measurement."""
    before = -1
    while (now := received(lab, node)) != before:
        before = now
        time.sleep(0.2)


def received(lab: Wiring, node: str) -> int:
    """The packets that arrived at the node's data0, whether or not a program read them."""
    (link,) = json.loads(lab.nodes[node].run("ip", "-j", "-s", "link", "show", "data0"))
    packets: int = link["stats64"]["rx"]["packets"]
    return packets


def round_trip(lab: Lab) -> float:
    return 1000 * median(round_trips(lab, "a", "b", 200, 0.003))


def throughput(lab: Lab) -> float:
    return goodput(lab, "a", "b", SECONDS, SECONDS / 3) / 1e6


def figures(lab: Lab, delay: str | None = None) -> dict[str, float]:
    """Measure all quantities once."""
    if lab.switch is not None:
        lab.shape("a", "b", {} if delay is None else {"latency": delay})
    quantities: dict[str, Callable[[Lab], float]] = {
        "rtt_ms": round_trip,
        "tcp_mbit_s": throughput,
        "packets_s": packets_per_second,
    }
    return {name: measure(lab) for name, measure in quantities.items()}


def medians(turns: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(median(turn[name] for turn in turns), 3) for name in turns[0]}


def benchmark() -> dict[str, Any]:
    with Lab(2) as bare, Lab(2) as switched:
        bridge(bare)
        switch = switched.start_switch()
        turns = [(figures(bare), figures(switched), figures(switched, DELAY)) for _ in range(REPEATS)]
        counters = switch.ask("counters")
    results = [medians(list(each)) for each in zip(*turns, strict=True)]
    return {
        "bare": results[0],
        "userspace": results[1],
        f"userspace_{DELAY}_each_way": results[2],
        "added_rtt_ms": round(results[1]["rtt_ms"] - results[0]["rtt_ms"], 3),
        "tcp_of_bare": round(results[1]["tcp_mbit_s"] / results[0]["tcp_mbit_s"], 3),
        "late_p99_ms": round(1000 * counters["late_p99"], 3),
        "scheduling": counters["scheduling"],
    }


def main() -> None:
    try:
        print(json.dumps(benchmark(), indent=2))
    except NamespacesRefusedError as error:
        sys.exit(f"benchmarks.links: no network namespaces here: {error}")


if __name__ == "__main__":
    main()
