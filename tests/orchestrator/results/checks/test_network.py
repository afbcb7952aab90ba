from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.record.events.network import FramesReading, NetworkReading, PairReading
from orchestrator.record.writer import Record
from orchestrator.results.checks.registry import checks
from orchestrator.results.checks.verdicts import Assessment
from orchestrator.results.history import History
from tests.orchestrator.example_run import Example, plan_of
from tests.texts import containing

FIRST = NetworkReading((PairReading(("a", "b"), 0.002),), first=True)
ON_TWO = {"cloud": "a", "edge-0": "b", "device-0-0": "b", "device-0-1": "b"}


def planned(homes: dict[str, str], real: tuple[str, ...] = ()) -> dict[str, Any]:
    """``real``: the sources of real links."""
    plan = plan_of(Example(edges=1, devices_per_edge=2, rounds=2, with_faults=False))
    for node in plan["nodes"]:
        node |= {"host": homes[node["name"]]} if homes else {}
    for link in plan["links"]:
        link |= {"profile": {"real": True}} if link["source"] in real else {}
    return plan


def verdict(
    directory: Path,
    *readings: NetworkReading,
    homes: dict[str, str] = ON_TWO,
    ended: str = "rounds",
    moved: Mapping[str, str] | None = None,
    real: tuple[str, ...] = (),
    trained: bool = True,
) -> Assessment | None:
    """Of a run that trained from 1 s on, with a reading each 5 s. ``moved``: new hosts of nodes from the reading at
    16 s on."""
    record = Record.create(directory, json.dumps(planned(homes, real)), {})
    if trained:
        record.event(1.0, None, "training", None, {})
    for number, reading in enumerate(readings):
        if number == 3:
            for node, host in (moved or {}).items():
                data = {"node": node, "from": homes[node], "to": host, "reason": "silent", "checkpoint": None}
                record.event(16.0, None, "moved", 1, data)
        record.add_event(1.0 + 5 * number, reading)
    record.outcome(60.0, {"ended": ended, "error": None})
    record.close()
    with History.open(directory) as history:
        found = [each for each in checks(history) if each["name"] == "network between hosts"]
    return (found[0]["verdict"], found[0]["detail"]) if found else None


def between(delay: float | None, lost: int = 0, *frames: FramesReading) -> NetworkReading:
    return NetworkReading((PairReading(("a", "b"), delay, 10, lost, delay),), frames)


def test_a_reading_is_the_same_in_the_record() -> None:
    reading = NetworkReading(
        (PairReading(("a", "b"), 0.002, 10, 1, 0.0015), PairReading(("a", "c"), None, 10, 10)),
        (FramesReading("a", "b", 1000, 3),),
        ("d",),
        strangers={"b": 7},
    )
    assert NetworkReading.from_json(json.loads(json.dumps(reading.to_json()))) == reading


@pytest.mark.parametrize("homes", [{}, dict.fromkeys(ON_TWO, "a")])
def test_one_host_has_no_network_between_hosts(tmp_path: Path, homes: dict[str, str]) -> None:
    assert verdict(tmp_path, homes=homes) is None


def test_a_network_that_held(tmp_path: Path) -> None:
    frames = FramesReading("b", "a", 12_345, 3)
    assert verdict(tmp_path, FIRST, between(0.0023), between(0.0018, 1, frames)) == (
        "pass",
        containing("2 readings", "most 0.3 ms off", "3 of 12,345 frames"),
    )


def test_strangers_that_were_refused_are_counted(tmp_path: Path) -> None:
    readings = [replace(between(0.002), strangers={"b": number}) for number in (2, 7)]
    assert verdict(tmp_path, FIRST, *readings) == (
        "pass",
        containing("2 readings", "most 0 s off", "7 packets"),
    )


REAL_TOLD = containing("real links", "a – b: round trip 24 ms", "before the run 4 ms", "2 of 30 echoes")


def test_a_drift_of_real_links_fails_nothing_and_is_reported(tmp_path: Path) -> None:
    drift = FIRST, between(0.002), between(0.012, 2), between(0.012)
    only_real = verdict(tmp_path / "real", *drift, real=("cloud", "edge-0"))
    assert only_real == ("measured", REAL_TOLD)
    short = verdict(tmp_path / "short", FIRST, real=("cloud", "edge-0"))
    assert short == ("measured", containing("real links cross hosts", "run 4 ms"))
    one_way = verdict(tmp_path / "one way", *drift, real=("cloud",))
    assert one_way is not None
    assert one_way[0] == "fail"
    assert ": link edge-0 → cloud was slower" in one_way[1]
    assert one_way[1] == REAL_TOLD


