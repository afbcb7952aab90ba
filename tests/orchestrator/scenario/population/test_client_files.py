"""Files of single clients mean what YAML would, and their mistakes have the file and the line."""

from __future__ import annotations

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.scenario.population.client_files import absences
from orchestrator.scenario.reading import parse
from orchestrator.scenario.schema import Scenario, effective
from tests.texts import containing

HEAD = """\
algorithm: {name: hierfavg, rounds: 5}
topology: {edges: 2, devices_per_edge: 1}
hardware: {device: {class: raspberry-pi-4, cores: 2, image: mine}, edge: phone}
links: {device-edge: wifi, edge-cloud: {latency: 40ms}}
stop: {after: 100s}
"""


def read(text: str, settings: str = "", stays: str = "") -> Scenario:
    return parse(text, "f.yaml", files={"clients.csv": settings, "stays.csv": stays})


def test_rows_mean_what_yaml_would() -> None:
    settings = """\
node,class,speed,memory_gib,profile,latency_ms,rate_up_mbit,loss_down_%
device-0-0,,0.05,1,,30,5,
device-1-0,phone,,,lte,,,2
edge-1,,,8,,,,
cloud,edge-server,,,,,,
"""
    written = """\
  device-0-0: {class: raspberry-pi-4, cores: 2, image: mine, speed: 0.05, memory: 1gib}
  device-1-0: {class: phone, image: mine}
  edge-1: {class: phone, memory: 8gib}
  cloud: {class: edge-server}
links:
  device-edge: wifi
  edge-cloud: {latency: 40ms}
  device-0-0 <-> edge-0: {latency: 30ms}
  device-0-0 -> edge-0: {rate: 5mbit}
  device-1-0 <-> edge-1: lte
  edge-1 -> device-1-0: {loss: 2%}
"""
    device, edge = "device: {class: raspberry-pi-4, cores: 2, image: mine}", "edge: phone"
    by_hand = HEAD.replace(f"{{{device}, {edge}}}", f"\n  {device}\n  {edge}")
    by_hand = by_hand.replace("links: {device-edge: wifi, edge-cloud: {latency: 40ms}}\n", written)
    expected = effective(parse(by_hand, "f.yaml"))
    assert effective(read(HEAD + "clients: {file: clients.csv}\n", settings)) == expected


def test_stays_mean_the_disconnections_between_them() -> None:
    """device-0-0 is there from 0 to 10 s of each 40 s, device-1-0 never, and edge-0, of which there is nothing, always.
    So the gaps up to 100 s are 10 to 40, 50 to 80 and 90 to the end."""
    found = read(
        HEAD
        + "clients: {availability: {trace: stays.csv}}\nfaults: [{at: 1s, node: edge-1, action: pause, for: 1s}]\n",
        stays="node,from,until,period\ndevice-0-0,0,5,40\ndevice-0-0,5,10,40\ndevice-1-0,,,\n",
    )
    assert [(fault.node, fault.action, fault.at, fault.for_) for fault in found.faults] == [
        ("edge-1", "pause", 1.0, 1.0),
        ("device-0-0", "disconnect", 10.0, 30.0),
        ("device-0-0", "disconnect", 50.0, 30.0),
        ("device-0-0", "disconnect", 90.0, None),
        ("device-1-0", "disconnect", 0.0, None),
    ]


def test_devices_of_a_trace_of_others_are_taken_in_order() -> None:
    text = HEAD + "clients: {availability: {trace: stays.csv, repeat: 200s}}\n"
    found = read(text, stays="device,from,until\n7,20,100\n3,0,60\n9,0,1\n")
    assert [(fault.node, fault.at, fault.for_) for fault in found.faults] == [
        ("device-0-0", 0.0, 20.0),
        ("device-1-0", 60.0, None),
    ]


@pytest.mark.parametrize(
    ("stays", "period", "expected"),
    [
        ([], 10.0, [(0.0, None)]),
        ([(0.0, 10.0)], 10.0, []),
        ([(0.0, 5.0), (5.0, 10.0)], 10.0, []),
        ([(2.0, 3.0)], 50.0, [(0.0, 2.0), (3.0, None)]),
        ([(25.0, 30.0)], 50.0, [(0.0, None)]),
        ([(1.0, 10.0)], 10.0, [(0.0, 1.0), (10.0, 11.0)]),
        ([(0.0, 0.1)], 10.0, [(0.1, 10.0), (10.1, None)]),
    ],
)
def test_a_device_is_away_between_its_stays(
    stays: list[tuple[float, float]], period: float, expected: list[tuple[float, float | None]]
) -> None:
    assert list(absences(stays, period, 20.0)) == expected


