from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.record.events.nodes import ProgramEnded
from orchestrator.record.writer import Record
from orchestrator.report.topology import picture
from orchestrator.results.history import History
from orchestrator.results.printed import print_summary
from orchestrator.results.summary import summary
from orchestrator.results.tables import node_rows
from tests.orchestrator.consoles import printed
from tests.orchestrator.example_run import MODEL, Example, plan_of


def test_summary_of_the_example(tmp_path: Path) -> None:
    result = summary(History.open(Example().build(tmp_path / "run")))
    assert list(result) == [
        *("run", "name", "driver", "links", "verdict", "checks", "rounds", "seconds", "training_seconds"),
        *("wall_seconds", "accuracy", "metrics", "bytes", "device_bytes", "probe_bytes", "link_kinds", "messages"),
        *("faults", "nodes", "overruns", "overloads"),
        *("ended", "error"),
    ]
    assert result["run"] == str(tmp_path / "run")
    assert (result["name"], result["driver"], result["links"]) == ("dropout", "namespaces", "userspace")
    assert (result["verdict"], result["ended"], result["error"]) == ("pass", "rounds", None)
    assert (result["rounds"], result["nodes"], result["overruns"]) == (10, 16, 0)
    assert 0.8 < result["accuracy"]["global"] < 1.0
    assert set(result["accuracy"]["edge"]) == {"edge-0", "edge-1", "edge-2"}
    assert result["bytes"]["edge-cloud"] > 10 * 6 * 0.8 * MODEL  # 3 edges, both ways, 10 rounds, less the partition
    devices = result["device_bytes"].values()
    assert len(devices) == 12
    assert sum(each["sent"] + each["received"] for each in devices) == result["bytes"]["device-edge"]
    assert all(min(each.values()) > MODEL for each in devices)
    assert set(result["messages"]) == {"model", "update"}
    assert result["faults"][0] == {"action": "crash", "node": "device-1-2", "at": 9.0, "round": 3}
    assert result["faults"][2] == {"action": "partition", "between": ["edge-0", "cloud"], "at": 22.0, "round": 6}
    json.dumps(result, allow_nan=False)


def test_a_manual_fault_has_the_user(tmp_path: Path) -> None:
    directory = Example(by_hand=True).build(tmp_path / "run")
    result = summary(History.open(directory))
    assert result["faults"][-1] == {"action": "crash", "node": "device-0-0", "at": 12.0, "round": 4, "by": "ada"}
    (said,) = [check["detail"] for check in result["checks"] if check["name"] == "faults took effect"]
    assert said == "21 of 21 planned faults took effect; 1 was made manually; the latest was 20 ms late"
    assert result["verdict"] == "pass"
    assert "22, 1 of them manual" in printed(120, lambda console: print_summary(result, directory, console))


def test_summary_of_a_run_that_never_trained(tmp_path: Path) -> None:
    Record.create(tmp_path, json.dumps(plan_of(Example())), {}).close()
    result = summary(History.open(tmp_path))
    assert (result["rounds"], result["seconds"], result["ended"]) == (0, 0.0, None)
    assert result["accuracy"] == {"global": None, "edge": {}}
    assert all(fault["at"] is None for fault in result["faults"])
    assert result["verdict"] == "fail"


def test_programs_that_ended_before_the_run(tmp_path: Path) -> None:
    program = {"label": "edge-0.watch", "node": "edge-0", "command": ["watch"], "after": [], "expected_to_end": True}
    record = Record.create(tmp_path, json.dumps(plan_of(Example()) | {"programs": [program]}), {})
    record.event(2.0, None, "training", None, {})
    record.event(6.5, "edge-0", ProgramEnded.NAME, None, {"program": "edge-0.watch", "code": 0})
    record.close()
    result = summary(History.open(tmp_path))
    assert result["ended_programs"] == [{"program": "edge-0.watch", "node": "edge-0", "code": 0, "at": 4.5}]
    words = printed(120, lambda console: print_summary(result, tmp_path, console))
    assert "edge-0.watch ended at 4.5 s (exit" in words


