from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.record.rows import Resources
from orchestrator.record.writer import Record
from orchestrator.results.history import History, processor_seconds
from orchestrator.results.hosts import by_host, hosts, meter, sentences
from orchestrator.results.printed import print_summary
from orchestrator.results.summary import summary
from tests.orchestrator.example_run import LOST, SWITCHED_OFF, Example, plan_of

BEGAN = 10.0
Row = tuple[float, str, str, str, float | None]
VDD_IN = "power", "hwmon ina3221", "rail VDD_IN"
PSYS, PACKAGE, DRAM = (("energy", "rapl", scope) for scope in ("psys", "package-0", "package-0 dram"))


def run(
    folder: Path,
    rows: Iterable[Row],
    *,
    rounds: Iterable[tuple[float, float]] = ((0, 10), (10, 20)),
    used: Iterable[tuple[float, str, float]] = (),
    plan: dict[str, Any] | None = None,
    host: str = "",
) -> History:
    """A run whose host told this; the times of all arguments are seconds of training. ``used``: processor seconds."""
    found = plan or plan_of(Example(edges=1, devices_per_edge=1, with_faults=False))
    record = Record.create(folder, json.dumps(found), {"driver": "namespaces"})
    record.event(BEGAN, None, "training", None, {})
    for number, (start, end) in enumerate(rounds, start=1):
        record.event(BEGAN + start, "cloud", "round", number, {"phase": "start"})
        record.event(BEGAN + end, "cloud", "round", number, {"phase": "end"})
    for t, quantity, source, scope, value in rows:
        record.sensors(BEGAN + t, host, [(quantity, source, scope, value, "" if value is not None else "why not")])
    for t, node, seconds in used:
        record.resources(BEGAN + t, node, seconds, 1, None)
    record.close()
    return History.open(folder)


def told(history: History) -> dict[str, Any]:
    (host,) = hosts(history) or []
    return host


def test_power_lasts_until_its_next_row(tmp_path: Path) -> None:
    """5 W until 4 s, then 8 W: 20 J + 48 J, and 80 J in the second round; nothing before the training counts."""
    energy = told(run(tmp_path, [(-3, *VDD_IN, 5.0), (4, *VDD_IN, 8.0)]))["energy"]
    assert energy == {
        "joules": 148.0,
        "source": "hwmon ina3221",
        "scope": "rail VDD_IN",
        "rounds": {"1": 68.0, "2": 80.0},
    }


def test_a_rail_is_not_added_to_the_rail_that_it_is_a_part_of(tmp_path: Path) -> None:
    part = "power", "hwmon ina3221", "rail VDD_CPU_GPU_CV"
    energy = told(run(tmp_path, [(-1, *part, 3.0), (-1, *VDD_IN, 5.0), (-1, *PACKAGE, 0.0)]))["energy"]
    assert (energy["joules"], energy["scope"]) == (100.0, "rail VDD_IN")


def test_the_input_of_a_board_includes_all_rails(tmp_path: Path) -> None:
    """23 W for 20 s; a rail whose name starts with VIN is a part of it, and alone no measure of the host."""
    board = "power", "hwmon ina238", "rail VIN"
    part = "power", "hwmon ina3221", "rail VIN_SYS_5V0"
    rows = [(-1, *part, 6.52), (-1, *VDD_IN, 12.0), (-1, *board, 23.0)]
    energy = told(run(tmp_path / "all", rows))["energy"]
    assert (energy["joules"], energy["scope"]) == (460.0, "rail VIN")
    assert told(run(tmp_path / "part", [(-1, *part, 6.52)]))["energy"] is None


def test_the_platform_includes_its_packages(tmp_path: Path) -> None:
    rows = [(t, *zone, watts * (t + 1)) for t in (-1, 20) for zone, watts in ((PACKAGE, 4.0), (DRAM, 1.0), (PSYS, 9.0))]
    energy = told(run(tmp_path, rows))["energy"]
    assert (energy["joules"], energy["scope"]) == (180.0, "psys")


def test_packages_and_their_memory_are_added(tmp_path: Path) -> None:
    """4 W and 1 W for 20 s; the core is a part of the package. psys exists but cannot be read."""
    core = "energy", "rapl", "package-0 core"
    rows: list[Row] = [(-1, *PSYS, None)]
    rows += [
        (t, *zone, watts * (t + 1)) for t in (-1, 9, 20) for zone, watts in ((PACKAGE, 4.0), (DRAM, 1.0), (core, 3.0))
    ]
    host = told(run(tmp_path, rows))
    assert (host["energy"]["joules"], host["energy"]["scope"]) == (100.0, "package-0 + package-0 dram")
    assert host["energy"]["rounds"] == {"1": 50.0, "2": 50.0}
    assert host["not_readable"] == [{"quantity": "energy", "source": "rapl", "scope": "psys", "reason": "why not"}]


