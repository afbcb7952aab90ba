"""Odd values in every corner of a scenario: each is told in one line, with its place and in the scenario's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.planning.making import make_plan
from orchestrator.scenario.reading import parse, placed
from tests.orchestrator.labels import prepared
from tests.texts import containing

HEAD = "algorithm: {name: hierfavg, rounds: 2}\n"
DEVICES = "device-0-0, device-0-1, device-1-0, device-1-1"
NO_NODE = f"(nodes: cloud, {DEVICES}, edge-0, edge-1)"

BAD = [
    ("name: no", containing("name: write a text, not")),
    ("name: 2026-01-01", containing("name", "date 2026-01-01 (quotes make")),
    ("seed: -1", containing("seed", "least 0, not -1")),
    ("seed: 1e9", containing("seed: write a whole", "1000000000.0")),
    ("seed: 010", containing("seed: 010", "read")),
    ("data: []", containing("data: write a mapping (key")),
    ("data: {dataset: []}", containing("data.dataset: write the name", "data")),
    (
        "data: {partition: {iid: {}, shards: 2}}",
        containing("data.partition: write one partition", "{dirichlet"),
    ),
    ("data: {partition: {dirichlet: .nan}}", containing("data.partition.dirichlet: alpha: nan", "above 0")),
    ("data: {partition: {dirichlet: null}}", containing("data.partition.dirichlet: alpha: nothing", "above 0")),
    ("data: {partition: {dirichlet: yes}}", containing("data.partition.dirichlet: alpha: true", "above 0")),
    ("data: {columns: price}", containing("data.columns: names columns of hf:PATH", "csv:PATH")),
    (
        "data: {partition: {flwr: {partitioner: IidPartitioner, arguments: 3}}}",
        "data.partition.flwr.arguments: 3 is not a mapping",
    ),
    ("data: {personalisation: 100%}", "data.personalisation: must be below 100%, not 100%"),
    ("model: 3", containing("model: write a mapping")),
    ("topology: {cloud: 1}", containing("topology.cloud: write true or false")),
    ("topology: {edges: 2.0}", containing("topology.edges: write a whole")),
    (
        "tоpology: {edges: 2}",  # the second letter is Cyrillic
        "tоpology: unknown key; did you mean 'topology'? (allowed here: name, plugins, seed, algorithm, programs, "
        "data, model, topology, clients, hardware, stack, hosts, compute, links, shared, routes, cross_traffic, "
        "faults, gathering, timeouts, restart, stop, expect, driver, engine, probe)",
    ),
    ("hardware: {device: {speed: .inf}}", "hardware.device.speed: write a finite number, not the number inf"),
    ("hardware: {device: {cores: .nan}}", "hardware.device.cores: write a finite number, not the number nan"),
    ("hardware: {device: {cores: true}}", containing("hardware.device.cores: write a number, not")),
    ("hardware: {'..': host}", containing(f"hardware...: there is no node '..' {NO_NODE}")),
    (
        "links: {device-edge: {latency: 2026-01-01}}",
        containing("links.device-edge.latency: 2026-01-01 is not a duration"),
    ),
    (
        "links: {device-edge: {latency: {x: 1}}}",
        containing("links.device-edge.latency: a mapping is not", "duration"),
    ),
    (
        "links: {device-edge: {latency: 1:30}}",
        containing("links.device-edge.latency: '1:30' is not a duration"),
    ),
    ("links: {device-edge: {jitter: 1e300h}}", containing("links.device-edge.jitter", "most 24h, not 3.6E+303s")),
    ("links: {device-edge: {rate: 1e30bit}}", containing("links.device-edge.rate", "most 1000000gbit, not 1E+21gbit")),
    (
        "links: {device-edge: {buffer: []}}",
        containing("links.device-edge.buffer: a list", "50ms", "64kb"),
    ),
    (
        "links: {device-edge: {distribution: []}}",
        containing("links.device-edge.distribution: a list is not", "normal"),
    ),
    (
        "links: {device-edge: {schedule: {csv: /dev/zero}}}",
        containing("links.device-edge.schedule.csv: /dev/zero cannot be read"),
    ),
    (
        "links: {device-edge: {schedule: {steps: [{at: 0s, loss: 1%}], repeat: 1ns}}}",
        containing("links.device-edge.schedule.repeat", "least 10ms, not 1ns"),
    ),
    (
        "links: {device-edge: {schedule: {ramp: [{at: 0s, over: 1000h, to: {loss: 1%}}]}}}",
        containing("links.device-edge.schedule.ramp: 1000h in steps", "100ms", "than 100,000"),
    ),
    ("links: {a -> b: lan}", containing("links.a ->", f"no node 'a' {NO_NODE}")),
    ("timeouts: {beat: 1ns}", "timeouts.beat: must be at least 10ms"),
    ("stop: {accuracy: 0%}", containing("stop.accuracy", "above 0%, not 0%")),
    (
        f"shared: {{a: {{rate: 1mbit, members: ['{'*' * 30}?']}}}}",
        f"shared.a.members.0: no node matches '{'*' * 30}?' {NO_NODE}",
    ),
    (
        "expect: {checks: [[finished]]}",
        containing("expect.checks.0: a list is not"),
    ),
    (
        "driver: [sim]",
        containing("driver: a list is not"),
    ),
    ("faults: {at: 1s}", containing("faults: write a list, not")),
    ("faults: [{at: 1s, nodes: [], action: crash}]", containing("faults.0.nodes: give at least", "leave")),
    ("faults: [{at: 1s, nodes: [edge-0, edge-0], action: crash}]", "faults.0.nodes: edge-0 is named twice"),
    (
        "faults: [{at: 1s, node: devices, action: crash}]",
        containing("faults.0.node: there is no node 'devices'"),
    ),
    (
        f"faults: [{{at: 1s, node: {'x' * 900}, action: crash}}]",
        containing("faults.0.node", f"no node '{'x' * 57}...' {NO_NODE}"),
    ),
    (
        "faults: [{at: 1s, node: cloud, action: slow, factor: .inf}]",
        "faults.0.factor: write a finite number, not the number inf",
    ),
    (
        '"a\\e[31m\\n": 1',
        "a\\x1b[31m\\n: unknown key (allowed here: name, plugins, seed, algorithm, programs, data, model, topology, "
        "clients, hardware, stack, hosts, compute, links, shared, routes, cross_traffic, faults, gathering, timeouts, "
        "restart, stop, expect, driver, engine, probe)",
    ),
    (
        "topology: {edges: 9, devices_per_edge: [7, 11, 13, 17, 19, 23, 29, 31, 37]}\n"
        "data: {partition: labels-per-edge}",
        containing("data.partition: labels-per-edge cannot give edges"),
    ),
]


@pytest.mark.parametrize(("text", "expected"), BAD, ids=[text[:40] for text, _ in BAD])
def test_odd_values_are_reported_in_one_line_with_their_place(text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(HEAD + text + "\n")
    with pytest.raises(ScenarioError) as caught, placed(file):
        make_plan(parse(file.read_text(), str(file)), prepared())
    (line,) = str(caught.value).splitlines()
    place, _, message = line.partition(": ")
    assert message == expected
    assert place in (f"{file}:2", f"{file}:3")
