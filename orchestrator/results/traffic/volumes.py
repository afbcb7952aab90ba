"""What links and flows of messages have carried over a run: totals, and the course of one link or of a class of links.

`usage` gives the same in pieces, to readers that follow a run.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any

import numpy as np

from orchestrator import text
from orchestrator.record.events.links import Probed
from orchestrator.record.rows import LinkCounters, PeerTraffic
from orchestrator.record.schema import FLOWS, LINKS, CounterTable
from orchestrator.results.checks.network import real_networks
from orchestrator.results.history import History
from orchestrator.results.traffic.windows import Window
from orchestrator.scenario.sections.drivers import link_kind

Direction = tuple[str, str]  # source, target
Reading = tuple[float, int, int, int]  # t, bytes and packets delivered, packets that did not arrive
Sizes = dict[str, int]  # bytes by direction
Course = tuple[list[float], list[int]]  # times, bytes until each
Count = tuple[int, int]  # samples, packets delivered
Interval = tuple[str, str, float, float]  # source, target, start, end


def link_counters(history: History) -> list[LinkCounters]:
    """Totals of each link direction in training, summed over restarts of the link engine."""
    usual = link_kind(history.driver, real=False)
    kinds = history.link_kinds
    counters = []
    columns = ("source", "target", "link_class")
    for row in history.rows(_totals(LINKS, columns)):
        source, target, *_ = row
        kind = kinds.get((source, target), usual)
        counters.append(LinkCounters._make((*row, kind)))
    return counters


def _link_ids(history: History) -> dict[Direction, int]:
    """The number of each recorded direction of a link."""
    rows = history.rows("SELECT id, source, target FROM link")
    return {(source, target): id for id, source, target in rows}


def delivered(history: History, windows: Sequence[Interval]) -> list[Count | None]:
    """For each (source, target, start, end): (samples, packets delivered) in this direction between the first and
    last sample in [start, end]; None without a sample. The record is read once for all."""
    ids = _link_ids(history)
    times: dict[int, array[float]] = {}  # of the samples of a requested link
    totals: dict[int, array[int]] = {}  # packets until each sample, after a 0
    for source, target, _, _ in windows:
        link = ids.get((source, target))
        if link is not None:
            times[link] = array("d")
            totals[link] = array("q", (0,))
    if times:
        rows = history.stream("SELECT link, t, delivered FROM link_growth ORDER BY id")
        for link, t, packets in rows:
            if link in times:
                total = totals[link][-1] + packets
                times[link].append(t)
                totals[link].append(total)
    counts: list[Count | None] = []
    for source, target, start, end in windows:
        ends = (source, target)
        link = ids.get(ends, 0)
        sampled = times.get(link, ())
        first = bisect_left(sampled, start)
        last = bisect_right(sampled, end)
        if first >= last:
            counts.append(None)
            continue
        of_link = totals[link]
        at_first = of_link[first + 1]
        packets = of_link[last] - at_first
        counts.append((last - first, packets))
    return counts


def readings(history: History, source: str, target: str) -> list[Reading]:
    """The totals of a direction over time: t, bytes and packets delivered, packets that did not arrive."""
    query = (
        "SELECT t, delivered_bytes, delivered, lost + overflowed + cut_dropped FROM link_growth"
        " WHERE link = (SELECT id FROM link WHERE source = ? AND target = ?) ORDER BY id"
    )
    bytes_so_far = 0
    packets_so_far = 0
    dropped_so_far = 0
    totals = []
    rows = history.rows(query, source, target)
    for t, size, packets, dropped in rows:
        bytes_so_far += size
        packets_so_far += packets
        dropped_so_far += dropped
        totals.append((t, bytes_so_far, packets_so_far, dropped_so_far))
    return totals


def fastest(
    history: History,
    readings: Sequence[int],
    allowed: Mapping[Direction, tuple[float, float]],
) -> dict[Direction, Window]:
    """The window of so many ``readings`` in which each direction carried most per second for certain. ``allowed``: by
    direction, the bytes that a window may count too many, and the seconds by which its length may be wrong. A direction
    that may have carried nothing in any window is left out."""
    ids = _link_ids(history)
    directions = {link: ends for ends, link in ids.items()}
    windows: dict[Direction, Window] = {}
    rows = history.stream("SELECT link, t, delivered_bytes FROM link_growth ORDER BY link, id")
    for link, grown in groupby(rows, key=itemgetter(0)):
        ends = directions[link]
        if ends not in allowed:
            continue
        extra, seconds = allowed[ends]
        samples = np.array([(t, size) for _, t, size in grown])
        times, counts = samples.T
        total = counts.cumsum()
        for number in readings:
            if number >= len(times):
                continue
            before = slice(None, -number)
            after = slice(number, None)
            carried = total[after] - total[before]
            lasted = times[after] - times[before]
            least_bits = 8 * (carried - extra)
            least_rates = least_bits / (lasted + seconds)
            place = int(least_rates.argmax())
            window = Window(
                bits=8.0 * carried[place],
                seconds=float(lasted[place]),
                extra_bits=8.0 * extra,
                unsure_seconds=seconds,
            )
            least_so_far = 0.0
            if ends in windows:
                least_so_far = windows[ends].least_rate
            if window.least_rate > least_so_far:
                windows[ends] = window
    return windows


def traffic(history: History) -> list[PeerTraffic]:
    """Totals by node, peer, kind and direction."""
    rows = history.rows(_totals(FLOWS, FLOWS.keys))
    return [PeerTraffic(*row) for row in rows]


def arrivals(
    history: History,
    node: str,
    peer: str,
    kind: str,
) -> list[float]:
    """When messages of a kind from a peer had arrived at a node: the times of the beats that reported them, in s."""
    query = (
        f"SELECT t FROM {FLOWS.named} WHERE node = ? AND peer = ? AND kind = ? AND direction = 'received'"
        " AND messages > 0 ORDER BY t"
    )
    return [t for (t,) in history.rows(query, node, peer, kind)]


def bytes_by_class(history: History) -> dict[str, int]:
    """The bytes that the links of each class delivered in training, headers included."""
    totals: defaultdict[str, int] = defaultdict(int)
    for link in link_counters(history):
        totals[link.link_class] += link.delivered_bytes
    return dict(totals)


def bytes_by_device(history: History) -> dict[str, Sizes]:
    """By device, the bytes that its links delivered in training, headers included: ``sent`` by it and ``received``. A
    population is one device."""
    totals = {}
    for name, node in history.nodes.items():
        if node.get("tier") == "device":
            totals[name] = {"sent": 0, "received": 0}
    for link in link_counters(history):
        size = link.delivered_bytes
        if link.source in totals:
            totals[link.source]["sent"] += size
        if link.target in totals:
            totals[link.target]["received"] += size
    return totals


def probed_bytes_by_class(history: History) -> dict[str, int]:
    """The bytes that the links of each class delivered in probes, before training started."""
    totals: Counter[str] = Counter()
    for recorded in history.recorded(Probed):
        totals.update(recorded.event.bytes)
    return dict(totals)


def delivered_bytes(history: History) -> dict[str, Course]:
    """By link class: the times at which counters were read, and the bytes that its links had delivered by then."""
    rows = history.rows(
        f"SELECT t, link_class, SUM(delivered_bytes) FROM {LINKS.named} GROUP BY t, link_class ORDER BY t"
    )
    times = sorted({t for t, _, _ in rows})
    grown: defaultdict[str, dict[float, int]] = defaultdict(dict)
    for t, link_class, growth in rows:
        grown[link_class][t] = growth
    courses = {}
    for link_class, growths in grown.items():
        totals = accumulate(growths.get(t, 0) for t in times)
        courses[link_class] = (times, list(totals))
    return courses


def messages_by_kind(history: History) -> dict[str, int]:
    """The number of messages sent of each kind, over all nodes."""
    totals: defaultdict[str, int] = defaultdict(int)
    for row in traffic(history):
        if row.direction == "sent":
            totals[row.kind] += row.messages
    return dict(totals)


def _totals(counted: CounterTable, columns: Sequence[str]) -> str:
    """A query for what was counted altogether, after these columns of the things; the earliest thing comes first."""
    sums = ", ".join(f"SUM({name}) AS {name}" for name in counted.counts)
    each = counted.each
    totals = f"{each} AS thing, MIN(t) AS first, {sums}"
    grown = f"SELECT {totals} FROM {counted.growth} GROUP BY {each}"
    listed = ", ".join((*columns, *counted.counts))
    order = ", ".join(("first", *columns))
    things = f"({grown}) JOIN {each} ON id = thing"
    return f"SELECT {listed} FROM {things} ORDER BY {order}"


_ENDS = ("source", "target", "link_class")


def real_links(history: History) -> dict[str, Any] | None:
    """None if there are none. Keys: before [{source, target, link_class, and a figure of each quantity}], of probes;
    networks [{hosts, links, round_trip, echoes, lost, sent, missing}], between hosts during the run."""
    networks = real_networks(history)
    if not networks:
        return None
    before: dict[Direction, dict[str, Any]] = {}
    for probe in history.probes():
        if probe.kind == "real":
            ends = {key: getattr(probe, key) for key in _ENDS}
            direction = (probe.source, probe.target)
            figures = before.setdefault(direction, ends)
            figures[probe.quantity] = probe.measured
    return {
        "before": list(before.values()),
        "networks": [network.to_json() for network in networks],
    }


def sentences(real: Mapping[str, Any]) -> Iterator[str]:
    """The figures of each link before the run. The check "network between hosts" has those during it."""
    for link in real["before"]:
        figures = []
        for key, value in link.items():
            if key not in _ENDS:
                figures.append(f"{key} {text.quantity(key, value)}")
        listed = ", ".join(figures)
        yield f"{link['source']} → {link['target']}, measured: {listed}"
