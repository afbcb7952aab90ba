"""Numbers that no run could hold are refused before anything is made of them."""

from __future__ import annotations

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.scenario.reading import parse
from tests.orchestrator.scenario.cases import pairs
from tests.texts import containing

FLAT = "algorithm: {name: fedavg, rounds: 1000000}\ntopology: {devices: 10}\nfaults:\n"
REFUSED = pairs(
    "algorithm: hierfavg\ntopology: {edges: 1000000000}",
    "2: topology.edges: must be at most",
    "algorithm: fedavg\ntopology: {devices: 1000000000}",
    "2: topology.devices: must be at most",
    "algorithm: hierfavg\ntopology: {devices_per_edge: 1000000000}",
    "2: topology.devices_per_edge: must be at most",
    "algorithm: hierfavg\ntopology: {devices_per_edge: [1, 1000000000]}",
    "2: topology.devices_per_edge: must be at most",
    "algorithm: hierfavg\ntopology: {edges: 1000, mesh: true}",
    "2: topology: 502500 pairs of nodes",
    "algorithm: {name: hierfavg, rounds: 1000000000}",
    "1: algorithm.rounds: must be at most",
    "algorithm: hierfavg\nstop: {rounds: 1000000000}",
    "2: stop.rounds: must be at most",
    f"algorithm: {{name: hierfavg, rounds: 0x{'f' * 100}}}",
    f"1: algorithm.rounds: 0x{'f' * 55}... is too large",
    f"{FLAT}- {{every_round: 30%, of: devices, action: crash}}",
    "4: faults.0: makes about 3,000,000 faults",
    f"{FLAT}- {{every_round: 1%, of: devices, action: crash}}",
    "4: faults.0: makes about 1,000,000 faults",
    f"{FLAT}- {{at: 1s, node: cloud, action: pause, for: 1s}}\n"
    "- {random: {mean: 1ns, until: 1h}, of: devices, action: crash, for: 1s}",
    "5: faults.1: makes about 3,600,000,000,000 faults",
)


@pytest.mark.parametrize(("text", "expected"), REFUSED, ids=range(len(REFUSED)))
def test_what_no_run_can_hold_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse(text, "f.yaml")
    assert str(caught.value).startswith(f"f.yaml:{expected}")


def test_only_the_rule_that_makes_them_too_many_is_reported() -> None:
    rule = "- {random: {mean: 1s, until: 40000s}, of: devices, action: pause, for: 1s}\n"
    with pytest.raises(ScenarioError) as caught:
        parse(FLAT + 5 * rule, "f.yaml")
    assert str(caught.value) == containing("f.yaml:6: faults.2: makes about 40,000 faults")


@pytest.mark.slow
def test_many_nodes_and_rounds_are_no_mistake() -> None:
    parse("algorithm: {name: fedavg, rounds: 1000000}\ntopology: {devices: 60000}", "f.yaml")
