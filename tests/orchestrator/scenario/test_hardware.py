"""Hardware classes, and how a scenario changes them."""

from __future__ import annotations

import pytest

from orchestrator.scenario.hardware import GIB, HARDWARE, HardwareClass
from orchestrator.scenario.schema import HardwareSpec

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
