from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from orchestrator.record.rows import SensorReading
from orchestrator.record.schema import DATABASE
from orchestrator.record.writer import Record
from orchestrator.report import render
from orchestrator.report.host import MOST, Curve, highest, host_figures, host_rows, placement_rows, steps
from orchestrator.results.history import History
from orchestrator.results.hosts import hosts
from tests.orchestrator.example_run import ROUND, SETUP, Example


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History.open(Example(sensors=True).build(tmp_path))


def readings(quantity: str, *rows: tuple[float, float | None]) -> list[SensorReading]:
    return [SensorReading(t, "", quantity, "test", "all", value, "") for t, value in rows]


def test_a_curve_of_steps_continues_to_the_end() -> None:
    assert steps(readings("power", (1, 5.0), (3, None), (4, 6.0)), end=9) == ([1, 3, 4, 9], [5.0, None, 6.0, 6.0])


def test_a_counter_of_energy_gives_the_power_between_its_rows() -> None:
    """20 J in 2 s, a counter that restarted, 30 J in 1 s."""
    rows = readings("energy", (1, 0.0), (3, 20.0), (5, 0.0), (6, 30.0))
    assert steps(rows, end=9) == ([1, 5, 6], [10.0, 30.0, 30.0])


def test_a_counter_that_restarted_after_it_was_not_read_leaves_a_gap() -> None:
    rows = readings("energy", (1, 0.0), (3, 20.0), (4, None), (5, 0.0), (6, 30.0))
    assert steps(rows, end=9) == ([1, 3, 5, 6], [10.0, None, 30.0, 30.0])


def test_the_figures(history: History) -> None:
    told = hosts(history) or []
    figures = host_figures(history, told)
    assert list(figures) == ["host-temperature", "host-frequency", "host-power", "host-energy"]
    assert [trace["name"] for trace in figures["host-temperature"]["marks"]] == ["zone tj-thermal"]  # cv0 is off
    assert [trace["name"] for trace in figures["host-power"]["marks"]] == ["rail VDD_IN", "rail VDD_CPU_GPU_CV"]
    assert figures["host-power"]["marks"][0]["x"][:3] == [-0.1, 2.4, 4.4]
    assert figures["host-frequency"]["marks"][0]["y"][0] == 1.51  # GHz
    assert figures["host-energy"]["marks"][0]["x0"] == pytest.approx([number - 0.4 for number in range(1, 11)])


def test_sensors_of_one_scope_are_distinguished(history: History, tmp_path: Path) -> None:
    rows = [("temperature", source, "temp1", 40.0, "") for source in ("hwmon nvme", "hwmon rp1_adc")]
    record = Record.create(tmp_path / "other", "{}", {"driver": "namespaces"})
    record.sensors(SETUP, "pi<3>", rows)
    record.close()
    figures = host_figures(History.open(tmp_path / "other"), [])
    names = [trace["name"] for trace in figures["host-temperature"]["marks"]]
    assert names == ["pi<3>: temp1 (hwmon nvme)", "pi<3>: temp1 (hwmon rp1_adc)"]


def test_every_host_has_its_highest_curve(tmp_path: Path) -> None:
    curves = [Curve(f"pc-{host}", f"{n}", [0.0], [10.0 * host + n]) for host in range(4) for n in range(4)]
    shown = highest(curves)
    assert [(curve.host, curve.name) for curve in shown] == [
        *(("pc-3", "3"), ("pc-3", "2"), ("pc-2", "3"), ("pc-2", "2")),
        *(("pc-1", "3"), ("pc-1", "2"), ("pc-0", "3"), ("pc-0", "2"), ("pc-0", "1")),
    ]
    many = [Curve(f"pc-{host}", "all", [0.0], [float(host)]) for host in range(MOST + 3)]
    assert len(highest(many)) == MOST + 3
    assert highest([Curve("pc-1", "unread", [0.0], [None])]) == []


def test_several_hosts_are_distinguished(tmp_path: Path) -> None:
    history = History.open(Example(sensors=True, hosts=3).build(tmp_path))
    figures = host_figures(history, hosts(history) or [])
    powers = {trace["name"]: trace for trace in figures["host-power"]["marks"]}
    rails = ("rail VDD_IN", "rail VDD_CPU_GPU_CV")
    assert set(powers) == {f"pc-{number}: {rail}" for number in (1, 2, 3) for rail in rails}
    lost = powers["pc-2: rail VDD_IN"]
    assert [x for x, y in zip(lost["x"], lost["y"], strict=True) if y is None] == [3 * ROUND + 0.7]
    assert [trace["name"] for trace in figures["host-energy"]["marks"]] == ["pc-1: rail VDD_IN", "pc-3: rail VDD_IN"]
    page = render(history)
    assert "<h2>Hosts</h2>" in page
    assert "Host pc-3 was throttled" in page


def test_who_lived_where_and_when_hosts_were_away(tmp_path: Path) -> None:
    with History.open(Example(hosts=3).build(tmp_path / "hosts")) as history:
        rows = placement_rows(history)
    assert [(row["name"], row["board"], row["away"]) for row in rows] == [
        ("pc-1", "", ""),
        ("pc-2", "jetson-orin-nano", "lost from 13 s to 21 s"),
        ("pc-3", "", ""),
    ]
    assert rows[2] | {"name": ""} == {
        **{"name": "", "nodes": "edge-2, device-2-0, device-2-1, device-2-2, device-2-3", "number": 5, "away": ""},
        **{"moved": "", "board": "", "architecture": "amd64", "cores": "8", "memory": "16 GB"},
    }
    with History.open(Example().build(tmp_path / "one")) as history:
        assert placement_rows(history) == []


def test_the_section(history: History) -> None:
    page = render(history)
    assert '<section id="host">' in page
    assert "was throttled from 20 s" in page
    assert "321 J of rail VDD_IN (hwmon ina3221)" in page
    assert "zone cv0-thermal" in page


def test_no_section_without_anything_to_show(tmp_path: Path) -> None:
    with History.open(Example().build(tmp_path)) as history:
        assert '<section id="host">' not in render(history)
    nothing: dict[str, object] = {
        "energy": None,
        "temperature": None,
        "throttled": None,
        "not_readable": [],
        "host": "",
    }
    assert host_rows([nothing]) == []
    assert [row["name"] for row in host_rows([nothing | {"host": "b"}], ["a", "b"])] == ["a", "b"]


def test_a_lost_host_is_named_at_the_top_and_its_nodes_say_where_they_moved(tmp_path: Path) -> None:
    run = Example(hosts=3, rounds_made=4, ending=None, with_faults=False).build(tmp_path)
    record = Record(run, sqlite3.connect(run / DATABASE))
    moved = {"node": "edge-1", "from": "pc-2", "to": "pc-1", "reason": "silent", "checkpoint": 1.0}
    record.event(SETUP + 3.5 * ROUND, None, "moved", 4, moved)
    record.close()
    with History.open(run) as history:
        assert [row["moved"] for row in placement_rows(history)] == ["", "edge-1 to pc-1 at 14 s", ""]
        page = render(history)
    head = page.partition('<section id="checks">')[0]
    assert "pc-2 was lost at 12.7 s" in head