NODES = "(nodes: cloud, device-0-0, device-1-0, edge-0, edge-1)"
OF_FILE, OF_TRACE = "f.yaml:6: clients.file: clients.csv", "f.yaml:6: clients.availability: "
FILE, TRACE = "clients: {file: clients.csv}\n", "clients: {availability: {trace: stays.csv}}\n"


@pytest.mark.parametrize(
    ("text", "settings", "stays", "message"),
    [
        (
            HEAD + FILE,
            "node,speed\ndevice-0-1,1\n",
            "",
            containing(f"{OF_FILE}:2: there is no node 'device-0-1'", "'device-0-0'?"),
        ),
        (
            HEAD + FILE,
            "node,speed\n\ndevice-0-0,-1\n",
            "",
            containing("clients.csv:3: hardware.device-0-0.speed: must", "0.0001, not -1.0"),
        ),
        (
            HEAD + FILE,
            "node;speed\ndevice-0-0;0,5\n",
            "",
            containing("clients.csv:2: hardware.device-0-0.speed: write", "'0,5'"),
        ),
        (
            HEAD + FILE,
            "node,buffer_up_kb\nedge-0,64\n",
            "",
            containing("clients.csv:2: links.edge-0 -> cloud: buffer: needs"),
        ),
        (
            HEAD + FILE,
            "node,rate_mbit\ncloud,5\n",
            "",
            containing(f"{OF_FILE}:2: cloud has no node above"),
        ),
        (HEAD + FILE, "speed\n1\n", "", f"{OF_FILE}: has 1 rows for 2 clients"),
        (
            HEAD.replace("edge: phone", "device-0-0: phone") + FILE,
            "node,speed\ndevice-0-0,1\n",
            "",
            containing(f"{OF_FILE}:2: hardware has device-0-0 already: leave"),
        ),
        (
            HEAD.replace("edge-cloud:", "edge-0 -> device-0-0:") + FILE,
            "node,loss_%\ndevice-0-0,1\n",
            "",
            containing(f"{OF_FILE}:2", "'edge-0 -> device-0-0' already"),
        ),
        (
            HEAD + TRACE,
            "",
            "node,from,until\ndevice-0-0,0,5\ndevice-7,0,5\n",
            containing(f"{OF_TRACE}stays.csv:3: there is no node 'device-7'", "'device-1-0'?"),
        ),
        (
            HEAD + TRACE,
            "",
            "device,from,until\ndevice-0-0,0,5\ndevice-7,0,5\n",
            containing(f"{OF_TRACE}stays.csv:3: there is no node 'device-7'", "'device-1-0'?"),
        ),
        (HEAD + TRACE, "", "device,from,until\n1,0,5\n", f"{OF_TRACE}stays.csv: has 1 devices for 2 clients"),
        (
            HEAD.replace("after: 100s", "rounds: 5") + TRACE,
            "",
            "node,from,until\ndevice-0-0,0,5\n",
            containing(f"{OF_TRACE}needs stop.after: stays repeat, and when"),
        ),
        (
            HEAD + TRACE,
            "",
            "node,from,until,period\ndevice-0-0,0,0.0001,0.0002\n",
            containing(f"{OF_TRACE}stays.csv: clients would go", "than 100,000", "stop.after"),
        ),
        (
            HEAD + "clients: {availability: day-and-night}\n",
            "",
            "",
            containing(f"{OF_TRACE}day-and-night", "python -m orchestrator.population day-and-night"),
        ),
        (
            HEAD + "clients: {file: clients.csv, over: 30%}\n",
            "node,speed\ndevice-0-0,1\n",
            "",
            containing("f.yaml:6: clients: are those", "{population: 1000"),
        ),
    ],
)
def test_mistakes_are_reported_with_their_line(text: str, settings: str, stays: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(text, settings, stays)
    assert str(caught.value) == message