def test_a_counter_that_restarted_with_a_resumed_run(tmp_path: Path) -> None:
    energy = told(run(tmp_path, [(0, *PSYS, 0.0), (8, *PSYS, 80.0), (9, *PSYS, 0.0), (20, *PSYS, 110.0)]))["energy"]
    assert energy["joules"] == 190.0


@pytest.mark.parametrize(
    ("rows", "joules"),
    [
        ([(-1, *PSYS, None), (0, *PSYS, 0.0), (20, *PSYS, 110.0)], 110.0),  # unread before the training
        (
            [(-1, *PSYS, 0.0), (9, *PSYS, 10.0), (10, *PSYS, None), (20, *PSYS, 105.0)],
            104.0,
        ),  # 1 J of it before the training
        ([(-1, *PSYS, None), (9, *PSYS, 10.0), (20, *PSYS, 110.0)], None),
        ([(-1, *PSYS, 0.0), (9, *PSYS, 10.0), (10, *PSYS, None)], None),
        ([(-1, *PSYS, 0.0), (18, *PSYS, 19.0)], 18.0),  # the run was killed; its last row is 2 s before the end
    ],
)
def test_a_counter_that_could_not_be_read_for_a_while(tmp_path: Path, rows: list[Row], joules: float | None) -> None:
    energy = told(run(tmp_path, rows))["energy"]
    assert (energy and energy["joules"]) == joules


def test_what_a_lost_host_used_is_unknown_until_its_counter_restarts(tmp_path: Path) -> None:
    """20 W until 4 s; nothing is known from 3 s to 6 s; then 10 W. The second round was not touched."""
    rows = [(-1, *PSYS, 0.0), (3, *PSYS, 80.0), (4, *PSYS, None), (6, *PSYS, 0.0), (20, *PSYS, 140.0)]
    history = run(tmp_path, rows)
    found = meter(by_host(history)[""], BEGAN + 20)
    assert found is not None
    assert found.between(BEGAN, BEGAN + 3) == 60.0
    assert found.between(BEGAN + 3.5, BEGAN + 10) is None
    assert found.between(BEGAN + 10, BEGAN + 20) == 100.0
    assert told(history)["energy"] is None


def test_energy_is_unknown_if_power_could_not_be_read_for_a_while(tmp_path: Path) -> None:
    rows = [(-1, *VDD_IN, 5.0), (12, *VDD_IN, None), (14, *VDD_IN, 5.0)]
    host = told(run(tmp_path, rows))
    assert (host["energy"], host["node_energy_estimate"]) == (None, None)


@pytest.mark.parametrize(
    "rows",
    [
        [(-1, "memory_available", "meminfo", "host", 1e9)],
        [(-1, *VDD_IN, None)],
        [(-1, "power", "power_supply BAT0", "battery", 18.0)],  # it is not what the host uses while it is charged
        [(-1, "power", "hwmon ina3221", "rail VDD_CPU_CV", 18.0)],  # a part only
    ],
)
def test_unknown_energy(tmp_path: Path, rows: list[Row]) -> None:
    assert told(run(tmp_path, rows))["energy"] is None


def test_nodes_share_the_energy_by_their_processor_seconds(tmp_path: Path) -> None:
    """Of 100 J: the cloud used 1 s in the training; the edge 2 s, and 1 s in a new process. So 25 J for each second."""
    used = [(-2, "cloud", 7.0), (-2, "edge-0", 3.0), (5, "cloud", 7.5), (5, "edge-0", 5.0)]
    used += [(15, "cloud", 8.0), (15, "edge-0", 1.0)]
    host = told(run(tmp_path, [(-1, *VDD_IN, 5.0)], used=used))
    assert host["node_energy_estimate"] == {"cloud": 25.0, "edge-0": 75.0}


def test_nodes_of_another_host_have_no_share(tmp_path: Path) -> None:
    plan = plan_of(Example(edges=1, devices_per_edge=1, with_faults=False))
    for node in plan["nodes"]:
        node["host"] = "board-1" if node["name"] == "edge-0" else ""
    used = [(5, "cloud", 1.0), (5, "edge-0", 1.0), (5, "device-0-0", 1.0)]
    host = told(run(tmp_path, [(-1, *VDD_IN, 5.0)], used=used, plan=plan, host="board-1"))
    assert (host["host"], host["node_energy_estimate"]) == ("board-1", {"edge-0": 100.0})


