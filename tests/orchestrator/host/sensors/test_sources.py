from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.host.sensors.sensor import read
from orchestrator.host.sensors.sources import FLAGS, discover
from tests.orchestrator.host.sensors import trees

MEMORY = ("memory_available", "meminfo", "host", 6000000 * 1024.0)


def told(root: Path) -> set[tuple[str, str, str, float | None]]:
    """What the sensors below a folder show, without the details."""
    return {(*each[:3], each.value if each.value is None else round(each.value, 6)) for each in read(discover(root))}


def flags(source: str, now: int, ever: int) -> set[tuple[str, str, str, float | None]]:
    """The flags of a Raspberry Pi, by the bits of both halves of its word."""
    return {("throttled", source, flag, float(now >> bit & 1)) for bit, flag in enumerate(FLAGS)} | {
        ("throttle_events", source, flag, float(ever >> bit & 1)) for bit, flag in enumerate(FLAGS)
    }


def test_a_raspberry_pi_4(tmp_path: Path) -> None:
    assert told(trees.raspberry_pi_4(tmp_path)) == {
        MEMORY,
        ("temperature", "thermal", "zone cpu-thermal", 48.312),
        ("throttled", "hwmon rpi_volt", "under-voltage", 1.0),
        ("frequency", "cpufreq", "slowest core", 1.5e9),
        ("frequency", "cpufreq", "fastest core", 1.5e9),
        *flags("firmware", 0x5, 0x5),
    }


@pytest.mark.parametrize(("word", "now", "ever"), [("0", 0, 0), ("2", 2, 0), ("80000", 0, 8), ("f000f", 15, 15)])
def test_the_word_of_a_raspberry_pi(tmp_path: Path, word: str, now: int, ever: int) -> None:
    assert flags("firmware", now, ever) <= told(trees.raspberry_pi_4(tmp_path, word))


def test_a_raspberry_pi_5(tmp_path: Path) -> None:
    assert told(trees.raspberry_pi_5(tmp_path)) == {
        MEMORY,
        ("temperature", "thermal", "zone cpu-thermal", 55.1),
        ("temperature", "hwmon rp1_adc", "temp1", 53.9),
        ("throttled", "hwmon rpi_volt", "under-voltage", 0.0),
        ("frequency", "cpufreq", "slowest core", 2.4e9),
        ("frequency", "cpufreq", "fastest core", 2.4e9),
        ("power", "vcgencmd", "PMIC rails", round(trees.PMIC_WATTS, 6)),
        *flags("vcgencmd", 0x8, 0x8),
    }


def test_a_jetson_orin_nano(tmp_path: Path) -> None:
    assert told(trees.jetson_orin_nano(tmp_path)) == {
        MEMORY,
        ("temperature", "thermal", "zone cpu-thermal", 52.5),
        ("temperature", "thermal", "zone gpu-thermal", 50.6),
        ("temperature", "thermal", "zone cv0-thermal", 0.0),
        ("temperature", "thermal", "zone tj-thermal", 52.6),
        ("power", "hwmon ina3221", "rail VDD_IN", round(4.984 * 1.856, 6)),
        ("power", "hwmon ina3221", "rail VDD_CPU_GPU_CV", round(4.984 * 0.52, 6)),
        ("power", "hwmon ina3221", "rail VDD_SOC", round(4.984 * 0.304, 6)),
        ("throttle_events", "hwmon soctherm_oc", "under-voltage", 0.0),
        ("throttle_events", "hwmon soctherm_oc", "average over-current", 15.0),
        ("throttle_events", "hwmon soctherm_oc", "instantaneous over-current", 37.0),
        ("frequency", "cpufreq", "slowest core", 729.6e6),
        ("frequency", "cpufreq", "fastest core", 1510.4e6),
    }


def test_a_chip_that_reports_power_itself_is_not_multiplied_once_more(tmp_path: Path) -> None:
    chip = "sys/class/hwmon/hwmon1"
    trees.write(trees.jetson_orin_nano(tmp_path), {f"{chip}/power1_input": 9250304, f"{chip}/power1_average": 1})
    rails = {(scope, value) for quantity, _, scope, value in told(tmp_path) if quantity == "power"}
    assert ("rail VDD_IN", 9.250304) in rails
    assert len(rails) == 3


def test_a_jetson_nano_with_the_old_driver(tmp_path: Path) -> None:
    assert told(trees.jetson_nano(tmp_path)) == {
        MEMORY,
        ("temperature", "thermal", "zone AO-therm", 41.5),
        ("temperature", "thermal", "zone CPU-therm", 34.0),
        ("temperature", "thermal", "zone GPU-therm", 31.0),
        ("temperature", "thermal", "zone PLL-therm", 31.5),  # and PMIC-Die is no measurement
        ("power", "ina3221x", "rail POM_5V_IN", 1.75),
        ("power", "ina3221x", "rail POM_5V_GPU", 0.0),
        ("power", "ina3221x", "rail POM_5V_CPU", 0.366),
        ("frequency", "cpufreq", "slowest core", 1.479e9),
        ("frequency", "cpufreq", "fastest core", 1.479e9),
    }