def test_which_nodes_trained_on_accelerators(tmp_path: Path) -> None:
    plan = plan_of(Example())
    for node in plan["nodes"]:
        if node["tier"] == "edge":
            node["device"] = "cuda"
    Record.create(tmp_path, json.dumps(plan), {}).close()
    history = History.open(tmp_path)
    result = summary(history)
    assert result["accelerators"] == {"cuda": ["edge-0", "edge-1", "edge-2"]}
    words = printed(120, lambda console: print_summary(result, tmp_path, console))
    assert "cuda: edge-0, edge-1, edge-2" in words
    devices = {row.name: row.device for row in node_rows(history)}
    assert (devices["edge-0"], devices["cloud"]) == ("cuda", "cpu")
    told = {dot.name: dot.about for dot in picture(history).dots}
    assert "trains on cuda" in told["edge-1"]
    assert not any("trains on" in each for each in told["cloud"])


def test_a_summary_in_words_shows_what_names_and_details_hold(tmp_path: Path) -> None:
    result = summary(History.open(Example().build(tmp_path / "run[/x]")))
    result["checks"][0]["detail"] = "[red] [/nothing]"
    console = Console(file=io.StringIO(), width=200)
    print_summary(result, tmp_path / "run[/x]" / "run.db", console)
    assert isinstance(console.file, io.StringIO)
    assert "[red] [/nothing]" in console.file.getvalue()
    assert "run[/x]/run.db" in console.file.getvalue()


def test_summary_has_no_numbers_that_json_lacks(tmp_path: Path) -> None:
    record = Record.create(tmp_path, json.dumps(plan_of(Example(edges=1, devices_per_edge=1))), {})
    record.metric(1.0, "cloud", 1, "global", "accuracy", math.nan)
    record.metric(1.0, "edge-0", 1, "own", "accuracy", math.inf)
    record.close()
    result = summary(History.open(tmp_path))
    assert result["accuracy"] == {"global": None, "edge": {"edge-0": None}}
    json.dumps(result, allow_nan=False)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_reports_path_is_printed_whole(tmp_path: Path, width: int) -> None:
    result = summary(History.open(Example().build(tmp_path / "run")))
    report = tmp_path / "runs" / "dropout-20261122-154058-1ef8" / "report.html"  # wider than 60 columns
    report.parent.mkdir(parents=True)
    report.touch()
    shown = printed(width, lambda console: print_summary(result, report, console))
    assert str(report) in shown.split()
    assert "…" not in shown
    said = " ".join(shown.split())
    for check in result["checks"]:
        assert " ".join(f"{check['verdict']} {check['name']}: {check['detail']}".split()) in said


def test_a_run_that_continues_has_a_summary_too(tmp_path: Path) -> None:
    Record.create(tmp_path, json.dumps(plan_of(Example())), {}).close()
    result = summary(History.open(tmp_path))
    lines = printed(200, lambda console: print_summary(result, tmp_path / "report.html", console)).splitlines()
    assert "ended      not yet, no training in 0.0 s" in lines
    assert f"links      {result['links']}" in lines


def test_real_links_are_in_the_summary_as_they_were_measured(tmp_path: Path) -> None:
    result = summary(History.open(Example(driver="swarm", hosts=3, real=("edge-cloud",)).build(tmp_path)))
    before, networks = result["real_links"]["before"], result["real_links"]["networks"]
    assert [(each["source"], each["target"], each["rtt"]) for each in before] == [
        ("cloud", "edge-1", 0.00042),
        ("cloud", "edge-2", 0.00042),
    ]
    assert networks[0] == {
        "hosts": ["pc-1", "pc-2"],
        "links": 2,
        "round_trip": {"before": 0.00042, "during": {"median": 0.00042, "least": 0.00042, "most": 0.0124}},
        **{"echoes": 100, "lost": 1, "sent": 20_000, "missing": 1},
    }
    said = printed(200, lambda console: print_summary(result, tmp_path / "report.html", console))
    assert result["link_kinds"]["edge-cloud"] == ["emulated", "real"]
    assert "userspace: edge-cloud (emulated and real) 14.7 MB, device-edge (emulated) 52 MB" in said
    assert "cloud → edge-1, measured: rtt 0.42 ms, loss 0.4%, duplicate 0%, reorder 0%, rate 910 mbit" in said
