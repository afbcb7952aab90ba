"""Shared media in the userspace engine: configured and measured shares, with real packets.

    python -m benchmarks.media [uploads] [round-trips] [short] [rates] [isolation] [buffer] [cross-traffic] [handover]

Prints a table; all parts take some four minutes. Rates include the headers of packets. Node a receives; the others send
to it through channels, and its acknowledgements come back over private links. The last two columns compare the
simulation (`--driver sim`) with the engine.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any, NamedTuple

from benchmarks.simulated_media import Sending, seconds
from benchmarks.simulated_media import rates as modelled
from netem.media.formulas import shares
from netem.media.profile import RULES, ChannelProfile, CrossTraffic, Rule
from tests.netem.traffic import PAYLOAD_SHARE, connection, round_trips
from tests.netem.traffic import uploads as together
from tests.netem.wiring import Lab

UPLOAD = 3_000_000
ENDLESS = 1_000_000_000
SECONDS = 10.0
ROUND_TRIPS = (0.01, 0.05, 0.1)
TURNS = 4
SEEDS = 11
CELL = ("cell",)


class Row(NamedTuple):
    """A line of the table; ``tolerance`` is a part of ``expected``, or a difference; None: nothing is promised.
    ``simulated``: the same under the driver `sim`."""

    run: str
    unit: str
    expected: float
    found: float
    tolerance: float | None
    absolute: bool = False
    simulated: float | None = None

    def cells(self) -> list[str]:
        difference = self.found - self.expected
        if not self.absolute:
            difference /= self.expected
        text = f"{difference:+.3f}" if self.absolute else f"{difference:+.1%}"
        within = "" if self.tolerance is None else "yes" if abs(difference) <= self.tolerance else "no"
        return [self.run, self.unit, f"{self.expected:.4g}", f"{self.found:.4g}", text, within, *self._simulated()]

    def _simulated(self) -> list[str]:
        """What the simulation says, and how that differs from what was found."""
        if self.simulated is None:
            return ["", ""]
        return [f"{self.simulated:.4g}", f"{self.simulated / self.found - 1:+.1%}"]


def use_cubic(lab: Lab) -> None:
    """Use CUBIC, Linux' default and the simulation's model, whatever this host's setting is."""
    for node in lab.nodes.values():
        route = node.run("ip", "route").split()
        node.run("ip", "route", "replace", *route[: route.index("src")], "congctl", "cubic")


def share(lab: Lab, channel: str, rate: float, rule: Rule = "fair", buffer: float = 0.1, **rates: float) -> None:
    lab.ask("channel", name=channel, profile=ChannelProfile(rate, rule, buffer, rates).to_mapping())


def route(lab: Lab, node: str, *channels: str, rtt: float = 0.01) -> None:
    """The link from a node to a, through channels, and the one back."""
    profile = {"latency": f"{500 * rtt:g}ms"}
    crossings = [[channel, node] for channel in channels]
    lab.ask("link", source=node, target="a", profile=profile, seed=ord(node), crossings=crossings)
    lab.ask("link", source="a", target=node, profile=profile, seed=ord(node) + 100)


class Streams:
    """TCP streams from nodes to a, for as long as the context lasts; `rates` measures them."""

    def __init__(self, lab: Lab, nodes: Sequence[str]) -> None:
        self._ends = {node: connection(lab, node, "a") for node in nodes}
        self._arrived = dict.fromkeys(nodes, 0)
        self._stop = False
        self._threads = [threading.Thread(target=self._send, args=(near,)) for near, _ in self._ends.values()]
        self._threads += [threading.Thread(target=self._receive, args=(node,)) for node in nodes]

    def __enter__(self) -> Streams:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        for ends in self._ends.values():
            ends[0].shutdown(2)
        for thread in self._threads:
            thread.join()
        for near, far in self._ends.values():
            near.close()
            far.close()

    def rates(self, seconds: float) -> dict[str, float]:
        """The bit/s of each, with headers, over the next so many seconds."""
        before, began = dict(self._arrived), time.monotonic()
        time.sleep(seconds)
        after, took = dict(self._arrived), time.monotonic() - began
        return {node: 8 * (after[node] - before[node]) / took / PAYLOAD_SHARE for node in before}

    def _send(self, near: Any) -> None:
        block = bytes(1 << 16)
        try:
            while not self._stop:
                near.send(block)
        except OSError:
            return

    def _receive(self, node: str) -> None:
        far = self._ends[node][1]
        try:
            while part := far.recv(1 << 20):
                self._arrived[node] += len(part)
        except OSError:
            return


