from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.agent.facts import read_facts
from tests.orchestrator.host.sensors import trees

MODULES = f"lib/modules/{os.uname().release}/modules.dep"


def test_a_raspberry_pi_4_that_has_too_little_power(tmp_path: Path) -> None:
    root = trees.write(trees.raspberry_pi_4(tmp_path), {MODULES: "kernel/iptable_raw.ko.xz:"})
    assert read_facts(root) == {
        "iptable_raw": True,
        "model": "Raspberry Pi 4 Model B Rev 1.4",
        "temperature": 48.312,
        "accelerators": (),
        "throttled": ("under-voltage", "throttled"),  # 0x5; the alarm of rpi_volt says it once more
    }


def test_a_raspberry_pi_4_at_ease(tmp_path: Path) -> None:
    root = trees.write(trees.raspberry_pi_4(tmp_path, "0"), {"sys/class/hwmon/hwmon1/in0_lcrit_alarm": 0})
    assert read_facts(root)["throttled"] == ()


def test_a_jetson_with_a_kernel_that_lacks_a_module(tmp_path: Path) -> None:
    found = read_facts(trees.write(trees.jetson_orin_nano(tmp_path), {MODULES: "kernel/iptable_nat.ko:"}))
    assert found["iptable_raw"] is False
    assert found["temperature"] == pytest.approx(52.6)
    assert found["accelerators"] == ("NVIDIA GPU of a Jetson",)
    assert found["throttled"] is None  # it counts events, and does not tell the moment


def test_a_host_that_shows_nothing(tmp_path: Path) -> None:
    assert set(read_facts(tmp_path).values()) == {None, ()}
