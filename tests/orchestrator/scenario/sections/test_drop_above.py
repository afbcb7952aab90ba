"""Links that drop large packets: where the key may be, and what refuses it."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.planning.faults.manual import faults_by_hand
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.scenario.reading import parse

ALGORITHM = "algorithm: fedavg\ntopology: {devices: 2}\n"
LINKS = """\
links:
  device-cloud: {drop_above: 1200, up: {drop_above: 900}, schedule: {steps: [{at: 5s, drop_above: 600}]}}
  device-1 <-> cloud: {drop_above: null}
"""
FAULT = "faults: [{at: 1s, node: device-0, action: degrade, drop_above: 1000, for: 1s}]\n"


def planned(text: str) -> Plan:
    return make_plan(parse(ALGORITHM + text, "f.yaml"), None)


def test_each_direction_has_its_own_and_a_link_may_have_none() -> None:
    links = {(link.source, link.target): link for link in planned(LINKS).links}
    limits = {ends: link.profile.drop_above for ends, link in links.items()}
    assert limits == {
        ("device-0", "cloud"): 900,
        ("cloud", "device-0"): 1200,
        ("device-1", "cloud"): None,
        ("cloud", "device-1"): None,
    }
    up = links["device-0", "cloud"]
    assert [profile.drop_above for profile in up.extremes] == [900, 600]
    assert up.to_json()["profile"] == {"drop_above": 900}


def test_a_fault_sets_and_removes_it() -> None:
    (fault,) = planned(FAULT).faults
    assert fault.profile == {"drop_above": 1000}
    (removing,) = planned(LINKS + FAULT.replace("1000", "null")).faults
    assert removing.profile == {"drop_above": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("links: {device-cloud: {drop_above: 100}}", "links.device-cloud.drop_above: must be a whole number of bytes"),
        (LINKS + "driver: sim", "driver: the driver sim does not model the size of packets: leave drop_above out"),
        (FAULT + "driver: sim", "faults.0.drop_above: the driver sim does not model the size of packets"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse(ALGORITHM + text, "f.yaml")
    assert message in str(caught.value)


def test_manual_faults_have_it_but_in_simulations() -> None:
    written: dict[str, Any] = {"action": "degrade", "node": "device-0", "drop_above": "1000"}
    (made,) = faults_by_hand(written, planned(""), 1.0, 1)
    link = planned("").links[0]
    assert link.profile.merged(made.fault.profile).drop_above == 1000
    with pytest.raises(ValueError, match="does not model the size of packets"):
        faults_by_hand(written, planned("driver: sim\n"), 1.0, 1)
