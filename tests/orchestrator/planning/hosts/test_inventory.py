"""The inventory: there and back as JSON, and every mistake told with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import InventoryError
from orchestrator.planning.hosts.inventory import HostFacts, Inventory, Underlay
from orchestrator.verbs.sources import read_inventory
from tests.texts import containing

PC: dict[str, Any] = {
    "name": "pc-1",
    "address": "192.0.2.1",
    "architecture": "amd64",
    "cores": 8.0,
    "memory": 16 << 30,
    "labels": {"edgebed.rack": "2"},
    "manager": True,
}
PI: dict[str, Any] = {
    "name": "pi-1",
    "address": "192.0.2.7",
    "architecture": "arm64",
    "cores": 4.0,
    "memory": 4 << 30,
    "labels": {"edgebed.hardware": "raspberry-pi-4"},
    "manager": False,
}
WIRE: dict[str, Any] = {"source": "pc-1", "target": "pi-1", "delay": 0.0002, "rate": 9.4e8, "mtu": 1500}
BACK: dict[str, Any] = {"source": "pi-1", "target": "pc-1", "delay": 0.0003, "rate": None, "mtu": 1450}
WHOLE: dict[str, Any] = {"hosts": [PC, PI], "underlay": [WIRE, BACK]}


def test_it_reads_what_it_writes() -> None:
    inventory = Inventory.from_json(WHOLE)
    assert inventory.hosts[1] == HostFacts(
        "pi-1", "192.0.2.7", "arm64", 4.0, 4 << 30, {"edgebed.hardware": "raspberry-pi-4"}
    )
    assert [host.hardware for host in inventory.hosts] == [None, "raspberry-pi-4"]
    assert inventory.underlay["pi-1", "pc-1"] == Underlay(delay=0.0003, rate=None, mtu=1450)
    assert inventory.to_json() == WHOLE
    assert Inventory.from_json(json.loads(json.dumps(inventory.to_json()))) == inventory


def test_what_was_not_measured_is_missing() -> None:
    assert Inventory.from_json({"hosts": [PC]}) == Inventory((HostFacts.from_json(PC),))


def test_the_smallest_hosts_and_networks_are_read() -> None:
    small = PC | {"cores": 0.5, "memory": 1}
    slow = WIRE | {"delay": 0.0, "rate": 0.5, "mtu": 1}
    inventory = Inventory.from_json({"hosts": [small, PI], "underlay": [slow]})
    assert inventory.to_json() == {"hosts": [small, PI], "underlay": [slow]}


def test_whole_numbers_are_numbers_of_cores() -> None:
    assert HostFacts.from_json(PC | {"cores": 8}).cores == 8.0


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ([], containing("inventory: write a mapping (key: value)")),
        ({}, "the inventory: 'hosts' is missing"),
        ({"hosts": {}}, containing("inventory: hosts: write a list, not")),
        ({"host": []}, "the inventory: host: unknown key; did you mean 'hosts'? (allowed here: hosts, underlay)"),
        ({"hosts": [PC, "pi-1"]}, containing("hosts[1]: write a mapping", "'pi-1'")),
        ({"hosts": [PC | {"name": "my pc"}]}, containing("hosts[0]: name: write a text without")),
        ({"hosts": [PC | {"architecture": "x86_64"}]}, containing("hosts[0]: architecture: 'x86_64'", "amd64, arm64")),
        ({"hosts": [PC | {"cores": 0}]}, containing("hosts[0]: cores: must be above 0")),
        ({"hosts": [PC | {"cores": "8"}]}, containing("hosts[0]: cores: write a number, not")),
        ({"hosts": [PC | {"memory": 1.5}]}, containing("hosts[0]: memory: write a whole number")),
        (
            {"hosts": [PC | {"labels": {"edgebed.rack": 2}}]},
            containing("hosts[0]: labels.edgebed.rack: write a text, not"),
        ),
        ({"hosts": [PC | {"manager": 1}]}, containing("hosts[0]: manager: write true or false")),
        (
            {"hosts": [PI | {"labels": {"edgebed.hardware": "raspberry-pi4"}}]},
            containing("pi-1: label edgebed.hardware: 'raspberry-pi4'", "'raspberry-pi-4'?"),
        ),
        ({"hosts": [PC, PC]}, containing("hosts: pc-1 is there twice: give")),
        ({"hosts": [PC], "underlay": [WIRE]}, "underlay: 'pi-1' is no host; did you mean 'pc-1'? (known: pc-1)"),
        ({"hosts": [PC, PI], "underlay": [WIRE, WIRE]}, containing("underlay[1]: pc-1 -> pi-1")),
        (
            {"hosts": [PC, PI], "underlay": [WIRE | {"delay": float("nan")}]},
            "underlay[0]: delay: write a finite number, not the number nan",
        ),
        ({"hosts": [PC, PI], "underlay": [WIRE | {"rate": 0}]}, containing("underlay[0]: rate: must be above 0")),
    ],
)
def test_a_mistake_is_reported_with_its_place(data: Any, expected: str) -> None:
    with pytest.raises(InventoryError) as caught:
        Inventory.from_json(data)
    assert str(caught.value) == expected


def test_it_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts.json"
    file.write_text(json.dumps(WHOLE))
    assert read_inventory(file) == Inventory.from_json(WHOLE)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "No such file"),
        ("{", "enclosed in double quotes"),
        ("[" * 200_000, "cannot be read"),
        ('{"hosts": 3}', "hosts: write a list, not"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: str | None, expected: str) -> None:
    file = tmp_path / "hosts.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InventoryError) as caught:
        read_inventory(file)
    assert str(caught.value) == containing(f"{file}: ", expected)


TOLD = {"state": "ready", "availability": "active", "engine": "20.10.24"}
LOOK = {"severity": "look", "what": "its clock is not synchronised", "remedy": "", "commands": []}
NO_VXLAN = {"severity": "unusable", "what": "it has no VXLAN", "remedy": "load it", "commands": ["modprobe vxlan"]}
NO_IMAGE = {"severity": "unusable", "what": "it has no image", "remedy": "", "commands": []}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({}, None),
        ({"findings": [LOOK]}, None),
        ({"state": "down"}, "its state is down"),
        ({"availability": "drain"}, "its availability is drain"),
        ({"findings": [NO_VXLAN, LOOK, NO_IMAGE]}, containing("it has no VXLAN", "no image")),
        ({"state": "down", "findings": [NO_IMAGE]}, "it has no image"),
        ({"address": "", "findings": [NO_IMAGE]}, "it has no image"),  # what such a host lacks is not read
    ],
)
def test_what_hosts_and_its_doctor_print_is_read_and_hosts_that_cannot_be_used_are_left_out(
    said: dict[str, Any], reason: str | None
) -> None:
    inventory = Inventory.from_json({"hosts": [PC | TOLD, PI | TOLD | said], "underlay": [WIRE, BACK]})
    assert [host.name for host in inventory.hosts] == (["pc-1"] if reason else ["pc-1", "pi-1"])
    assert inventory.left_out == ({"pi-1": reason} if reason else {})
    assert len(inventory.underlay) == (0 if reason else 2)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"findings": {}}, containing("hosts[0]: findings: write a list, not")),
        ({"findings": [{"severity": "look"}]}, "hosts[0]: findings.0: 'what' is missing"),
        ({"state": "down", "name": ""}, containing("hosts[0]: name: write a text without")),
    ],
)
def test_a_mistake_in_what_was_found_is_reported_too(said: dict[str, Any], expected: str) -> None:
    with pytest.raises(InventoryError) as caught:
        Inventory.from_json({"hosts": [PC | TOLD | said]})
    assert str(caught.value) == expected
