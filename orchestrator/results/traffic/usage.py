"""What a run has used so far, from the rows of its record: bytes and packets of links, messages, processor time.

SQLite sums up each piece of the record, which takes a tenth of the time that this module would need.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from orchestrator.record.events.overload import SHORTEST
from orchestrator.record.rows import Ends
from orchestrator.record.schema import COUNTED, FLOWS, LINKS, CounterTable
from orchestrator.results.history import History

PIECE = 200_000  # rows of a table that are summed up in one go
Values = tuple[Any, ...]  # of a row
Rows = list[Values]
Things = dict[int, Values]  # the keys and facts of what is counted, by id
RUNTIME = frozenset(("hello", "beat", "goodbye", "framing"))  # kinds of messages that are not the algorithm's


class GrowingCount:
    """A count that only grows: the total, and its rate between the last two readings that are `SHORTEST` apart."""

    __slots__ = ("grown", "last", "rate", "t", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self.last = 0.0  # count
        self.t = 0.0  # of the reading that `rate` is from
        self.rate = 0.0
        self.grown = 0.0  # since `t`

    def read(self, t: float, count: float) -> None:
        """Take a reading at ``t`` of a count that restarts at 0 with its process."""
        if count >= self.last:
            grown = count - self.last
        else:
            grown = count
        self.last = count
        self.grow(t, grown)

    def grow(self, t: float, grown: float) -> None:
        """Take a reading at ``t`` of what was added."""
        self.total += grown
        self.grown += grown
        seconds = t - self.t
        if not self.t or seconds >= SHORTEST:
            if self.t:
                self.rate = self.grown / seconds
            else:
                self.rate = 0.0
            self.t = t
            self.grown = 0.0


class Usage:
    """By node and link. ``now``: of the latest row. ``packets``: delivered by links; None if never read."""

    def __init__(self) -> None:
        self.now = 0.0
        self.packets: int | None = None
        self.cpu: defaultdict[str, GrowingCount] = defaultdict(GrowingCount)  # processor seconds by node
        self.rss: dict[str, int] = {}  # bytes by node, with pages that it shares with other nodes
        self.pss: dict[str, int] = {}  # bytes by node; a page that n processes share counts 1/n
        self.sending: dict[str, float] = {}  # by node, when its messages last grew
        self.links: defaultdict[Ends, GrowingCount] = defaultdict(GrowingCount)  # delivered bytes
        self.dropped: defaultdict[Ends, GrowingCount] = defaultdict(GrowingCount)  # packets lost, overflowed or cut
        self.kinds: defaultdict[str, list[float]] = defaultdict(_nothing_sent)  # messages and bytes sent, by kind
        self.delivered: defaultdict[str, dict[float, int]] = defaultdict(dict)  # bytes by link class, at each reading
        self.occupied: defaultdict[str, dict[float, float]] = defaultdict(dict)  # seconds by channel, at each reading
        self._totals: defaultdict[str, int] = defaultdict(int)  # bytes by link class
        self._things: dict[str, Things] = {}
        self._read: dict[str, int] = {}  # the id of the last row that was read, by table
        for counted in COUNTED:
            self._things[counted.each] = {}
            self._read[counted.growth] = 0

    def read(self, history: History) -> bool:
        """Take in what was recorded since the last call, in pieces. Returns whether there is more."""
        more = False
        pieces = {}
        for counted in COUNTED:
            table = counted.growth
            after = self._read[table]
            last = latest(history, counted)
            until = min(last, after + PIECE)
            self._read[table] = until
            pieces[table] = (after, until)
            more |= until < last
        after, until = pieces[LINKS.growth]
        for row in of_links(history, after, until):
            self._add_link(*row)
        for t, link_class, size in of_classes(history, after, until):
            self._totals[link_class] += size
            delivered = self.delivered[link_class]
            delivered[t] = self._totals[link_class]
        after, until = pieces[FLOWS.growth]
        for row in of_sent(history, after, until):
            self._add_sent(*row)
        return more

    def read_names(self, history: History) -> None:
        """Read the names of what is counted, for `add_row`."""
        for table, things in self._things.items():
            for id, *thing in history.rows(f"SELECT * FROM {table}"):
                things[id] = tuple(thing)

    def add_row(self, table: str, row: Values) -> None:
        """Take a row of links and flows that has just been recorded."""
        match table, row:
            case (("link" | "flow"), (id, *thing)):
                self._things[table][id] = tuple(thing)
            case "link_growth", (_, t, link, *counts):
                grown = dict(zip(LINKS.counts, counts, strict=True))
                source, target, *_ = self._things[LINKS.each][link]
                self._add_link(
                    t,
                    source,
                    target,
                    size=grown["delivered_bytes"],
                    dropped=grown["lost"] + grown["overflowed"] + grown["cut_dropped"],
                    delivered=grown["delivered"],
                )
            case "flow_growth", (_, t, flow, messages, size):
                node, _, kind, direction = self._things[FLOWS.each][flow]
                if direction == "sent":
                    self._add_sent(t, node, kind, messages, size)

    @property
    def memory(self) -> dict[str, int]:
        """The latest memory of each node in bytes: proportional set sizes, or resident set sizes if this host shows no
        others. `memory_measure` names them."""
        return self.pss or self.rss

    @property
    def memory_measure(self) -> str:
        return "PSS" if self.pss else "RSS"

    def add_resources(
        self,
        t: float,
        node: str,
        cpu_seconds: float,
        rss: int,
        pss: int | None,
    ) -> None:
        """Take a row of the table resources."""
        self.cpu[node].read(t, cpu_seconds)
        self.rss[node] = rss
        if pss is not None:
            self.pss[node] = pss

    def add_channel(self, t: float, channel: str, seconds: float) -> None:
        """Take a row of the table channel."""
        occupied = self.occupied[channel]
        occupied[t] = occupied.get(t, 0.0) + seconds

    def _add_link(
        self,
        t: float,
        source: str,
        target: str,
        size: int,
        dropped: int,
        delivered: int,
    ) -> None:
        self.now = max(self.now, t)
        self.packets = (self.packets or 0) + delivered
        self.links[source, target].grow(t, size)
        self.dropped[source, target].grow(t, dropped)

    def _add_sent(
        self,
        t: float,
        node: str,
        kind: str,
        messages: int,
        size: int,
    ) -> None:
        self.now = max(self.now, t)
        of_kind = self.kinds[kind]
        of_kind[0] += messages
        of_kind[1] += size
        if messages and kind not in RUNTIME:
            earlier = self.sending.get(node, 0.0)
            self.sending[node] = max(t, earlier)


def _nothing_sent() -> list[float]:
    return [0.0, 0.0]


def latest(history: History, counted: CounterTable) -> int:
    """The id of the latest row; 0 if there is none."""
    rows = history.rows(f"SELECT COALESCE(MAX(id), 0) FROM {counted.growth}")
    return int(rows[0][0])


def of_links(history: History, after: int, until: int) -> Rows:
    """What each direction added until ``t``, in rows with ids in (after, until]: t, source, target, bytes delivered,
    packets lost, packets delivered."""
    counts = (
        "SUM(delivered_bytes) AS bytes, SUM(lost + overflowed + cut_dropped) AS dropped, SUM(delivered) AS delivered"
    )
    sums = f"MAX(id), t, link AS of, {counts}"  # t is that of the last row
    summed = f"SELECT {sums} FROM link_growth WHERE id > ? AND id <= ? GROUP BY link"
    columns = "t, source, target, bytes, dropped, delivered"
    return history.rows(f"SELECT {columns} FROM ({summed}) JOIN link ON link.id = of", after, until)


def of_classes(history: History, after: int, until: int) -> Rows:
    """What each class of links added at each reading, in rows with ids in (after, until]: t, class, bytes delivered."""
    columns = "t, link_class, SUM(delivered_bytes)"
    where = "WHERE link_growth.id > ? AND link_growth.id <= ? GROUP BY t, link_class ORDER BY MAX(link_growth.id)"
    return history.rows(f"SELECT {columns} FROM {LINKS.named} {where}", after, until)


def of_sent(history: History, after: int, until: int) -> Rows:
    """What each node sent more of each kind until ``t``, in rows with ids in (after, until]: t, node, kind, messages,
    bytes."""
    columns = "MAX(flow_growth.id), t, node, kind, SUM(messages), SUM(bytes)"  # t is that of the last row
    where = "WHERE direction = 'sent' AND flow_growth.id > ? AND flow_growth.id <= ? GROUP BY node, kind"
    rows = history.rows(f"SELECT {columns} FROM {FLOWS.named} {where}", after, until)
    return [row[1:] for row in rows]