def test_processor_seconds_over_restarts() -> None:
    rows = [Resources(t, "edge-0", cpu, 0, None) for t, cpu in ((0, 1.0), (1, 2.0), (2, 3.5), (3, 0.5), (4, 1.0))]
    assert processor_seconds(rows, since=2) == {"edge-0": 2.5}


def test_the_highest_temperature(tmp_path: Path) -> None:
    zone, other = ("temperature", "thermal", "zone cpu-thermal"), ("temperature", "hwmon nvme", "Composite")
    rows = [(-1, *zone, 40.0), (3, *zone, 61.5), (5, *zone, 50.0), (6, *other, 44.0), (30, *zone, 80.0)]
    expected = {"highest": 61.5, "source": "thermal", "scope": "zone cpu-thermal", "at": 3.0}
    assert told(run(tmp_path, rows))["temperature"] == expected


def throttled(folder: Path, *rows: Row) -> Any:
    return told(run(folder, rows))["throttled"]


FLAG, COUNT = ("throttled", "firmware", "under-voltage"), ("throttle_events", "thermal_throttle", "package-0")


def test_flags_last_until_they_fall(tmp_path: Path) -> None:
    flagged = throttled(tmp_path, (-1, *FLAG, 0.0), (4, *FLAG, 1.0), (7, *FLAG, 0.0), (18, *FLAG, 1.0))
    why = ["under-voltage, by firmware"]
    assert flagged == [{"from": 4.0, "until": 7.0, "why": why}, {"from": 18.0, "until": 20.0, "why": why}]


def test_counts_show_that_something_happened_before(tmp_path: Path) -> None:
    """Counted within the last second. What was counted before the run says nothing about it."""
    counted = throttled(
        tmp_path, (-1, *COUNT, 12.0), (5, *COUNT, 13.0), (6, *COUNT, 15.0), (7, *FLAG, 1.0), (8, *FLAG, 0.0)
    )
    assert counted == [
        {"from": 4.0, "until": 8.0, "why": ["package-0, by thermal_throttle", "under-voltage, by firmware"]}
    ]


def test_never_throttled_and_unknown(tmp_path: Path) -> None:
    assert throttled(tmp_path / "never", (-1, *FLAG, 0.0), (-1, *COUNT, 12.0)) == []
    assert throttled(tmp_path / "before", (-5, *FLAG, 1.0), (-2, *FLAG, 0.0)) == []
    assert throttled(tmp_path / "unknown", (-1, *FLAG, None)) is None


def test_the_summary_says_it(tmp_path: Path) -> None:
    with History.open(Example(sensors=True).build(tmp_path)) as history:
        found = summary(history)
    (host,) = found["hosts"]
    assert host["not_readable"][0]["reason"] == SWITCHED_OFF
    said = "40 s of training (soft temperature"
    assert said in sentences(host)[0]
    assert sentences({**host, "host": "pi-3"})[0].startswith("Host pi-3 was throttled")
    printed = io.StringIO()
    print_summary(found, tmp_path / "report.html", Console(file=printed, width=400))
    assert said in printed.getvalue()
    assert "321 J of rail VDD_IN (hwmon ina3221)" in printed.getvalue()  # 10 W and 6 W in turn, for 39.9 s


def test_each_of_several_hosts_has_its_own_energy(tmp_path: Path) -> None:
    """The n-th draws n times as much as one host does. The second was lost for a while."""
    with History.open(Example(sensors=True, hosts=3).build(tmp_path)) as history:
        found = summary(history)
    assert [(each["host"], each["energy"] and each["energy"]["joules"]) for each in found["hosts"]] == [
        ("pc-1", pytest.approx(321, abs=0.5)),
        ("pc-2", None),
        ("pc-3", pytest.approx(963, abs=1.5)),
    ]
    shared = found["hosts"][0]["node_energy_estimate"]
    assert list(shared) == ["cloud", "edge-0", *(f"device-0-{number}" for number in range(4))]
    assert sum(shared.values()) == pytest.approx(found["hosts"][0]["energy"]["joules"], abs=0.01)
    reasons = [each["reason"] for each in found["hosts"][1]["not_readable"] if each["scope"] == "rail VDD_IN"]
    assert reasons == [f"the host is lost: {LOST}"]
    printed = io.StringIO()
    print_summary(found, tmp_path / "report.html", Console(file=printed, width=400))
    assert "321 J of rail VDD_IN (hwmon ina3221), host pc-1" in printed.getvalue()


def test_a_run_with_a_silent_host(tmp_path: Path) -> None:
    with History.open(Example().build(tmp_path)) as history:
        assert "hosts" not in summary(history)