def test_a_jetson_agx_thor(tmp_path: Path) -> None:
    """The channel of the INA238 has the label of its chip; each rail of the INA3221 has its own."""
    assert told(trees.jetson_agx_thor(tmp_path)) == {
        MEMORY,
        ("power", "hwmon ina238", "rail VIN", 23.0),
        ("power", "hwmon ina3221", "rail VDD_GPU", 2.4),
        ("power", "hwmon ina3221", "rail VDD_CPU_SOC_MSS", 6.48),
        ("power", "hwmon ina3221", "rail VIN_SYS_5V0", 6.52),
    }


def test_the_label_of_a_chip_with_several_channels_names_none_of_them_alone(tmp_path: Path) -> None:
    trees.write(trees.jetson_agx_thor(tmp_path), {"sys/class/hwmon/hwmon4/power2_input": 1_000_000})
    scopes = {scope for _, source, scope, _ in told(tmp_path) if source == "hwmon ina238"}
    assert scopes == {"rail VIN power1", "rail VIN power2"}


def test_an_intel_laptop(tmp_path: Path) -> None:
    assert told(trees.intel_laptop(tmp_path)) == {
        MEMORY,
        ("temperature", "thermal", "zone acpitz", 27.8),
        ("temperature", "thermal", "zone x86_pkg_temp", 61.0),
        ("temperature", "hwmon coretemp", "Package id 0", 61.0),
        ("frequency", "cpufreq", "slowest core", 4e8),
        ("frequency", "cpufreq", "fastest core", 3.9e9),
        ("throttle_events", "thermal_throttle", "package-0", 12.0),
        ("energy", "rapl", "package-0", 1000.0),
        ("energy", "rapl", "package-0 core", 700.0),
        ("energy", "rapl", "package-0 uncore", 50.0),
        ("energy", "rapl", "package-0 dram", 200.0),
        ("energy", "rapl", "psys", 3000.0),
        ("power", "power_supply BAT0", "battery", 18.0),  # 12 V and 1.5 A
    }
    assert {sensor.wraps_at for sensor in discover(tmp_path) if sensor.source == "rapl"} == {trees.RANGE}


def test_a_package_that_only_its_mapped_registers_show(tmp_path: Path) -> None:
    """package-0 is counted once, and package-1 too, which intel-rapl does not show."""
    files = {"name": "package-1", "energy_uj": 2_000_000}
    folder = "sys/class/powercap/intel-rapl-mmio:1"
    trees.write(trees.intel_laptop(tmp_path), {f"{folder}/{name}": content for name, content in files.items()})
    packages = [(scope, value) for _, source, scope, value in told(tmp_path) if source == "rapl" and " " not in scope]
    assert sorted(packages) == [("package-0", 1000.0), ("package-1", 2.0), ("psys", 3000.0)]


@pytest.mark.parametrize(("status", "watts"), [("Charging", -18.0), ("Full", -18.0), ("Discharging", 18.0)])
def test_a_battery_that_is_charged(tmp_path: Path, status: str, watts: float) -> None:
    trees.write(trees.intel_laptop(tmp_path), {"sys/class/power_supply/BAT0/status": status})
    assert ("power", "power_supply BAT0", "battery", watts) in told(tmp_path)


def test_a_virtual_machine(tmp_path: Path) -> None:
    assert told(trees.virtual_machine(tmp_path)) == {MEMORY}


def test_nothing_at_all(tmp_path: Path) -> None:
    assert discover(tmp_path) == []


def test_sensors_of_one_name_are_numbered(tmp_path: Path) -> None:
    files: dict[str, object] = {}
    for number in (0, 1, 10):
        files |= {
            f"sys/class/hwmon/hwmon{number}/name": "nvme",
            f"sys/class/hwmon/hwmon{number}/temp1_input": 30000 + number,
        }
    trees.write(tmp_path, files)
    assert {(scope, value) for _, _, scope, value in told(tmp_path)} == {
        ("temp1", 30.0),
        ("temp1 (2)", 30.001),
        ("temp1 (3)", 30.01),
    }


def test_this_host_can_be_read() -> None:
    sensors = discover()
    assert "memory_available" in {sensor.quantity for sensor in sensors}
    assert len({sensor.name for sensor in sensors}) == len(sensors)
    assert len(read(sensors)) == len(sensors)
