"""Tests of what programs find in a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.drivers import surroundings
from orchestrator.drivers.surroundings import addresses, kernel_notes, quota_notes, write_hosts
from orchestrator.planning.making import make_plan
from orchestrator.scenario.reading import parse

TEXT = """\
programs:
  cloud: {command: serve, ready: {line: serving}}
  device: {command: ask, after: cloud}
topology: {cloud: true, edges: 0, devices: 1}
"""


def test_speed_is_a_quota_of_processor_time() -> None:
    hardware = "hardware: {device: {speed: 0.1, cores: 4}, cloud: {cores: 2}}\n"
    plan = make_plan(parse(TEXT + hardware, "f.yaml"), None)
    assert [node.hardware.quota for node in plan.nodes] == [2, 0.4]
    (note,) = quota_notes(plan)
    assert note.startswith("the speed of custom is a")


def test_all_names_resolve(tmp_path: Path) -> None:
    plan, hosts = make_plan(parse(TEXT, "f.yaml"), None), tmp_path / "hosts"
    write_hosts(hosts, addresses(plan))
    # 10.77.0.1 is 0a4d 0001: the last 32 bits of the IPv6 address
    assert hosts.read_text().splitlines() == [
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost",
        "10.77.0.1\tcloud",
        "fd65:6467:6562::a4d:1\tcloud",
        "10.77.0.2\tdevice-0",
        "fd65:6467:6562::a4d:2\tdevice-0",
    ]


def test_names_change_in_the_file_that_nodes_have_mounted(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    write_hosts(hosts, {"cloud": "10.77.0.100", "device-0": "10.77.0.200"})
    mounted = hosts.stat().st_ino
    write_hosts(hosts, {"cloud": "10.77.0.1"})
    assert hosts.read_text().splitlines() == ["10.77.0.1\tcloud", "fd65:6467:6562::a4d:1\tcloud"]
    assert (hosts.stat().st_ino, hosts.stat().st_mode & 0o777) == (mounted, 0o644)


def test_a_kernel_without_ipv6_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "IPV6_SETTINGS", tmp_path)
    assert kernel_notes() == []
    monkeypatch.setattr(surroundings, "IPV6_SETTINGS", tmp_path / "missing")
    assert kernel_notes() == [surroundings.NO_IPV6]
