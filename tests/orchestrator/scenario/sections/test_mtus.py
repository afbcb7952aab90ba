"""MTUs of links: which links have one, what refuses it, and what the simulation makes of it."""

from __future__ import annotations

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.planning.making import make_plan
from orchestrator.scenario.reading import parse
from tests.texts import containing

TEXT = """\
topology: {cloud: true, edges: 2, devices_per_edge: 1, mesh: true}
links:
  device-edge: {profile: lte, mtu: 1400}
  edge-cloud: {latency: 20ms}
  edge-edge: {latency: 20ms, mtu: 1492}
programs: {device: {command: a}, edge: {command: a}, cloud: {command: a}}
"""


def problems(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse(text, "f.yaml", overrides)
    return [f"{found.path}: {found.message}" for found in caught.value.problems]


def test_both_directions_have_the_mtu_of_their_class_or_their_own() -> None:
    scenario = parse(TEXT, "f.yaml", ["links.edge-1 <-> device-1-0={mtu: 1280}"])
    assert scenario.resolved_links.mtus == {
        ("device-0-0", "edge-0"): 1400,
        ("edge-0", "device-0-0"): 1400,
        ("device-1-0", "edge-1"): 1280,
        ("edge-1", "device-1-0"): 1280,
        ("edge-0", "edge-1"): 1492,
        ("edge-1", "edge-0"): 1492,
    }


def test_null_takes_the_mtu_of_a_class_away_and_other_keys_keep_it() -> None:
    entries = ["links.edge-1 <-> device-1-0={mtu: null}", "links.edge-0 <-> device-0-0={profile: wifi}"]
    mtus = parse(TEXT, "f.yaml", entries).resolved_links.mtus
    assert mtus["edge-0", "device-0-0"] == 1400
    assert ("edge-1", "device-1-0") not in mtus
    assert ("device-1-0", "edge-1") not in mtus


def test_the_plan_has_it_where_there_is_one() -> None:
    links = {(link.source, link.target): link for link in make_plan(parse(TEXT, "f.yaml"), None).links}
    assert links["edge-0", "device-0-0"].to_json()["mtu"] == 1400
    assert "mtu" not in links["edge-0", "cloud"].to_json()


@pytest.mark.parametrize("mtu", [575, 1501, "1400b"])
def test_an_mtu_is_a_number_of_bytes_within_limits(mtu: object) -> None:
    (problem,) = problems(TEXT, f"links.edge-cloud.mtu={mtu}")
    assert problem.startswith("links.edge-cloud.mtu: ")


def test_one_direction_has_none_of_its_own() -> None:
    expected = "links.edge-0 -> cloud: mtu: write 'edge-0"
    assert containing(expected) in problems(TEXT, "links.edge-0 -> cloud={mtu: 1400}")


def test_a_real_link_refuses_it() -> None:
    text = TEXT + "driver: swarm\n"
    expected = "links.edge-cloud.mtu: a real link"
    assert containing(expected) in problems(text, "links.edge-cloud={profile: real, mtu: 1400}")


def test_the_simulation_notes_that_it_has_none() -> None:
    text = "algorithm: fedavg\ndriver: sim\ntopology: {devices: 2}\nlinks: {device-cloud: {mtu: 1400}}\n"
    note = containing("simulation sends packets of 1500 bytes")
    assert note in make_plan(parse(text, "f.yaml"), None).notes()
    assert note not in make_plan(parse(text, "f.yaml", ["driver=namespaces"]), None).notes()
