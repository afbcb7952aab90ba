"""Writes what the kernels of some hosts show, below a folder: sys, proc and usr/bin.

The names of files, their units and the meaning of bits are those of the kernel's documentation and sources (see
`orchestrator.host.sensors.sources`). The values are of the kind that such hosts show. Where one is known from
elsewhere, its place says so. Nobody captured a whole tree of one board.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

MEMINFO = "MemTotal:        8133252 kB\nMemFree:          512000 kB\nMemAvailable:    6000000 kB\n"


def write(root: Path, files: Mapping[str, object]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def _frequencies(*kilohertz: int) -> dict[str, object]:
    folder = "sys/devices/system/cpu/cpufreq"
    return {f"{folder}/policy{number}/scaling_cur_freq": each for number, each in enumerate(kilohertz)}


def _zones(degrees: Mapping[str, float]) -> dict[str, object]:
    """Thermal zones by type, in degrees Celsius."""
    files: dict[str, object] = {}
    for number, (kind, value) in enumerate(degrees.items()):
        folder = f"sys/class/thermal/thermal_zone{number}"
        files |= {f"{folder}/type": kind, f"{folder}/temp": round(1000 * value)}
    return files


def raspberry_pi_4(root: Path, throttled: str = "50005") -> Path:
    """drivers/firmware/raspberrypi.c of Raspberry Pi's kernel writes the word with "%x". 50005 says under-voltage and
    throttled, now and before."""
    return write(
        root,
        {
            "proc/meminfo": MEMINFO,
            "proc/device-tree/model": "Raspberry Pi 4 Model B Rev 1.4\0",
            **_zones({"cpu-thermal": 48.312}),
            "sys/class/hwmon/hwmon0/name": "cpu_thermal",  # the thermal zone once more
            "sys/class/hwmon/hwmon0/temp1_input": 48312,
            "sys/class/hwmon/hwmon1/name": "rpi_volt",
            "sys/class/hwmon/hwmon1/in0_lcrit_alarm": 1,
            "sys/devices/platform/soc/soc:firmware/get_throttled": throttled,
            **_frequencies(1500000),
        },
    )


PMIC = """\
   3V3_SYS_A current(1)=0.10000000A
  VDD_CORE_A current(7)=2.00000000A
   3V3_SYS_V volt(9)=3.30000000V
  VDD_CORE_V volt(15)=0.85000000V
     EXT5V_V volt(24)=5.09066000V
      BATT_V volt(25)=0.00000000V"""
"""The form of `vcgencmd pmic_read_adc`. EXT5V and BATT have a voltage only."""
PMIC_WATTS = 0.1 * 3.3 + 2.0 * 0.85
VCGENCMD = f"#!/bin/sh\ncase $1 in get_throttled) echo throttled=0x80008;; *) echo '{PMIC}';; esac"


def raspberry_pi_5(root: Path) -> Path:
    """Its kernel has no file get_throttled. Its vcgencmd is a script here."""
    write(
        root,
        {
            "proc/meminfo": MEMINFO,
            "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0",
            **_zones({"cpu-thermal": 55.1}),
            "sys/class/hwmon/hwmon0/name": "cpu_thermal",
            "sys/class/hwmon/hwmon0/temp1_input": 55100,
            "sys/class/hwmon/hwmon1/name": "rp1_adc",
            "sys/class/hwmon/hwmon1/temp1_input": 53900,
            "sys/class/hwmon/hwmon2/name": "pwmfan",
            "sys/class/hwmon/hwmon3/name": "rpi_volt",
            "sys/class/hwmon/hwmon3/in0_lcrit_alarm": 0,
            **_frequencies(2400000),
            "usr/bin/vcgencmd": VCGENCMD,
        },
    )
    (root / "usr/bin/vcgencmd").chmod(0o755)
    return root


def jetson_orin_nano(root: Path) -> Path:
    """The rails are those of tegra234-p3767.dtsi, the channels of sums those of ina3221.rst. On the board, cv0 is
    switched off and its temperature cannot be read; a file cannot show that."""
    chip, events = "sys/class/hwmon/hwmon1", "sys/class/hwmon/hwmon3"
    rails = {1: ("VDD_IN", 4984, 1856), 2: ("VDD_CPU_GPU_CV", 4984, 520), 3: ("VDD_SOC", 4984, 304)}
    files: dict[str, object] = {f"{chip}/name": "ina3221", f"{chip}/in7_label": "sum of shunt voltages"}
    for number, (rail, millivolts, milliamperes) in rails.items():
        files |= {f"{chip}/in{number}_label": rail, f"{chip}/in{number}_input": millivolts}
        files |= {f"{chip}/curr{number}_input": milliamperes}
    files |= {f"{chip}/in7_input": 13400, f"{chip}/curr4_input": 2680}
    return write(
        root,
        {
            "proc/meminfo": MEMINFO,
            **_zones({"cpu-thermal": 52.5, "gpu-thermal": 50.6, "cv0-thermal": 0.0, "tj-thermal": 52.6}),
            "sys/class/hwmon/hwmon0/name": "pwmfan",
            "dev/nvhost-gpu": "",
            "dev/nvmap": "",
            **files,
            f"{events}/name": "soctherm_oc",
            **{f"{events}/oc{number}_event_cnt": count for number, count in ((1, 0), (2, 15), (3, 37))},
            **_frequencies(1510400, 729600),
        },
    )


def jetson_nano(root: Path) -> Path:
    """L4T 4.9: rail_name_* and in_power*_input of NVIDIA's driver ina3221x, in mW. The power is that of a line of
    tegrastats on this board, the constant 100 °C of PMIC-Die is what its kernel shows."""
    device = "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0"
    rails = {0: ("POM_5V_IN", 1750), 1: ("POM_5V_GPU", 0), 2: ("POM_5V_CPU", 366)}
    files = {f"{device}/rail_name_{number}": rail for number, (rail, _) in rails.items()}
    powers = {f"{device}/in_power{number}_input": power for number, (_, power) in rails.items()}
    zones = _zones({"AO-therm": 41.5, "CPU-therm": 34.0, "GPU-therm": 31.0, "PLL-therm": 31.5, "PMIC-Die": 100.0})
    return write(root, {"proc/meminfo": MEMINFO, **zones, **files, **powers, **_frequencies(1479000)})


def jetson_agx_thor(root: Path) -> Path:
    """The rails of an INA3221, and an INA238 with the input of the carrier board in its only channel, which has no
    label of its own: the chip has one (sysfs-class-hwmon of the kernel: "label")."""
    rails, board = "sys/class/hwmon/hwmon3", "sys/class/hwmon/hwmon4"
    files: dict[str, object] = {f"{rails}/name": "ina3221"}
    channels = (("VDD_GPU", 12000, 200), ("VDD_CPU_SOC_MSS", 12000, 540), ("VIN_SYS_5V0", 5000, 1304))
    for number, (rail, millivolts, milliamperes) in enumerate(channels, start=1):
        files[f"{rails}/in{number}_label"] = rail
        files[f"{rails}/in{number}_input"] = millivolts
        files[f"{rails}/curr{number}_input"] = milliamperes
    files |= {f"{board}/name": "ina238", f"{board}/label": "VIN", f"{board}/power1_input": 23_000_000}
    return write(root, {"proc/meminfo": MEMINFO, **files})


RANGE = 262143.328850  # J, a max_energy_range_uj of many Intel processors


def intel_laptop(root: Path) -> Path:
    """The zones of powercap.rst; psys is a zone beside the package; intel-rapl-mmio shows the package a second time."""
    zones = {
        "intel-rapl:0": ("package-0", 1_000_000_000),
        "intel-rapl:0:0": ("core", 700_000_000),
        "intel-rapl:0:1": ("uncore", 50_000_000),
        "intel-rapl:0:2": ("dram", 200_000_000),
        "intel-rapl:1": ("psys", 3_000_000_000),
        "intel-rapl-mmio:0": ("package-0", 5),
    }
    files: dict[str, object] = {"sys/class/powercap/intel-rapl/enabled": 1}
    for zone, (name, microjoules) in zones.items():
        folder = f"sys/class/powercap/{zone}"
        files |= {f"{folder}/name": name, f"{folder}/energy_uj": microjoules}
        files |= {f"{folder}/max_energy_range_uj": round(RANGE * 1e6)}
    chip, battery = "sys/class/hwmon/hwmon4", "sys/class/power_supply/BAT0"
    labels = {1: ("Package id 0", 61000), 2: ("Core 0", 61000), 3: ("Core 1", 58000)}
    for number, (label, temperature) in labels.items():
        files |= {f"{chip}/temp{number}_label": label, f"{chip}/temp{number}_input": temperature}
    cores = [f"sys/devices/system/cpu/cpu{number}" for number in range(2)]
    return write(
        root,
        {
            "proc/meminfo": MEMINFO,
            **_zones({"acpitz": 27.8, "x86_pkg_temp": 61.0}),
            "sys/class/hwmon/hwmon0/name": "acpitz",
            "sys/class/hwmon/hwmon0/temp1_input": 27800,
            f"{chip}/name": "coretemp",
            **files,
            **{f"{core}/thermal_throttle/package_throttle_count": 12 for core in cores},
            **{f"{core}/topology/physical_package_id": 0 for core in cores},
            "sys/class/power_supply/AC/type": "Mains",
            "sys/class/power_supply/AC/online": 0,
            f"{battery}/type": "Battery",
            f"{battery}/status": "Discharging",
            f"{battery}/voltage_now": 12_000_000,
            f"{battery}/current_now": 1_500_000,
            **_frequencies(3900000, 800000, 400000, 2100000),
        },
    )


INFORMATION = """\
Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 10
GPU UUID: \t GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b
Bus Type: \t PCIe
Device Minor: \t 5"""
"""Of a machine with eight (topofmind.dev/notes/sysadmin/gpu); some lines are left out."""


def with_nvidia_cards(root: Path, number: int) -> Path:
    """The driver's files in /proc, and the device files beside them that are no cards."""
    cards = [f"proc/driver/nvidia/gpus/0000:{place:02x}:00.0/information" for place in range(number)]
    devices = [f"dev/nvidia{place}" for place in range(number)]
    return write(root, dict.fromkeys(cards, INFORMATION) | dict.fromkeys([*devices, "dev/nvidiactl"], ""))


def virtual_machine(root: Path) -> Path:
    """Folders of classes without a device in them."""
    for folder in ("thermal", "power_supply"):
        (root / "sys/class" / folder).mkdir(parents=True)
    (root / "sys/devices/system/cpu/cpufreq").mkdir(parents=True)
    return write(root, {"proc/meminfo": MEMINFO})
