"""Real links in a scenario: where they may be, what they refuse, and what takes their place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netem.library import PROFILES
from netem.profile import LinkProfile
from node.errors import PluginError
from node.plugins import find
from orchestrator.errors import ScenarioError
from orchestrator.scenario.catalogue import catalogue_of
from orchestrator.scenario.reading import parse
from orchestrator.scenario.schema import Scenario, effective, json_schema
from orchestrator.scenario.sections.links import resolve
from tests.texts import containing

REAL = LinkProfile(real=True)
TEXT = """\
algorithm: hierfavg
driver: swarm
topology: {edges: 1, devices_per_edge: 2}
links:
  device-edge: real
  edge-cloud: {latency: 20ms, rate: 50mbit}
"""
OWN = "links.device-0-0 -> edge-0"


def profiles(scenario: Scenario) -> dict[tuple[str, str], LinkProfile]:
    return resolve(scenario.links, scenario.topology.pairs(scenario.mesh)).profiles


def problem(*overrides: str, text: str = TEXT) -> str:
    with pytest.raises(ScenarioError) as caught:
        parse(text, "f.yaml", overrides)
    (found,) = caught.value.problems
    return f"{found.path}: {found.message}"


def test_a_class_two_nodes_and_one_direction_can_be_real() -> None:
    found = profiles(parse(TEXT, "f.yaml"))
    assert [found[ends] for ends in (("device-0-0", "edge-0"), ("edge-0", "device-0-0"))] == [REAL, REAL]
    assert found["edge-0", "cloud"] == LinkProfile(latency=0.02, rate=50e6)
    lan = TEXT.replace("device-edge: real", "device-edge: {profile: wifi, up: real}")
    found = profiles(parse(lan, "f.yaml", ["links.edge-0 <-> cloud=real", "links.edge-0 -> device-0-1=real"]))
    assert found["device-0-0", "edge-0"] == REAL
    assert found["edge-0", "device-0-0"] == PROFILES["wifi"]
    assert found["edge-0", "device-0-1"] == found["edge-0", "cloud"] == found["cloud", "edge-0"] == REAL


def test_a_profile_takes_its_place_with_all_its_settings() -> None:
    found = profiles(parse(TEXT, "f.yaml", [f"{OWN}={{profile: lan, loss: 1%}}"]))
    assert found["device-0-0", "edge-0"] == PROFILES["lan"].merged(loss=0.01)


def test_the_effective_scenario_and_the_schema_of_editors_know_it() -> None:
    written = json.loads(json.dumps(effective(parse(TEXT, "f.yaml"))))
    assert parse(json.dumps(written), "f.yaml").links["device-edge"].profile == "real"
    forms = {name: json_schema()["$defs"][name]["anyOf"] for name in ("LinkSpec", "DirectionSpec", "LinkKeys")}
    assert {name: "real" in form[0]["enum"] for name, form in forms.items()} == {
        **{"LinkSpec": True, "DirectionSpec": True},
        "LinkKeys": False,  # of schedules
    }


@pytest.mark.parametrize("driver", ["docker", "namespaces"])
def test_a_driver_of_one_host_has_no_network_that_could_be_real(driver: str) -> None:

    assert problem(f"driver={driver}") == containing(f"links.device-edge: the driver {driver}", "driver swarm or slurm")


def test_the_simulation_has_none_either_and_the_entry_is_named() -> None:

    assert problem("driver=sim", "links.device-edge=wifi", f"{OWN}=real") == containing(
        f"{OWN}: the driver sim", "none is real"
    )
    assert parse(TEXT, "f.yaml", ["driver=sim", "links.device-edge=wifi"])


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("links.device-edge.rate=5mbit", "links.device-edge: rate"),
        ("links.device-edge.up={latency: 1ms}", "links.device-edge: latency"),
        (f"{OWN}={{loss: 1%}}", f"{OWN}: loss"),
    ],
)
def test_it_takes_no_settings(override: str, path: str) -> None:
    assert problem(override) == containing(f"{path}: a real link", "takes")


def test_it_follows_no_schedule() -> None:
    said = problem("links.device-edge.schedule={handover: [{at: 1s, interruption: 1s}]}")
    assert said == containing("links.device-edge.schedule", "link device-0-0 -> edge-0")


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("links.edge-cloud.schedule={steps: [{at: 1s, profile: real}]}", "links.edge-cloud.schedule.steps.0.profile"),
        ("faults=[{at: 1s, node: cloud, action: degrade, profile: real}]", "faults.0.profile"),
    ],
)
def test_no_link_becomes_real(override: str, path: str) -> None:
    assert problem(override) == containing(f"{path}: a link is real", "`links`")


def test_it_can_be_cut_but_not_degraded() -> None:
    cuts = "[{round: 1, node: device-0-0, action: disconnect}, {at: 1s, between: [edges, devices], action: partition}]"
    assert len(parse(TEXT, "f.yaml", [f"faults={cuts}"]).faults) == 2
    for settings in ("loss: 1%", "latency: 0s", "profile: wifi"):
        degrade = f"faults=[{{round: 1, of: devices, count: 1, action: degrade, {settings}}}]"
        said = containing("faults.0: the link device-0-0 -> edge-0")
        assert problem(degrade) == said
    assert parse(TEXT, "f.yaml", ["faults=[{at: 1s, between: [edge-0, cloud], action: degrade, loss: 1%}]"])


@pytest.mark.parametrize(("name", "profile"), [("real", {"latency": "1ms"}), ("mine", {"real": True})])
def test_no_plugin_adds_a_profile_like_it(tmp_path: Path, name: str, profile: dict[str, object]) -> None:
    (tmp_path / "links.py").write_text(f"import edgebed\nPLUGIN = edgebed.Plugin(profiles={ {name: profile}!r})\n")
    with pytest.raises(PluginError, match=name):
        catalogue_of([find("links.py", tmp_path)])
