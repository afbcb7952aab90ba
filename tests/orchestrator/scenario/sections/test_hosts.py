"""`hosts` in a scenario: how it is written, what is refused, and which hosts a value takes."""

from __future__ import annotations

import json
import re

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.scenario.reading import parse
from orchestrator.scenario.schema import effective, json_schema
from orchestrator.scenario.sections.hosts import HostChoice
from tests.texts import containing

HEAD = "algorithm: hierfavg\ndriver: swarm\nhosts:\n"
WRITE = "write the name of a host, "


def test_a_host_has_a_name_or_a_label() -> None:
    scenario = parse(f"{HEAD}  cloud: pc-1\n  device-0-1: rack=2\n  edge: hardware=jetson-orin-nano\n", "f.yaml")
    assert scenario.hosts == {
        "cloud": HostChoice("pc-1"),
        "device-0-1": HostChoice("rack", "2"),
        "edge": HostChoice("hardware", "jetson-orin-nano"),
    }
    written = effective(scenario)
    assert written["hosts"] == {"cloud": "pc-1", "device-0-1": "rack=2", "edge": "hardware=jetson-orin-nano"}
    assert parse(json.dumps(written), "f.yaml").hosts == scenario.hosts
    assert parse(HEAD, "f.yaml", ["hosts={}", "hosts.device=rack=2"]).hosts == {"device": HostChoice("rack", "2")}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  cloud: 1", f"hosts.cloud: {WRITE}"),
        ("  cloud: [pc-1]", f"hosts.cloud: {WRITE}"),
        ("  cloud: pc 1", f"hosts.cloud: {WRITE}"),
        ("  cloud: rack==2", f"hosts.cloud: {WRITE}"),
        ("  cloud: ''", f"hosts.cloud: {WRITE}"),
        ("  gateway: pc-1", "hosts.gateway: there is no node 'gateway'"),
        (
            "  edge: hardware=jetson-nan",
            "hosts.edge: 'jetson-nan' is no hardware class",
        ),
        ("  edge: edgebed.hardware=host", "hosts.edge: 'host' is no hardware class"),
    ],
)
def test_what_cannot_be_a_host_is_refused(line: str, expected: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse(f"{HEAD}{line}\n", "f.yaml")
    assert str(caught.value).startswith(f"f.yaml:4: {expected}")


def test_a_driver_of_one_host_refuses_hosts() -> None:
    text = "algorithm: hierfavg\nhosts: {cloud: pc-1}\n"
    with pytest.raises(ScenarioError) as caught:
        parse(text, "f.yaml")
    assert str(caught.value) == containing("f.yaml:2: hosts: the driver namespaces", "use the driver swarm")


def test_the_prefix_of_a_label_may_be_left_out() -> None:
    labels = {"edgebed.rack": "2", "room": "b"}
    assert HostChoice("rack", "2").takes("pc-1", labels)
    assert HostChoice("edgebed.rack", "2").takes("pc-1", labels)
    assert HostChoice("room", "b").takes("pc-1", labels)
    assert not HostChoice("rack", "3").takes("pc-1", labels)
    assert not HostChoice("shelf", "2").takes("pc-1", labels)
    assert HostChoice("pc-1").takes("pc-1", {})
    assert not HostChoice("pc-1").takes("pc-2", {"pc-1": "pc-1"})


def test_the_json_schema_takes_what_is_read() -> None:
    pattern = json_schema()["properties"]["hosts"]["additionalProperties"]["pattern"]
    assert all(re.search(pattern, good) for good in ("pc-1", "rack=2", "edgebed.rack=2"))
    assert not any(re.search(pattern, bad) for bad in ("", "pc 1", "rack==2", "rack="))
