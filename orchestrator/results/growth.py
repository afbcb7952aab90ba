"""What links and flows of messages have carried, in pieces of the record: for readers that follow a run.

A long piece is summed up by SQLite, which takes a tenth of the time that its rows would take here.
"""

from __future__ import annotations

from typing import NamedTuple

from orchestrator.results.history import History
from orchestrator.results.schema import FLOWS, LINKS, Counted

_DROPPED = "lost + overflowed + cut_dropped"


class LinkGrowth(NamedTuple):
    """What was added to one direction of a link: bytes that it delivered, packets that did not arrive, and packets that
    it delivered. ``id``: of the row, or the latest of the rows that are summed up; ``t``: its time."""

    id: int
    t: float
    source: str
    target: str
    link_class: str
    delivered_bytes: int
    dropped: int
    delivered: int


class ClassGrowth(NamedTuple):
    """The bytes that the links of a class delivered more at the reading at ``t``. ``id``: of its latest row."""

    id: int
    t: float
    link_class: str
    delivered_bytes: int


class SentGrowth(NamedTuple):
    """What a node sent more of a kind of message. ``id``, ``t``: as of `LinkGrowth`."""

    id: int
    t: float
    node: str
    kind: str
    messages: int
    bytes: int


def latest(history: History, counted: Counted) -> int:
    """The id of the latest row; 0 if there is none."""
    return int(history.rows(f"SELECT COALESCE(MAX(id), 0) FROM {counted.growth}")[0][0])


def of_links(history: History, after: int, until: int) -> list[LinkGrowth]:
    """The growth of links, row by row, with ids in (after, until]."""
    columns = f"link_growth.id, t, source, target, link_class, delivered_bytes, {_DROPPED}, delivered"
    where = "WHERE link_growth.id > ? AND link_growth.id <= ? ORDER BY link_growth.id"
    return [LinkGrowth(*row) for row in history.rows(f"SELECT {columns} FROM {LINKS.named} {where}", after, until)]


def of_links_together(history: History, after: int, until: int) -> list[LinkGrowth]:
    """The growth of each link altogether, in rows with ids in (after, until]."""
    counts = f"SUM(delivered_bytes) AS bytes, SUM({_DROPPED}) AS dropped, SUM(delivered) AS delivered"
    sums = f"MAX(id) AS last, t, link AS of, {counts}"
    summed = f"SELECT {sums} FROM link_growth WHERE id > ? AND id <= ? GROUP BY link"  # t is that of the last row
    columns = "last, t, source, target, link_class, bytes, dropped, delivered"
    rows = history.rows(f"SELECT {columns} FROM ({summed}) JOIN link ON link.id = of", after, until)
    return [LinkGrowth(*row) for row in rows]


def of_classes(history: History, after: int, until: int) -> list[ClassGrowth]:
    """The bytes that each class of links delivered more at each reading, in rows with ids in (after, until]."""
    columns = "MAX(link_growth.id) AS last, t, link_class, SUM(delivered_bytes)"
    where = "WHERE link_growth.id > ? AND link_growth.id <= ? GROUP BY t, link_class ORDER BY last"
    return [ClassGrowth(*row) for row in history.rows(f"SELECT {columns} FROM {LINKS.named} {where}", after, until)]


def of_sent(history: History, after: int, until: int) -> list[SentGrowth]:
    """The growth of what nodes sent, row by row, with ids in (after, until]."""
    columns = "flow_growth.id, t, node, kind, messages, bytes"
    where = "WHERE direction = 'sent' AND flow_growth.id > ? AND flow_growth.id <= ? ORDER BY flow_growth.id"
    return [SentGrowth(*row) for row in history.rows(f"SELECT {columns} FROM {FLOWS.named} {where}", after, until)]


def of_sent_together(history: History, after: int, until: int) -> list[SentGrowth]:
    """The growth of what each node sent of each kind altogether, in rows with ids in (after, until]."""
    columns = "MAX(flow_growth.id), t, node, kind, SUM(messages), SUM(bytes)"  # t is that of the last row
    where = "WHERE direction = 'sent' AND flow_growth.id > ? AND flow_growth.id <= ? GROUP BY node, kind"
    return [SentGrowth(*row) for row in history.rows(f"SELECT {columns} FROM {FLOWS.named} {where}", after, until)]
