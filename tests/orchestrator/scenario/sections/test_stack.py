"""TCP settings of nodes: what they set, and what is refused."""

from __future__ import annotations

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.planning.making import make_plan
from orchestrator.scenario.reading import parse
from orchestrator.scenario.schema import effective

HEAD = "algorithm: fedavg\ntopology: {edges: 0, devices: 2}\n"


def test_a_nodes_entry_replaces_that_of_its_tier() -> None:
    text = (
        "stack:\n  device: {congestion: bbr, syn_retries: 3, keepalive: 30s, retries2: 8, rmem: 4mb, wmem: 8kb}\n"
        "  device-1: {congestion: reno}\n"
    )
    plan = make_plan(parse(HEAD + text, "s.yaml"), None)
    assert {node.name: node.stack for node in plan.nodes} == {
        "cloud": {},
        "device-0": {
            "tcp_congestion_control": "bbr",
            "tcp_syn_retries": "3",
            "tcp_keepalive_time": "30",
            "tcp_keepalive_intvl": "30",
            "tcp_retries2": "8",
            "tcp_rmem": "4096 131072 4000000",
            "tcp_wmem": "4096 8000 8000",  # a new connection's buffer is no larger than the largest
        },
        "device-1": {"tcp_congestion_control": "reno"},
    }
    cloud, _, device = (node.to_json() for node in plan.nodes)
    assert ("stack" in cloud, device["stack"]) == (False, {"tcp_congestion_control": "reno"})


def test_the_effective_scenario_has_it_only_if_it_is_given() -> None:
    assert "stack" not in effective(parse(HEAD, "s.yaml"))
    given = effective(parse(HEAD + "stack: {cloud: {keepalive: 2min, wmem: 1mib}}\n", "s.yaml"))["stack"]
    assert {key: value for key, value in given["cloud"].items() if value is not None} == {
        "keepalive": "2min",
        "wmem": "1mib",
    }


def test_a_simulation_has_the_settings_of_its_model() -> None:
    text = "driver: sim\nstack: {cloud: {congestion: cubic, rmem: 6mib, wmem: 4mib}, device: {}}\n"
    assert parse(HEAD + text, "s.yaml").stack["cloud"].congestion == "cubic"


SIM = "the model of TCP of sim"
CASES = [
    ("stack: {devices: {retries2: 8}}", "stack.devices: there is no node 'devices'"),
    ("stack: {device: {congestion: bbbr}}", "stack.device.congestion: 'bbbr' is not one of"),
    ("stack: {device: {syn_retry: 3}}", "stack.device.syn_retry: unknown key; did you mean 'syn_retries'? (allowed"),
    ("stack: {device: {syn_retries: 0}}", "stack.device.syn_retries: must be at least 1"),
    ("stack: {device: {syn_retries: 128}}", "stack.device.syn_retries: must be at most 127"),
    ("stack: {device: {syn_retries: 3s}}", "stack.device.syn_retries: write a whole number, not"),
    ("stack: {device: {retries2: 256}}", "stack.device.retries2: must be at most 255"),
    ("stack: {device: {keepalive: 30}}", "stack.device.keepalive: 30 has no unit; write "),
    ("stack: {device: {keepalive: 0}}", "stack.device.keepalive: must be at least 1"),
    ("stack: {device: {keepalive: 10h}}", "stack.device.keepalive: must be at most 32767"),
    ("stack: {device: {keepalive: 1.5s}}", "stack.device.keepalive: must be whole seconds, like"),
    ("stack: {device: {rmem: 4}}", "stack.device.rmem: 4 has no unit; write "),
    ("stack: {device: {wmem: 1kb}}", "stack.device.wmem: must be at least 4096"),
    ("stack: {device: {wmem: 2gib}}", "stack.device.wmem: must be below 2147483648, not 2gib"),
    ("stack: {device: bbr}", "stack.device: write a mapping (key: value)"),
    ("driver: sim\nstack: {device: {congestion: bbr}}", f"stack.device.congestion: {SIM}"),
    ("driver: sim\nstack: {device: {syn_retries: 6}}", f"stack.device.syn_retries: {SIM}"),
    ("driver: sim\nstack: {device: {congestion: cubic, wmem: 4mb}}", f"stack.device.wmem: {SIM}"),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_each_mistake_is_reported_in_one_line_with_its_place(text: str, expected: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse(HEAD + text, "s.yaml")
    (line,) = str(caught.value).splitlines()
    place, _, message = line.partition(": ")
    assert message.startswith(expected)
    assert (HEAD + text).splitlines()[int(place.removeprefix("s.yaml:")) - 1].startswith("stack")
