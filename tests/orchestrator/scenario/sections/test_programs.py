"""Tests of the programs of a scenario."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.scenario.reading import parse
from tests.orchestrator.scenario.cases import pairs
from tests.texts import containing

TOPOLOGY = "topology: {cloud: true, edges: 0, devices: 2}\n"
FLAT = """\
programs:
  cloud: {command: "serve --on {self} --as {name}", ready: {port: 8000}}
  device: {command: "ask {cloud} 'two words' {\\"json\\": 1}", after: cloud, environment: {HOME: "{files}/home"}}
  device-1: {command: [watch, "{device-0}"], after: device}
  control: {on: cloud, command: end, after: [cloud, device-1], ends_the_run: true}
"""


def plan_of(text: str, *overrides: str) -> Plan:
    return make_plan(parse(text, "f.yaml", overrides), None)


def mistakes(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse(text, "f.yaml", overrides)
    return str(caught.value).splitlines()


def test_each_node_gets_its_own_program_or_that_of_its_tier() -> None:
    programs = {each.label: each for each in plan_of(FLAT + TOPOLOGY).programs}
    assert list(programs) == ["cloud", "cloud.control", "device-0", "device-1"]
    assert programs["cloud"].command == ("serve", "--on", "10.77.0.1", "--as", "cloud")
    assert programs["device-0"].command == ("ask", "10.77.0.1", "two words", "{json:", "1}")
    assert programs["device-1"].command == ("watch", "10.77.0.2")


def test_the_folder_for_files_is_left_to_the_driver() -> None:
    (device, *_) = [each for each in plan_of(FLAT + TOPOLOGY).programs if each.node == "device-0"]
    assert device.environment == {"HOME": "{files}/home"}
    assert device.with_files("/runs/1").environment == {"HOME": "/runs/1/home"}


@pytest.mark.parametrize(
    ("written", "given"),
    [
        ("{name}", "cloud"),
        ("{{name}}", "{name}"),
        ("{{print}}", "{print}"),
        ("{{{name}}}", "{cloud}"),
        ("${name} ${i} ${cloud}", "${name} ${i} ${cloud}"),  # variables of a shell
        ("${{name}}", "${name}"),
        ("{files}/a {{files}} ${files} {{{files}}}", "/runs/1/a {files} ${files} {/runs/1}"),
        ('{"a":{"b":"{self}"}}', '{"a":{"b":"10.77.0.1"}}'),  # JSON
        ('{"a":{"b":{index}}}', '{"a":{"b":0}}'),
        ("{print $1} {} {{ x }} {Name} {{.Name}}", "{print $1} {} {{ x }} {Name} {{.Name}}"),
    ],
)
def test_doubled_braces_are_braces(written: str, given: str) -> None:
    programs = {"cloud": {"command": ["run", written], "environment": {"A": written}}, "device": "sleep 1"}
    topology = {"cloud": True, "edges": 0, "devices": 1}
    (cloud, *_) = plan_of(json.dumps({"programs": programs, "topology": topology}) + "\n").programs
    placed = cloud.with_files("/runs/1")
    assert (placed.command[1], placed.environment["A"]) == (given, given)


def test_an_unknown_word_in_braces_has_two_readings() -> None:
    text = "programs: {cloud: {command: [awk, '{print}']}, device: sleep 1}\n" + TOPOLOGY
    (said,) = mistakes(text)
    assert "{print} is no node, and not" in said
    assert "the text {print} itself write {{print}}" in said


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        (
            {"command": ["a", "x" * 100_001]},
            "of 100001 bytes, at most 100000",
        ),
        ({"environment": {"A": "ü" * 50_001}}, "has 100002 bytes, at most 100000"),
        ({"environment": {"A=B": "1"}}, "'A=B' cannot be the name"),
        ({"environment": {"": "1"}}, "'' cannot be the name"),
        ({"environment": {"A": "\0"}}, "A has a null character"),
    ],
)
def test_what_the_kernel_cannot_start_is_refused_before_the_run(setting: dict[str, Any], told: str) -> None:
    programs = {"cloud": {"command": "serve", **setting}, "device": "ask"}
    (said,) = mistakes(json.dumps({"programs": programs, "topology": {"cloud": True, "edges": 0, "devices": 1}}))
    assert told in said
    assert len(said) < 400


def test_each_program_has_its_own_grace() -> None:
    plan = plan_of(FLAT + TOPOLOGY, "programs.cloud.stop_grace=20s")
    assert {program.label: program.stop_grace for program in plan.programs if program.node == "cloud"} == {
        "cloud": 20.0,
        "cloud.control": 5.0,
    }


def test_a_program_waits_for_a_tier_or_for_one_node() -> None:
    programs = {each.label: each.after for each in plan_of(FLAT + TOPOLOGY).programs}
    assert programs["device-0"] == ("cloud",)
    assert programs["device-1"] == ("device-0",)  # itself left out
    assert programs["cloud.control"] == ("cloud", "device-1")


def test_a_long_row_of_programs_may_wait_for_one_another() -> None:
    waiting = {f"p{number}": {"on": "cloud", "command": "x", "after": f"p{number + 1}"} for number in range(1200)}
    programs = {"cloud": "x", "device": "x", **waiting, "p1200": {"on": "cloud", "command": "x"}}
    topology = {"cloud": True, "edges": 0, "devices": 1}
    assert len(plan_of(json.dumps({"programs": programs, "topology": topology}) + "\n").programs) == 1203


def test_a_plan_of_programs_has_neither_data_nor_model() -> None:
    plan = plan_of(FLAT + TOPOLOGY)
    assert (plan.algorithm, plan.model, plan.data.dataset, plan.stop.rounds) == ("programs", "", "", None)
    assert [program["label"] for program in plan.recorded["programs"]] == [program.label for program in plan.programs]


def test_rounds_are_those_of_stop() -> None:
    assert plan_of(FLAT + TOPOLOGY, "stop.rounds=4").stop.rounds == 4


def test_an_override_reaches_a_short_form() -> None:
    text = "programs: {cloud: serve, device: ask}\n" + TOPOLOGY
    assert plan_of(text, "programs.cloud.ready.port=80").programs[0].ready.port == 80


@pytest.mark.parametrize(
    ("text", "told"),
    pairs(
        TOPOLOGY,
        "f.yaml: 'algorithm' is missing: name one",
        f"algorithm: fedavg\n{FLAT}{TOPOLOGY}",
        "f.yaml:2: programs: the nodes run fedavg",
        f"{FLAT}{TOPOLOGY}driver: sim\n",
        "f.yaml:7: driver: sim computes what nodes",
        f"programs: {{cloud: serve}}\n{TOPOLOGY}",
        "f.yaml:1: programs: device-0 has no program",
        f"programs: {{cloud: serve, devices: ask}}\n{TOPOLOGY}",
        "f.yaml:1: programs.devices: 'devices' is no node",
        f"programs: {{cloud: serve, device: ask, edge: {{on: cloud, command: x}}}}\n{TOPOLOGY}",
        "f.yaml:1: programs.edge.on: edge is a node",
        f"programs: {{cloud: serve, device: ask, more: {{on: clod, command: x}}}}\n{TOPOLOGY}",
        "f.yaml:1: programs.more.on: 'clod' is no node",
        f"programs: {{cloud: serve, device: {{command: ask, after: clowd}}}}\n{TOPOLOGY}",
        "f.yaml:1: programs.device.after: there is no program",
        f"programs: {{cloud: serve, device: 'ask {{clout}}'}}\n{TOPOLOGY}",
        "f.yaml:1: programs.device.command: {clout} is no node",
        f"programs: {{cloud: {{command: a, after: device}}, device: {{command: b, after: cloud}}}}\n{TOPOLOGY}",
        "f.yaml:1: programs: each waits for the",
        f"programs: {{cloud: serve, device: {{command: ask, after: device}}}}\n{TOPOLOGY}",
        "f.yaml:1: programs: each waits for the",
        f'programs: {{cloud: serve, device: "ask \'two"}}\n{TOPOLOGY}',
        "f.yaml:1: programs.device.command: cannot be split into",
        f"programs: {{cloud: serve, device: {{command: []}}}}\n{TOPOLOGY}",
        "f.yaml:1: programs.device.command: is empty: name the",
        f"programs: {{cloud: serve, device: {{command: a, ready: {{port: 80, line: b}}}}}}\n{TOPOLOGY}",
        "f.yaml:1: programs.device.ready: give one of port",
        f"programs: {{cloud: serve, device: {{command: a, image: a b}}}}\n{TOPOLOGY}",
        "f.yaml:1: programs.device.image: 'a b' cannot be",
        f"{FLAT}{TOPOLOGY}data: mnist\nmodel: mlp\n".replace("data: mnist", "data: {dataset: mnist}"),
        "f.yaml:7: data: is for an algorithm",
        f"{FLAT}{TOPOLOGY}faults: [{{at: 1s, node: cloud, action: slow, factor: 2}}]\n",
        "f.yaml:7: faults.0: a program cannot be",
        f"{FLAT}{TOPOLOGY}hardware: {{device: {{speed: 0.05, cores: 0.1}}}}\n",
        "f.yaml:7: hardware.device: programs would get 0.005",
        f"{FLAT}{TOPOLOGY}faults: [{{every_round: 50%, of: devices, action: crash, for: 1s}}]\n",
        "f.yaml:7: faults.0.every_round: say how many rounds",
    ),
)
def test_a_mistake_is_reported_with_its_place(text: str, told: str) -> None:
    assert containing(told) in mistakes(text)


def test_the_driver_docker_needs_images() -> None:
    told = mistakes(FLAT + TOPOLOGY, "driver=docker")
    assert containing("f.yaml:2: programs.cloud.image: the driver docker") in told
