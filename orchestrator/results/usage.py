"""What a run has used so far, folded from the rows of its record: bytes and packets of links, messages, processor time.

A long past is summed up by SQLite; its latest rows are taken one by one, so that rates are those of now.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from orchestrator.fidelity.overload import SHORTEST
from orchestrator.results import growth
from orchestrator.results.growth import ClassGrowth, LinkGrowth, SentGrowth
from orchestrator.results.history import History
from orchestrator.results.schema import COUNTED, FLOWS, LINKS
from orchestrator.scenario.topology import Ends

PIECE = 20_000  # rows of a table that are read in one go
SUMMED = 200_000  # rows that SQLite sums up in one go, where more than a piece waits
RUNTIME = frozenset(("hello", "beat", "goodbye", "framing"))  # kinds of messages that are not the algorithm's


class Flow:
    """A count that only grows: the total, and its rate between the last two readings that are `SHORTEST` apart."""

    __slots__ = ("grown", "last", "rate", "t", "total")

    def __init__(self) -> None:
        self.total = self.last = self.t = self.rate = self.grown = 0.0

    def read(self, t: float, count: float) -> None:
        """Take a reading at ``t`` of a count that begins again at 0 with its process."""
        grown = count - self.last if count >= self.last else count
        self.last = count
        self.grow(t, grown)

    def grow(self, t: float, grown: float) -> None:
        """Take a reading at ``t`` of what was added."""
        self.total += grown
        self.grown += grown
        if not self.t or t - self.t >= SHORTEST:
            self.rate = self.grown / (t - self.t) if self.t else 0.0
            self.t, self.grown = t, 0.0


class Usage:
    """By node and link. ``now``: the time of the latest row. ``packets``: how many the links have delivered; None if
    their counters were never read."""

    def __init__(self) -> None:
        self.now = 0.0
        self.packets: int | None = None
        self.cpu: defaultdict[str, Flow] = defaultdict(Flow)  # processor seconds by node
        self.trained: defaultdict[str, float] = defaultdict(float)  # those since the training began
        self.rss: dict[str, int] = {}
        self.sending: dict[str, float] = {}  # by node, when its messages last grew
        self.links: defaultdict[Ends, Flow] = defaultdict(Flow)  # delivered bytes
        self.dropped: defaultdict[Ends, Flow] = defaultdict(Flow)  # packets lost, overflowed or cut
        self.kinds: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])  # messages and bytes sent, by kind
        self.delivered: defaultdict[str, dict[float, int]] = defaultdict(dict)  # bytes by link class, at each reading
        self._totals: defaultdict[str, int] = defaultdict(int)  # bytes by link class
        self._things: dict[str, dict[int, tuple[Any, ...]]] = {each.each: {} for each in COUNTED}  # by id
        self._read = {each.growth: 0 for each in COUNTED}

    def read(self, history: History) -> bool:
        """Take in what was recorded since the last call. Returns whether there is more."""
        more = False
        for counted in COUNTED:
            after, last = self._read[counted.growth], growth.latest(history, counted)
            until, together = max(last - PIECE, after), last - PIECE > after
            if together:
                until, more = min(until, after + SUMMED), True
            elif last > after:
                until = last
            if until > after:
                self._take(history, counted.each, after, until, together=together)
            self._read[counted.growth] = until
        return more

    def know_things(self, history: History) -> None:
        """Read the names of what is counted, for `hear`."""
        for each, things in self._things.items():
            things.update((id, tuple(thing)) for id, *thing in history.rows(f"SELECT * FROM {each}"))

    def hear(self, table: str, row: tuple[Any, ...]) -> None:
        """Take a row of links and flows that has just been recorded."""
        match table, row:
            case (("link" | "flow"), (id, *thing)):
                self._things[table][id] = tuple(thing)
            case "link_growth", (_, t, link, *counts):
                grown = dict(zip(LINKS.counts, counts, strict=True))
                source, target, link_class, _ = self._things[LINKS.each][link]
                dropped = sum(grown[each] for each in ("lost", "overflowed", "cut_dropped"))
                sizes = grown["delivered_bytes"], dropped, grown["delivered"]
                self._add_link(LinkGrowth(0, t, source, target, link_class, *sizes))
            case "flow_growth", (_, t, flow, messages, size):
                node, _, kind, direction = self._things[FLOWS.each][flow]
                if direction == "sent":
                    self._add_sent(SentGrowth(0, t, node, kind, messages, size))

    def add_resources(self, t: float, node: str, cpu_seconds: float, rss: int, training: float | None) -> None:
        """Take a row of the table resources. ``training``: when it began."""
        used, before = self.cpu[node], self.cpu[node].total
        used.read(t, cpu_seconds)
        if training is not None and t >= training:
            self.trained[node] += used.total - before
        self.rss[node] = rss

    def _take(self, history: History, what: str, after: int, until: int, *, together: bool) -> None:
        if what == FLOWS.each:
            for sent in (growth.of_sent_together if together else growth.of_sent)(history, after, until):
                self._add_sent(sent)
            return
        for row in (growth.of_links_together if together else growth.of_links)(history, after, until):
            self._add_link(row)
        for of_class in growth.of_classes(history, after, until):
            self._add_class(of_class)

    def _add_link(self, row: LinkGrowth) -> None:
        ends = row.source, row.target
        self.now, self.packets = max(self.now, row.t), (self.packets or 0) + row.delivered
        self.links[ends].grow(row.t, row.delivered_bytes)
        self.dropped[ends].grow(row.t, row.dropped)

    def _add_class(self, row: ClassGrowth) -> None:
        self._totals[row.link_class] += row.delivered_bytes
        self.delivered[row.link_class][row.t] = self._totals[row.link_class]

    def _add_sent(self, row: SentGrowth) -> None:
        self.now = max(self.now, row.t)
        of_kind = self.kinds[row.kind]
        of_kind[0] += row.messages
        of_kind[1] += row.bytes
        if row.messages and row.kind not in RUNTIME:
            self.sending[row.node] = max(row.t, self.sending.get(row.node, 0.0))
