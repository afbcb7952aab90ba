"""The lateness of a schedule's changes on a link that carries packets, and the packets that changes lose.

    python -m benchmarks.schedules

Prints one JSON object. A link of the userspace engine changes a thousand times in ten seconds, by a trace, while one
node sends datagrams to the other. None may be lost, since every rate of the trace suffices for them.
Lateness is the time from a change's planned time to its confirmation by the engine; the limit is for 99 % of them.
Needs root or unprivileged user namespaces.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from netem.profile import LinkProfile
from netem.schedules.schedule import until
from netem.schedules.traces import Trace
from netem.userspace.lateness import Lateness
from tests.netem.wiring import Lab, NamespacesRefusedError, Wiring

CHANGES = 1000
SECONDS = 10.0
PAUSE = 0.002  # s between datagrams
PAYLOAD = 200  # bytes; 500 datagrams a second are 1 Mbit/s with headers
BASE = LinkProfile(latency=0.005, rate=50e6)
LATE = 0.02  # s


def trace() -> Trace:
    """A trace of ten seconds with 12 to 60 Mbit/s; consecutive windows of 10 ms differ."""
    draw = random.Random(1)
    lines, before = [], 0
    for window in range(CHANGES):
        packets = draw.choice([count for count in range(10, 51) if count != before])
        lines += sorted(10 * window + draw.randint(1, 10) for _ in range(packets))
        before = packets
    return Trace.read("\n".join(map(str, lines)), "benchmark", window=SECONDS / CHANGES)


def arrived(far: socket.socket) -> bool:
    """Whether a datagram arrived within the socket's timeout."""
    try:
        far.recv(2048)
    except TimeoutError:
        return False
    return True


def send(lab: Wiring, source: str, target: str, stop: threading.Event, counted: dict[str, int]) -> None:
    """Send datagrams until ``stop`` is set, and count the sent and received ones."""
    with lab.bound(source, socket.SOCK_DGRAM) as near, lab.bound(target, socket.SOCK_DGRAM) as far:
        near.connect(far.getsockname())
        far.settimeout(PAUSE)
        while not stop.is_set():
            near.send(bytes(PAYLOAD))
            counted["sent"] += 1
            counted["received"] += arrived(far)
            time.sleep(PAUSE / 2)
        far.settimeout(1.0)
        while counted["received"] < counted["sent"] and arrived(far):
            counted["received"] += 1


async def follow(change_link: Callable[[LinkProfile], Awaitable[None]]) -> tuple[Lateness, int]:
    """Make the changes at their times. Returns their lateness and their number."""
    loop = asyncio.get_running_loop()
    lateness = Lateness()
    changes = [change for change in until(trace(), BASE, SECONDS) if change.at < SECONDS]
    began = loop.time()
    for change in changes:
        await asyncio.sleep(max(0.0, began + change.at - loop.time()))
        await change_link(change.profile)
        lateness.add(loop.time() - began - change.at)
    return lateness, len(changes)


def benchmark() -> dict[str, Any]:
    with Lab(2) as lab:
        lab.start_switch()
        lab.shape("a", "b", BASE.to_mapping())

        async def change_link(profile: LinkProfile) -> None:
            lab.ask("link", source="a", target="b", profile=profile.to_mapping())

        counted = {"sent": 0, "received": 0}
        stop = threading.Event()
        sender = threading.Thread(target=send, args=(lab, "a", "b", stop, counted))
        sender.start()
        try:
            lateness, changes = asyncio.run(follow(change_link))
        finally:
            stop.set()
            sender.join()
        link = lab.counters("a", "b")
    p99 = lateness.quantile(0.99)
    return {
        "changes": changes,
        "seconds": SECONDS,
        "late_p50_ms": round(1000 * lateness.quantile(0.5), 3),
        "late_p99_ms": round(1000 * p99, 3),
        "late_max_ms": round(1000 * lateness.maximum, 3),
        "limit_p99_ms": 1000 * LATE,
        "datagrams_sent": counted["sent"],
        "datagrams_received": counted["received"],
        "lost_by_the_link": link["lost"] + link["overflowed"] + link["cut_dropped"],
        "ok": p99 <= LATE and counted["sent"] == counted["received"],
    }


def main() -> None:
    try:
        result = benchmark()
    except NamespacesRefusedError as error:
        sys.exit(f"benchmarks.schedules: no network namespaces here: {error}")
    print(json.dumps(result, indent=2))
    sys.exit(0 if result["ok"] else 1)


if __name__ == "__main__":
    main()
