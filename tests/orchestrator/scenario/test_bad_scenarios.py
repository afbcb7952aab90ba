"""Odd values in every corner of a scenario: each is told in one line, with its place and in the scenario's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.planning.making import make_plan
from orchestrator.scenario.reading import parse, placed
from tests.orchestrator.labels import prepared

HEAD = "algorithm: {name: hierfavg, rounds: 2}\n"
DEVICES = "device-0-0, device-0-1, device-1-0, device-1-1"
NO_NODE = f"(nodes: cloud, {DEVICES}, edge-0, edge-1)"

BAD = [
    ("name: no", "name: write a text, not the truth value false; put it in quotes"),
    ("name: 2026-01-01", "name: write a text, not the date 2026-01-01 (quotes make it a text)"),
    ("seed: -1", "seed: must be at least 0, not -1"),
    ("seed: 1e9", "seed: write a whole number, not the number 1000000000.0"),
    ("seed: 010", "seed: 010 may be read as octal: write it without the leading 0"),
    ("data: []", "data: write a mapping (key: value), not a list"),
    ("data: {dataset: []}", "data.dataset: write the name of a data set, or a list of names, not a list"),
    (
        "data: {partition: {iid: {}, shards: 2}}",
        "data.partition: write one partition, like iid or {dirichlet: 0.1}, not a mapping",
    ),
    ("data: {partition: {dirichlet: .nan}}", "data.partition.dirichlet: alpha: nan is not a number above 0"),
    ("data: {partition: {dirichlet: null}}", "data.partition.dirichlet: alpha: nothing is not a number above 0"),
    ("data: {partition: {dirichlet: yes}}", "data.partition.dirichlet: alpha: true is not a number above 0"),
    ("data: {columns: price}", "data.columns: names columns of hf:PATH or csv:PATH: digits has none"),
    (
        "data: {partition: {flwr: {partitioner: IidPartitioner, arguments: 3}}}",
        "data.partition.flwr.arguments: 3 is not a mapping",
    ),
    ("data: {personalisation: 100%}", "data.personalisation: must be below 100%, not 100%"),
    ("model: 3", "model: write a mapping (key: value), not the number 3"),
    ("topology: {cloud: 1}", "topology.cloud: write true or false, not the number 1"),
    ("topology: {edges: 2.0}", "topology.edges: write a whole number, not the number 2.0"),
    (
        "tоpology: {edges: 2}",  # the second letter is Cyrillic
        "tоpology: unknown key; did you mean 'topology'? (allowed here: name, plugins, seed, algorithm, programs, "
        "data, model, topology, clients, hardware, stack, hosts, compute, links, shared, routes, cross_traffic, "
        "faults, gathering, timeouts, restart, stop, expect, driver, engine, probe)",
    ),
    ("hardware: {device: {speed: .inf}}", "hardware.device.speed: write a finite number, not the number inf"),
    ("hardware: {device: {cores: .nan}}", "hardware.device.cores: write a finite number, not the number nan"),
    ("hardware: {device: {cores: true}}", "hardware.device.cores: write a number, not the truth value true"),
    ("hardware: {'..': host}", f"hardware...: there is no node '..' {NO_NODE}; tiers are device, edge, cloud"),
    (
        "links: {device-edge: {latency: 2026-01-01}}",
        "links.device-edge.latency: 2026-01-01 is not a duration; write it like 20ms",
    ),
    (
        "links: {device-edge: {latency: {x: 1}}}",
        "links.device-edge.latency: a mapping is not a duration; write it like 20ms",
    ),
    (
        "links: {device-edge: {latency: 1:30}}",
        "links.device-edge.latency: '1:30' is not a duration; write a number and a unit, like 20ms",
    ),
    ("links: {device-edge: {jitter: 1e300h}}", "links.device-edge.jitter: must be at most 24h, not 3.6E+303s"),
    ("links: {device-edge: {rate: 1e30bit}}", "links.device-edge.rate: must be at most 1000000gbit, not 1E+21gbit"),
    (
        "links: {device-edge: {buffer: []}}",
        "links.device-edge.buffer: a list is neither a time such as 50ms nor a size such as 64kb",
    ),
    (
        "links: {device-edge: {distribution: []}}",
        "links.device-edge.distribution: a list is not one of normal, uniform, pareto, paretonormal",
    ),
    (
        "links: {device-edge: {schedule: {csv: /dev/zero}}}",
        "links.device-edge.schedule.csv: /dev/zero cannot be read: it is no regular file; paths begin at the "
        "scenario's file",
    ),
    (
        "links: {device-edge: {schedule: {steps: [{at: 0s, loss: 1%}], repeat: 1ns}}}",
        "links.device-edge.schedule.repeat: must be at least 10ms, not 1ns",
    ),
    (
        "links: {device-edge: {schedule: {ramp: [{at: 0s, over: 1000h, to: {loss: 1%}}]}}}",
        "links.device-edge.schedule.ramp: 1000h in steps of 100ms are more than 100,000 changes: take a step of 36s or "
        "more",
    ),
    ("links: {a -> b: lan}", f"links.a -> b: there is no node 'a' {NO_NODE}"),
    ("timeouts: {beat: 1ns}", "timeouts.beat: must be at least 10ms"),
    ("stop: {accuracy: 0%}", "stop.accuracy: must be above 0%, not 0%"),
    (
        f"shared: {{a: {{rate: 1mbit, members: ['{'*' * 30}?']}}}}",
        f"shared.a.members.0: no node matches '{'*' * 30}?' {NO_NODE}",
    ),
    (
        "expect: {checks: [[finished]]}",
        "expect.checks.0: a list is not one of: finished, learned, participation, links as configured, TCP as "
        "configured, faults took effect, links over time, losses during the run, rates during the run, network between "
        "hosts, compute on time, links on time, clients available, nodes responded, no unplanned "
        "failures; did you mean 'finished'?",
    ),
    (
        "driver: [sim]",
        "driver: a list is not one of: namespaces, docker, swarm, slurm, kubernetes, sim; did you mean 'sim'?",
    ),
    ("faults: {at: 1s}", "faults: write a list, not a mapping"),
    ("faults: [{at: 1s, nodes: [], action: crash}]", "faults.0.nodes: give at least one, or leave it out"),
    ("faults: [{at: 1s, nodes: [edge-0, edge-0], action: crash}]", "faults.0.nodes: edge-0 is named twice"),
    (
        "faults: [{at: 1s, node: devices, action: crash}]",
        f"faults.0.node: there is no node 'devices'; did you mean 'device-1-1'? {NO_NODE}",
    ),
    (
        f"faults: [{{at: 1s, node: {'x' * 900}, action: crash}}]",
        f"faults.0.node: there is no node '{'x' * 57}...' {NO_NODE}",
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
        "data.partition: labels-per-edge cannot give edges with such different numbers of devices equal shares: give "
        "each edge the same number, or numbers with common divisors",
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