@contextmanager
def flood(lab: Lab, node: str, rate: float) -> Iterator[None]:
    """Full datagrams from a node to a at that rate, whatever becomes of them."""
    stop = threading.Event()

    def send() -> None:
        with lab.bound(node, 2) as near, lab.bound("a", 2) as far:
            near.connect(far.getsockname())
            due = time.monotonic()
            while not stop.is_set():
                while due <= time.monotonic():
                    near.send(bytes(1472))
                    due += 8 * 1514 / rate
                time.sleep(0.001)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def simulated(channel: ChannelProfile, sendings: Sequence[Sending]) -> list[float]:
    """The seconds of transfers under `sim` in ascending order; of each place the median of several seeds."""
    turns = [sorted(seconds({"cell": channel}, sendings, seed)) for seed in range(SEEDS)]
    return [median(turn) for turn in zip(*turns, strict=True)]


def uploads(lab: Lab) -> list[Row]:
    """Ten uploads at once: the last ends when the rate says so, whatever the rule."""
    rows, ideal = [], 10 * UPLOAD / PAYLOAD_SHARE * 8 / 20e6
    for rule in RULES:
        share(lab, "cell", 20e6, rule)
        for node in lab.names[1:]:
            route(lab, node, "cell")
        took = together(lab, lab.names[1:], UPLOAD)
        model = simulated(ChannelProfile(20e6, rule), [Sending(node, UPLOAD, CELL) for node in lab.names[1:]])
        run = f"ten uploads of 3 MB over 20 Mbit/s, {rule}: the last"
        rows.append(Row(run, "s", ideal, took[-1], 0.02, simulated=model[-1]))
        for name, place in (("median", len(took) // 2), ("first", 0)):
            rows.append(Row(f"the {name} of them, {rule}", "s", ideal, took[place], None, simulated=model[place]))
    return rows


def different_round_trips(lab: Lab) -> list[Row]:
    rows = []
    for rule in ("fair", "fifo"):
        share(lab, "cell", 20e6, rule)
        for node, rtt in zip("bcd", ROUND_TRIPS, strict=True):
            route(lab, node, "cell", rtt=rtt)
        with Streams(lab, "bcd") as streams:
            time.sleep(2)
            rates = list(streams.rates(SECONDS).values())
        sendings = [Sending(node, ENDLESS, CELL, rtt / 2) for node, rtt in zip("bcd", ROUND_TRIPS, strict=True)]
        model = modelled({"cell": ChannelProfile(20e6, rule)}, sendings, 2.0, 2.0 + SECONDS)
        shown = ", ".join(f"{rate / 1e6:.2f}" for rate in rates)
        run = f"round trips of 10, 50, 100 ms, {rule}: Jain's index ({shown} Mbit/s)"
        rows.append(Row(run, "", 1.0, jain(rates), 0.02 if rule == "fair" else None, simulated=jain(model)))
    return rows


def jain(rates: Sequence[float]) -> float:
    """Jain's index of fairness, 1 if all are equal."""
    return sum(rates) ** 2 / (len(rates) * sum(rate**2 for rate in rates))


def short_transfers(lab: Lab) -> list[Row]:
    """Three uploads at once with different round trips over one fifo channel."""
    rows = []
    channel = ChannelProfile(20e6, "fifo")
    share(lab, "cell", channel.rate, channel.share)
    for node, rtt in zip("bcd", ROUND_TRIPS, strict=True):
        route(lab, node, "cell", rtt=rtt)
    for size in (1_000_000, 3_000_000, 10_000_000):
        turns = [together(lab, "bcd", size) for _ in range(TURNS)]
        sendings = [Sending(node, size, CELL, rtt / 2) for node, rtt in zip("bcd", ROUND_TRIPS, strict=True)]
        model, ideal = simulated(channel, sendings), 3 * size / PAYLOAD_SHARE * 8 / channel.rate
        for place, name in enumerate(("first", "second", "last")):
            run = f"uploads of {size // 1_000_000} MB with round trips of 10, 50, 100 ms, fifo: the {name}"
            found = median(turn[place] for turn in turns)
            rows.append(Row(run, "s", ideal, found, None, simulated=model[place]))
    return rows


def different_rates(lab: Lab) -> list[Row]:
    rows = []
    for rule in ("frames", "airtime"):
        share(lab, "cell", 54e6, rule, d=6e6)
        for node in "bcd":
            route(lab, node, "cell")
        with Streams(lab, "bcd") as streams:
            time.sleep(3)
            found = streams.rates(SECONDS)
        channel = ChannelProfile(54e6, rule, 0.1, {"d": 6e6})
        wanted = shares(channel, "bcd")
        model = modelled({"cell": channel}, [Sending(node, ENDLESS, CELL) for node in "bcd"], 3.0, 3.0 + SECONDS)
        for node, rate in zip("bcd", model, strict=True):
            run, mbit = f"54, 54, 6 Mbit/s, {rule}: {node}", (wanted[node] / 1e6, found[node] / 1e6)
            rows.append(Row(run, "Mbit/s", *mbit, 0.05, simulated=rate / 1e6))
    return rows


def isolation(lab: Lab) -> list[Row]:
    share(lab, "cell-0", 20e6)
    share(lab, "cell-1", 20e6)
    for node, cell in (("b", "cell-0"), ("c", "cell-0"), ("d", "cell-1")):
        route(lab, node, cell)
    idle = 1000 * median(round_trips(lab, "d", "a", 300, 0.01))
    with Streams(lab, "bc"):
        time.sleep(1)
        busy = 1000 * median(round_trips(lab, "d", "a", 300, 0.01))
    return [Row("round trip in a cell next to a saturated one", "ms", idle, busy, 0.5, absolute=True)]


def full_buffer(lab: Lab) -> list[Row]:
    share(lab, "cell", 20e6, "fifo", 0.1)
    for node in "bc":
        route(lab, node, "cell")
    idle = 1000 * median(round_trips(lab, "c", "a", 100, 0.01))
    with flood(lab, "b", 30e6):
        time.sleep(0.5)
        busy = 1000 * median(round_trips(lab, "c", "a", 100, 0.01))
    return [Row("round trip of an idle member of a saturated fifo with 100 ms: growth", "ms", 100, busy - idle, 0.1)]


def cross_traffic(lab: Lab) -> list[Row]:
    rows, traffic = [], CrossTraffic("poisson", rate=30e6)
    for rule in ("fair", "fifo"):
        share(lab, "backhaul", 100e6, rule)
        route(lab, "b", "backhaul")
        lab.ask("occupy", name="backhaul", traffic=traffic.to_mapping(), seed=1)
        with Streams(lab, "b") as streams:
            time.sleep(3)
            (found,) = streams.rates(SECONDS).values()
        lab.ask("occupy", name="backhaul", traffic=None)
        channels = {"backhaul": ChannelProfile(100e6, rule)}
        (model,) = modelled(channels, [Sending("b", ENDLESS, ("backhaul",))], 3.0, 3.0 + SECONDS, traffic)
        run = f"30 Mbit/s Poisson on 100, {rule}: an upload"
        rows.append(Row(run, "Mbit/s", 70, found / 1e6, 0.03, simulated=model / 1e6))
    return rows


def handover(lab: Lab) -> list[Row]:
    share(lab, "cell-0", 20e6)
    share(lab, "cell-1", 10e6)
    route(lab, "b", "cell-0")
    with Streams(lab, "b") as streams:
        time.sleep(2)
        (before,) = streams.rates(SECONDS / 2).values()
        lab.ask("link", source="b", target="a", crossings=[["cell-1", "b"]])
        time.sleep(0.2)
        (after,) = streams.rates(SECONDS / 2).values()
    time.sleep(0.5)  # what waits arrives
    counted, link = lab.ask("counters"), lab.counters("b", "a")
    missing = link["offered"] - link["delivered"] - link["overflowed"]
    missing += sum(counted[place] for place in ("flight_dropped", "unsent", "refused", "unreadable"))
    return [
        Row("handover from 20 to 10 Mbit/s: before", "Mbit/s", 20, before / 1e6, 0.03),
        Row("after", "Mbit/s", 10, after / 1e6, 0.03),
        Row("packets lost that no buffer dropped", "", 0, missing, 0, absolute=True),
    ]


PARTS: dict[str, Callable[[Lab], list[Row]]] = {
    "uploads": uploads,
    "round-trips": different_round_trips,
    "short": short_transfers,
    "rates": different_rates,
    "isolation": isolation,
    "buffer": full_buffer,
    "cross-traffic": cross_traffic,
    "handover": handover,
}


def main() -> None:
    print("| run | unit | expected | found | difference | within | simulation | simulation and found |")
    print("|---|---|---|---|---|---|---|---|")
    for name in sys.argv[1:] or PARTS:
        with ExitStack() as stack:
            lab = stack.enter_context(Lab(11 if name == "uploads" else 4))
            lab.start_switch()
            use_cubic(lab)
            for row in PARTS[name](lab):
                print(f"| {' | '.join(row.cells())} |", flush=True)


if __name__ == "__main__":
    main()
