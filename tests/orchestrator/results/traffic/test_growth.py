"""Pieces of what was carried: they add up to the totals."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from orchestrator.record.schema import FLOWS, LINKS
from orchestrator.results.history import History
from orchestrator.results.traffic import usage, volumes
from tests.orchestrator.example_run import Example

PIECE = 777  # ends in the middle of a reading


def test_pieces_add_up_to_the_totals(tmp_path: Path) -> None:
    path = Example(rounds=6).build(tmp_path / "run")
    with History.open(path) as history:
        links = {(row.source, row.target): row for row in volumes.link_counters(history)}
        delivered = {ends: row.delivered_bytes for ends, row in links.items()}
        dropped = {ends: row.lost + row.overflowed + row.cut_dropped for ends, row in links.items()}
        sizes, missing = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        last = usage.latest(history, LINKS)
        for after in range(0, last, PIECE):
            for _, source, target, size, lost, _ in usage.of_links(history, after, min(last, after + PIECE)):
                sizes[source, target] += size
                missing[source, target] += lost
        assert (sizes, missing) == (delivered, dropped)
        classes = Counter[str]()
        for after in range(0, last, PIECE):
            for _, link_class, size in usage.of_classes(history, after, after + PIECE):
                classes[link_class] += size
        assert classes == volumes.bytes_by_class(history)
        messages = Counter[str]()
        for _, _, kind, sent, _ in usage.of_sent(history, 0, usage.latest(history, FLOWS)):
            messages[kind] += sent
        assert messages == volumes.messages_by_kind(history)


def test_the_time_is_that_of_the_last_row(tmp_path: Path) -> None:
    with History.open(Example(rounds=2).build(tmp_path / "run")) as history:
        last = usage.latest(history, LINKS)
        named = "SELECT source, target, MAX(t) FROM link_growth JOIN link ON link.id = link GROUP BY link"
        latest = {(source, target): t for source, target, t in history.rows(named)}
        assert {(source, target): t for t, source, target, *_ in usage.of_links(history, 0, last)} == latest


def test_a_record_without_traffic(tmp_path: Path) -> None:
    with History.open(Example(rounds_made=0, ending=None).build(tmp_path / "run")) as history:
        assert (usage.latest(history, LINKS), usage.latest(history, FLOWS)) == (0, 0)
        assert usage.of_links(history, 0, 0) == []
