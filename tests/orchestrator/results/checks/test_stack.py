"""The check of the TCP settings of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.record.events.run import StackInForce
from orchestrator.record.writer import Record
from tests.orchestrator.example_run import Example, plan_of
from tests.orchestrator.results.checks.test_registry import Run
from tests.texts import containing

WANTED = {"tcp_congestion_control": "bbr", "tcp_retries2": "8"}


def run(path: Path) -> Run:
    nodes = plan_of(Example(edges=1, devices_per_edge=2, rounds=2, with_faults=False))["nodes"]
    return Run(path, nodes=[node | {"stack": WANTED} if node["tier"] == "device" else node for node in nodes])


def in_force(record: Record, node: str, **settings: str) -> None:
    record.event(0.5, None, StackInForce.NAME, None, {"node": node, **WANTED, **settings})


def test_settings_in_force_pass(tmp_path: Path) -> None:
    found = run(tmp_path)
    for node in ("device-0-0", "device-0-1", "device-0-1"):  # one has restarted
        in_force(found.record, node)
    verdict = found.ended().verdict("TCP as configured")
    assert verdict == ("pass", containing("`stack`", "force at 2 nodes"))


def test_a_refused_setting_fails(tmp_path: Path) -> None:
    found = run(tmp_path)
    in_force(found.record, "device-0-0")
    in_force(found.record, "device-0-1", tcp_congestion_control="cubic")
    assert found.ended().verdict("TCP as configured") == (
        "fail",
        containing("setting of `stack`: device-0-1 has tcp_congestion_control"),
    )


def test_what_a_program_reports_is_no_setting(tmp_path: Path) -> None:
    found = run(tmp_path)
    found.record.event(0.5, "device-0-0", StackInForce.NAME, None, {"node": "device-0-0", **WANTED})
    assert found.ended().verdict("TCP as configured")[0] == "unknown"


def test_without_settings_there_is_nothing_to_check(tmp_path: Path) -> None:
    with pytest.raises(StopIteration):
        Run(tmp_path).ended().verdict("TCP as configured")
