from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from orchestrator.host.sensors.sensor import Place, Sensor, read, reading
from orchestrator.host.sensors.sources import discover
from tests.orchestrator.host.sensors import trees


def texts(root: Path, fails: str, code: int) -> dict[Place, str | OSError]:
    """The texts of all files below a folder; reading files of one name fails, which root could not show otherwise."""
    return {
        path: OSError(code, os.strerror(code)) if path.match(fails) else path.read_text()
        for path in root.rglob("*")
        if path.is_file()
    }


def test_an_intel_laptop_not_as_root(tmp_path: Path) -> None:
    """energy_uj has mode 0400 since Linux 5.10, and max_energy_range_uj 0444."""
    found = texts(trees.intel_laptop(tmp_path), "energy_uj", errno.EACCES)
    rapl = [reading(sensor, found) for sensor in discover(tmp_path) if sensor.source == "rapl"]
    assert [each.value for each in rapl] == [None] * 5
    path = tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj"

    assert rapl[0].detail.startswith(f"{path}: Permission denied (run edgebed")


def test_a_part_of_a_jetson_that_is_switched_off(tmp_path: Path) -> None:
    found = texts(trees.jetson_orin_nano(tmp_path), "thermal_zone2/temp", errno.EAGAIN)
    (zone,) = (reading(each, found) for each in discover(tmp_path) if each.scope == "zone cv0-thermal")
    assert zone.value is None
    assert zone.detail.endswith("is switched off)")


def test_a_temperature_of_minus_256_degrees_is_none(tmp_path: Path) -> None:
    trees.write(trees.jetson_orin_nano(tmp_path), {"sys/class/thermal/thermal_zone2/temp": -256000})
    (zone,) = (each for each in read(discover(tmp_path)) if each.scope == "zone cv0-thermal")
    assert zone.value is None
    assert zone.detail.endswith("is switched off")


@pytest.mark.parametrize("code", [errno.EIO, errno.ENODATA])
def test_a_sensor_that_does_not_answer(tmp_path: Path, code: int) -> None:
    found = texts(trees.jetson_orin_nano(tmp_path), "curr1_input", code)
    (rail,) = (reading(each, found) for each in discover(tmp_path) if each.scope == "rail VDD_IN")
    assert rail.value is None
    assert f"curr1_input: {os.strerror(code)} (" in rail.detail


def test_what_is_no_number(tmp_path: Path) -> None:
    trees.write(trees.raspberry_pi_4(tmp_path), {"sys/class/thermal/thermal_zone0/temp": "hot"})
    (zone,) = (each for each in read(discover(tmp_path)) if each.quantity == "temperature")
    assert zone.value is None
    assert "thermal_zone0/temp: invalid literal" in zone.detail


def test_a_core_that_is_switched_off_leaves_the_others(tmp_path: Path) -> None:
    sensors = discover(trees.intel_laptop(tmp_path))
    (tmp_path / "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq").unlink()
    fastest = {each.scope: each.value for each in read(sensors) if each.quantity == "frequency"}
    assert fastest == {"slowest core": 4e8, "fastest core": 2.1e9}


def command(*words: str) -> Sensor:
    return Sensor("power", "test", "all", (words,), lambda found: float(found[0]))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("/bin/sh", "-c", "echo VCHI initialization failed >&2; exit 255"), "VCHI initialization failed"),
        (("/bin/sh", "-c", "exit 3"), "exit code 3"),
        (("/no/such/command",), "No such file or directory"),
    ],
)
def test_a_command_that_fails(words: tuple[str, ...], said: str) -> None:
    (found,) = read([command(*words)])
    assert found.value is None
    assert said in found.detail.partition(": ")[2]


def test_a_command_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.host.sensors.sensor.PATIENCE", 0.05)
    (found,) = read([command("/bin/sleep", "100")])
    assert found.value is None
    assert "no answer within" in found.detail


def test_what_several_sensors_share_is_read_once(tmp_path: Path) -> None:
    shared = command("/bin/sh", "-c", f"echo x >> {tmp_path}/calls; echo 3")
    assert [each.value for each in read([shared, shared, shared])] == [3.0, 3.0, 3.0]
    assert (tmp_path / "calls").read_text() == "x\n"
