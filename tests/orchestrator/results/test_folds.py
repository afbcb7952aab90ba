"""What follows from rows, folded row by row."""

from __future__ import annotations

import math

from orchestrator.record.rows import Event, Metric, Round
from orchestrator.results.folds import Overruns, Reports, Rounds


def reached(t: float, round: int, phase: str, edge_round: int | None = None) -> Event:
    return Event(t, "cloud", "round", round, {"phase": phase}, edge_round)


def test_a_round_that_a_restart_repeats_is_listed_again() -> None:
    rounds = Rounds()
    for event in (reached(1.0, 1, "start"), reached(2.0, 1, "start"), reached(3.0, 1, "end")):
        rounds.add(event)
    assert rounds.all == [Round("cloud", 1, 1.0, None, False), Round("cloud", 1, 2.0, 3.0, False)]
    assert rounds.latest("cloud") == rounds.all[1]
    assert rounds.latest("edge-0") is None


def test_the_end_of_another_round_changes_nothing() -> None:
    rounds = Rounds()
    for event in (reached(1.0, 2, "start"), reached(3.0, 1, "end"), reached(3.5, 2, "end", edge_round=4)):
        rounds.add(event)
    assert rounds.all == [Round("cloud", 2, 1.0, None, False)]
    rounds.add(Event(4.0, "cloud", "round_abandoned", 2, {}))
    assert rounds.all == [Round("cloud", 2, 1.0, None, True)]


def test_overruns_are_summed_by_node() -> None:
    overruns = Overruns()
    for node, data in (("a", {"asked": 1.0, "taken": 3.0}), ("b", {}), ("a", {"asked": 1.0, "taken": 1.5})):
        overruns.add(Event(0.0, node, "overrun", 1, data))
    assert overruns.by_node == {"a": (2, 2.5), "b": (1, 0.0)}


def test_reports_of_many_devices_are_in_bands() -> None:
    rows = [Metric(1.0, "a", 1, "own", "accuracy", 0.5), Metric(2.0, "b", 1, "own", "accuracy", math.nan)]
    rows += [Metric(2.5, "c", 1, "own", "accuracy", 0.9), Metric(3.0, "cloud", 1, "own", "accuracy", 0.7)]
    bands = []
    kept = []
    for keeps_all in (True, False):
        reports = Reports({"a", "b", "c"}, lambda node: node != "c", keeps_all=keeps_all)
        for row in rows:
            reports.add(row)
        bands.append(reports.bands.by_round())
        kept.append(list(reports.by_node))
    assert kept == [["a", "b", "c", "cloud"], ["cloud"]]
    assert bands[0] == bands[1]
    assert (bands[0][1].low, bands[0][1].high) == (0.5, 0.5)
