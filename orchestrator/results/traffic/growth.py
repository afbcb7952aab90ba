"""What links and flows of messages have carried, in pieces of the record: for readers that follow a run. SQLite sums up
each piece, which takes a tenth of the time that its rows would take here."""

from __future__ import annotations

from typing import NamedTuple

from orchestrator.results.record.history import History
from orchestrator.results.record.schema import FLOWS, LINKS, CounterTable


class LinkGrowth(NamedTuple):
    """What was added to one direction of a link until ``t``: bytes that it delivered, packets that did not arrive, and
    packets that it delivered."""

    t: float
    source: str
    target: str
    delivered_bytes: int
    dropped: int
    delivered: int


class ClassGrowth(NamedTuple):
    """The bytes that the links of a class delivered more at the reading at ``t``."""

    t: float
    link_class: str
    delivered_bytes: int


class SentGrowth(NamedTuple):
    """What a node sent more of a kind of message until ``t``."""

    t: float
    node: str
    kind: str
    messages: int
    bytes: int


def latest(history: History, counted: CounterTable) -> int:
    """The id of the latest row; 0 if there is none."""
    return int(history.rows(f"SELECT COALESCE(MAX(id), 0) FROM {counted.growth}")[0][0])


def of_links(history: History, after: int, until: int) -> list[LinkGrowth]:
    """The growth of each link, in rows with ids in (after, until]."""
    counts = (
        "SUM(delivered_bytes) AS bytes, SUM(lost + overflowed + cut_dropped) AS dropped, SUM(delivered) AS delivered"
    )
    sums = f"MAX(id), t, link AS of, {counts}"  # t is that of the last row
    summed = f"SELECT {sums} FROM link_growth WHERE id > ? AND id <= ? GROUP BY link"
    columns = "t, source, target, bytes, dropped, delivered"
    rows = history.rows(f"SELECT {columns} FROM ({summed}) JOIN link ON link.id = of", after, until)
    return [LinkGrowth(*row) for row in rows]


def of_classes(history: History, after: int, until: int) -> list[ClassGrowth]:
    """The bytes that each class of links delivered more at each reading, in rows with ids in (after, until]."""
    columns = "t, link_class, SUM(delivered_bytes)"
    where = "WHERE link_growth.id > ? AND link_growth.id <= ? GROUP BY t, link_class ORDER BY MAX(link_growth.id)"
    return [ClassGrowth(*row) for row in history.rows(f"SELECT {columns} FROM {LINKS.named} {where}", after, until)]


def of_sent(history: History, after: int, until: int) -> list[SentGrowth]:
    """The growth of what each node sent of each kind, in rows with ids in (after, until]."""
    columns = "MAX(flow_growth.id), t, node, kind, SUM(messages), SUM(bytes)"  # t is that of the last row
    where = "WHERE direction = 'sent' AND flow_growth.id > ? AND flow_growth.id <= ? GROUP BY node, kind"
    rows = history.rows(f"SELECT {columns} FROM {FLOWS.named} {where}", after, until)
    return [SentGrowth(*row[1:]) for row in rows]
