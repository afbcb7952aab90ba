"""The programs of a plan."""

from __future__ import annotations

from dataclasses import asdict

from orchestrator.planning.making import make_plan
from orchestrator.planning.programs import unreachable
from orchestrator.scenario.reading import parse
from tests.texts import containing

NUMBERED = """\
topology: {cloud: true, edges: 2, devices_per_edge: [1, 2]}
programs:
  cloud: serve {index}
  edge: relay {index}
  device: {command: "ask {index}", environment: {PART: "{index} of 3"}}
  watcher: {on: device, command: "watch {index}"}
"""


def test_the_index_is_that_of_the_node_in_its_tier() -> None:
    programs = {each.label: each for each in make_plan(parse(NUMBERED, "n.yaml"), None).programs}
    devices = ["device-0-0", "device-1-0", "device-1-1"]
    assert [programs[name].command[1] for name in ("cloud", "edge-0", "edge-1")] == ["0", "0", "1"]
    assert [programs[name].command[1] for name in devices] == ["0", "1", "2"]
    assert [programs[name].environment["PART"] for name in devices] == ["0 of 3", "1 of 3", "2 of 3"]
    assert [programs[f"{name}.watcher"].command[1] for name in devices] == ["0", "1", "2"]


MESH = """\
topology: {cloud: true, edges: 2, devices_per_edge: 1}
programs:
  cloud: serve
  edge: "relay {cloud}"
  device: {command: "ask {edge-0}", environment: {SERVER: "{cloud}:80"}}
"""


def test_a_name_of_a_node_without_a_link_is_noted() -> None:
    """Each device has a link to its own edge only, and none to the cloud."""
    assert list(unreachable(parse(MESH, "m.yaml"))) == [
        containing("programs.device names {cloud} on device-0-0, device-1-0"),
        containing("programs.device names {edge-0} on device-1-0", "edge-0"),
    ]


def test_the_notes_on_programs_are_those_of_the_plan() -> None:
    assert make_plan(parse(MESH, "m.yaml"), None).notes() == list(unreachable(parse(MESH, "m.yaml")))
    assert make_plan(parse(NUMBERED, "n.yaml"), None).notes() == []


def test_programs_neither_end_the_run_nor_are_expected_to_end_by_default() -> None:
    settings = NUMBERED + "  last: {on: cloud, command: wait, ends_the_run: true}\n"
    settings += "  first: {on: cloud, command: fetch, expected_to_end: true}\n"
    programs = make_plan(parse(settings, "n.yaml"), None).programs
    assert [program.label for program in programs if program.ends_the_run] == ["cloud.last"]
    assert [program.label for program in programs if program.expected_to_end] == ["cloud.first"]


def test_programs_bring_data_and_models_of_their_own() -> None:
    made = make_plan(parse(NUMBERED, "n.yaml"), None)
    assert {name: value for name, value in asdict(made.data).items() if value} == {"task": "classification"}
    assert made.model_bytes == 0
