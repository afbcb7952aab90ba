"""Hardware classes, and how a scenario changes them."""

from __future__ import annotations

import pytest

from orchestrator.scenario.schema import HardwareSpec
from orchestrator.scenario.sections.hardware import BOARDS, GIB, HARDWARE, HardwareClass

# Gflop/s per core: github.com/geerlingguy/top500-benchmark, README; i5-7400T, the measure of all: 72.472 on 4 cores.
HOST = 72.472 / 4
PER_CORE = {
    "raspberry-pi-3": 5.604 / 4 / 1.8 * 1.2,  # 4 Cortex-A55 at 1.8 GHz, taken at 1.2 GHz
    "raspberry-pi-4": 11.889 / 4,
    "raspberry-pi-5": 30.249 / 4,
    "jetson-nano": 11.889 / 4 / 1.8 * 1.43,  # the Pi 4's width at 1.43 GHz
    "jetson-orin-nano": 30.249 / 4 / 2.4 * 1.5,  # the Pi 5's width at 1.5 GHz
    "edge-server": 655.90 / 64,
    "phone": 30.249 / 4 * 2 / 3,
}


def test_every_class_but_the_host_has_a_source_here() -> None:
    assert set(HARDWARE) == {"host", *PER_CORE}
    assert HARDWARE["host"] == HardwareClass("host", speed=None, cores=None, memory=None)


@pytest.mark.parametrize(("name", "gigaflops"), PER_CORE.items())
def test_speeds_follow_from_their_sources(name: str, gigaflops: float) -> None:
    assert HARDWARE[name].speed == pytest.approx(gigaflops / HOST, abs=0.006)


def test_a_class_by_name_is_the_class() -> None:
    assert HardwareSpec.model_validate("phone").resolve() is HARDWARE["phone"]
    assert HardwareSpec().resolve() is HARDWARE["host"]


def test_a_changed_class_keeps_what_was_not_changed() -> None:
    spec = HardwareSpec.model_validate({"class": "raspberry-pi-4", "speed": 0.2, "memory": "2gib"})
    assert spec.resolve() == HardwareClass("custom", speed=0.2, cores=4, memory=2 * GIB)


def test_an_image_changes_no_class() -> None:
    spec = HardwareSpec.model_validate({"class": "raspberry-pi-4", "image": "edgebed-node:arm64"})
    assert spec.resolve() is HARDWARE["raspberry-pi-4"]


def test_hardware_without_a_class_starts_from_the_host() -> None:
    assert HardwareSpec.model_validate({"cores": 0.5}).resolve() == HardwareClass("custom", cores=0.5)


@pytest.mark.parametrize(
    ("hardware", "quota"),
    [
        (HARDWARE["host"], None),
        (HARDWARE["raspberry-pi-4"], 4 * 0.16),
        (HardwareClass("custom", speed=0.5), 0.5),
        (HardwareClass("custom", cores=2), 2),
        (HardwareClass("custom", speed=2.0, cores=3), 3),
    ],
)
def test_a_slow_node_may_use_its_speed_of_each_of_its_cores(hardware: HardwareClass, quota: float | None) -> None:
    assert hardware.quota == quota


def test_a_real_board_is_as_fast_as_its_class() -> None:
    assert HardwareClass("raspberry-pi-4").expected_speed == HARDWARE["raspberry-pi-4"].expected_speed == 0.16
    assert HARDWARE["host"].expected_speed == HardwareClass("custom", cores=2).expected_speed == 1.0
    assert HardwareClass("custom", speed=0.3).expected_speed == 0.3
    assert set(BOARDS) == HARDWARE.keys() - {"host"}