def test_one_reading_alone_leaves_it_open(tmp_path: Path) -> None:
    found = verdict(tmp_path, FIRST, between(0.012), between(0.002))
    assert found is not None
    assert found[0] == "unknown"
    assert found[1].endswith("confirms it")


def test_only_the_first_findings_are_reported(tmp_path: Path) -> None:
    """Three of five. Times are of the training, from 1 s on."""
    drift = between(0.012), between(0.012), between(0.002)
    found = verdict(tmp_path / "five", FIRST, *drift * 5)
    assert found is not None
    assert found[0] == "fail"
    assert "from 5 s to 10 s" in found[1]
    assert found[1].endswith("; and 2 more times")
    three = verdict(tmp_path / "three", FIRST, *drift * 3)
    assert "more times" not in (three or "")[1]


def test_times_of_a_run_that_never_trained_are_those_of_the_run(tmp_path: Path) -> None:
    found = verdict(tmp_path, FIRST, between(0.012), between(0.012), between(0.002), trained=False)
    assert "from 6 s to 11 s" in (found or "")[1]


def test_a_run_that_was_not_measured(tmp_path: Path) -> None:
    assert verdict(tmp_path / "never") == ("unknown", containing("was not measured during the run"))
    assert verdict(tmp_path / "short", FIRST) == ("unknown", containing("was not measured during the run"))
    assert verdict(tmp_path / "calibrated", ended="calibrated") == ("pass", "see what was measured")


def test_hosts_that_no_link_joins(tmp_path: Path) -> None:
    plan = planned(ON_TWO)
    plan["links"] = [each for each in plan["links"] if "cloud" not in (each["source"], each["target"])]
    Record.create(tmp_path, json.dumps(plan), {}).close()
    with History.open(tmp_path) as history:
        (found,) = [each for each in checks(history) if each["name"] == "network between hosts"]
    assert (found["verdict"], found["detail"]) == ("pass", "no link crosses hosts")


def test_the_links_are_those_between_the_hosts_on_which_nodes_live_now(tmp_path: Path) -> None:
    """From 16 s on the edge and its devices live on c. What is between a and b concerns nobody then."""
    pair = ("a", "c")
    to_c = [NetworkReading((PairReading(pair, delay, 10, 0, delay),)) for delay in (0.003, 0.013, 0.013)]
    missing = FramesReading("a", "b", 1000, 900)
    begins = NetworkReading((PairReading(pair, 0.003),), (missing,), first=True)
    early = (FIRST, between(0.002), between(0.002, 0, FramesReading("a", "b", 500, 0)))
    later = [NetworkReading(each.pairs, (missing,)) for each in to_c]
    found = verdict(tmp_path, *early, begins, *later, moved=dict.fromkeys(list(ON_TWO)[1:], "c"))
    assert found is not None
    assert found[0] == "fail"
    assert found[1] == containing("25 s", "c took 13 ms", "10 ms")
    assert "frames" not in found[1]  # those that had been missing before were told before


def test_before_nodes_move_the_links_are_those_between_their_first_hosts(tmp_path: Path) -> None:
    pairs = (PairReading(("a", "c"), 0.003, 10, 0, 0.003),)
    later = NetworkReading(pairs, first=True), NetworkReading(pairs)
    moved = dict.fromkeys(list(ON_TWO)[1:], "c")
    found = verdict(tmp_path, FIRST, between(0.012), between(0.012), *later, moved=moved)
    assert found is not None
    assert found[0] == "fail"
    assert "between a and b" in found[1]


def test_a_reading_when_nodes_move_is_that_of_their_new_hosts(tmp_path: Path) -> None:
    """The second of two slow readings was at 16 s, so only the first counts for a link between a and b."""
    moved = dict.fromkeys(list(ON_TWO)[1:], "c")
    found = verdict(tmp_path, FIRST, between(0.002), between(0.012), between(0.012), moved=moved)
    assert found is not None
    assert found[0] == "unknown"
