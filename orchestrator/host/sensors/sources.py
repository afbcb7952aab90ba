"""The sensors of this host, as its kernel shows them. docs/reference/sensors.md lists the sources for users.

Documentation of the kernel, by path in its tree: ABI/testing/sysfs-class-thermal, hwmon/sysfs-interface.rst,
hwmon/ina3221.rst, admin-guide/pm/cpufreq.rst, power/powercap/powercap.rst, ABI/testing/sysfs-class-power,
ABI/testing/sysfs-devices-system-cpu (thermal_throttle); proc_meminfo(5).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.host.kernel.small_files import text_of
from orchestrator.host.sensors.sensor import (
    ENERGY,
    FREQUENCY,
    MEMORY,
    POWER,
    TEMPERATURE,
    THROTTLE_EVENTS,
    THROTTLED,
    Place,
    Sensor,
    Value,
)

FLAGS = ("under-voltage", "frequency capped", "throttled", "soft temperature limit")
"""The bits 0 to 3 of a Raspberry Pi's word get_throttled: so at this moment. Bits 16 to 19: so at any time since the
board started, or since the kernel's driver cleared them last (raspberrypi-hwmon.c, every 2 s)."""
EVER = 16
PLACEHOLDERS = ("PMIC-Die",)  # on Jetson boards with L4T 4.9, a constant 100 °C and no measurement
SWITCHED_OFF = -100.0  # °C: Jetson boards show -256 °C for a part that is switched off
OVER_CURRENT = {
    "1": "under-voltage",
    "2": "average over-current",
    "3": "instantaneous over-current",
}
"""The events of a Jetson Orin's soctherm_oc, each of which throttles it (Jetson Linux Developer Guide)."""
VCGENCMD = "usr/bin/vcgencmd"
PMIC_RAILS = "PMIC rails"


def discover(root: Path = Path("/")) -> list[Sensor]:
    """The sensors below ``root``, which holds sys, proc and usr. Sensors that would have one name are numbered."""
    sys = root / "sys"
    proc = root / "proc"
    found_sensors = [
        *thermal_zones(sys),
        *hwmon(sys),
        *ina3221x(sys),
        *cpufreq(sys),
        *throttle_counts(sys),
        *raspberry_pi(root),
        *rapl(sys),
        *batteries(sys),
        *memory(proc),
    ]
    seen: Counter[tuple[str, str, str]] = Counter()
    sensors = []
    for sensor in found_sensors:
        seen[sensor.name] += 1
        number = seen[sensor.name]
        if number > 1:
            sensor = replace(sensor, scope=f"{sensor.scope} ({number})")
        sensors.append(sensor)
    return sensors


def thermal_zones(sys: Path) -> Iterator[Sensor]:
    """class/thermal/thermal_zone*/temp, in millidegrees Celsius."""
    for zone in _numbered(sys / "class/thermal", "thermal_zone"):
        kind = text_of(zone / "type")
        if kind and kind not in PLACEHOLDERS:
            file = zone / "temp"
            yield Sensor(TEMPERATURE, "thermal", f"zone {kind}", (file,), _degrees)


def hwmon(sys: Path) -> Iterator[Sensor]:
    """class/hwmon/hwmon*: temp*_input (millidegrees), power*_input or power*_average (microwatts), the rails of an
    INA3221 (in*_input in mV, curr*_input in mA), and alarms of a Raspberry Pi and a Jetson Orin. Left out are the cores
    of a processor, because its package shows their maximum, and chips that repeat a thermal zone."""
    zones = set()
    for zone in _numbered(sys / "class/thermal", "thermal_zone"):
        kind = text_of(zone / "type") or ""
        zones.add(kind.replace("-", "_"))
    for chip in _numbered(sys / "class/hwmon", "hwmon"):
        name = text_of(chip / "name") or chip.name
        source = f"hwmon {name}"
        if name not in zones:
            yield from _temperatures(chip, source)
        yield from _powers(chip, source)
        if name == "ina3221":
            yield from _rails(chip, source)
        for number, file in _channels(chip, r"oc(\d+)_event_cnt"):
            scope = OVER_CURRENT.get(number, f"oc{number}")
            yield Sensor(THROTTLE_EVENTS, source, scope, (file,), _number)
        alarm = chip / "in0_lcrit_alarm"
        if name == "rpi_volt" and alarm.exists():
            yield Sensor(THROTTLED, source, FLAGS[0], (alarm,), _number)


def _temperatures(chip: Path, source: str) -> Iterator[Sensor]:
    for number, file in _channels(chip, r"temp(\d+)_input"):
        label = text_of(chip / f"temp{number}_label") or f"temp{number}"
        if not label.startswith("Core "):
            yield Sensor(TEMPERATURE, source, label, (file,), _degrees)


def _powers(chip: Path, source: str) -> Iterator[Sensor]:
    channels = list(_channels(chip, r"power(\d+)_(?:input|average)"))
    single = len(channels) == 1
    for number, file in channels:
        rail = _rail(chip, number, single=single)
        yield Sensor(POWER, source, f"rail {rail}", (file,), _micro)


def _rails(chip: Path, source: str) -> Iterator[Sensor]:
    """The rails of an INA3221 without a channel of power of their own."""
    for number, amperes in _channels(chip, r"curr(\d+)_input"):
        rail = text_of(chip / f"in{number}_label")
        volts = chip / f"in{number}_input"
        if rail in (None, "NC") or not volts.exists():
            continue
        power = chip / f"power{number}_input"
        if not power.exists():
            yield Sensor(POWER, source, f"rail {rail}", (volts, amperes), _volts_and_amperes)


def _rail(chip: Path, number: str, *, single: bool) -> str:
    """The name of a channel of power: its own label, else that of the chip, which names a ``single`` channel alone
    (an INA238 at the input of a Jetson AGX Thor: "VIN"), else the channel."""
    channel = f"power{number}"
    own = text_of(chip / f"{channel}_label") or text_of(chip / f"in{number}_label")
    if own:
        return own
    of_chip = text_of(chip / "label")
    if not of_chip:
        return channel
    if single:
        return of_chip
    return f"{of_chip} {channel}"


def ina3221x(sys: Path) -> Iterator[Sensor]:
    """The rails of Jetson boards with L4T 4.9, of NVIDIA's own driver: rail_name_*, and in_power*_input in mW."""
    labels = sys.glob("bus/i2c/drivers/ina3221x/*/iio[:_]device*/rail_name_*")
    for label in sorted(labels):
        number = label.name.removeprefix("rail_name_")
        power = label.with_name(f"in_power{number}_input")
        rail = text_of(label)
        if rail not in (None, "NC") and power.exists():
            yield Sensor(POWER, "ina3221x", f"rail {rail}", (power,), _milli)


def cpufreq(sys: Path) -> Iterator[Sensor]:
    """devices/system/cpu/cpufreq/policy*/scaling_cur_freq, in kHz: of all cores, the slowest and the fastest."""
    policies = _numbered(sys / "devices/system/cpu/cpufreq", "policy")
    files = [policy / "scaling_cur_freq" for policy in policies]
    existing = tuple(file for file in files if file.exists())
    if existing:
        yield Sensor(FREQUENCY, "cpufreq", "slowest core", existing, _slowest, partial=True)
        yield Sensor(FREQUENCY, "cpufreq", "fastest core", existing, _fastest, partial=True)


def _slowest(kilohertz: Iterable[str]) -> float:
    return 1e3 * min(map(int, kilohertz))


def _fastest(kilohertz: Iterable[str]) -> float:
    return 1e3 * max(map(int, kilohertz))


def throttle_counts(sys: Path) -> Iterator[Sensor]:
    """How often each package of an Intel processor reached its limit of temperature. All its processors count that."""
    packages: dict[str, Path] = {}
    for processor in _numbered(sys / "devices/system/cpu", "cpu"):
        file = processor / "thermal_throttle/package_throttle_count"
        if file.exists():
            package = text_of(processor / "topology/physical_package_id") or "0"
            packages.setdefault(package, file)
    for package, file in packages.items():
        scope = f"package-{package}"
        yield Sensor(THROTTLE_EVENTS, "thermal_throttle", scope, (file,), _number)


def raspberry_pi(root: Path) -> Iterator[Sensor]:
    """The firmware's word get_throttled, and the power of a Raspberry Pi 5. The kernel of a Raspberry Pi 4 shows the
    word in hexadecimal in soc:firmware/get_throttled. That of a Raspberry Pi 5 does not, and shows the rails of the
    PMIC to the command vcgencmd only (raspberrypi.com, documentation of vcgencmd)."""
    platform = root / "sys/devices/platform"
    words: list[Place] = sorted(platform.glob("soc*/soc:firmware/get_throttled"))
    command = root / VCGENCMD
    model = text_of(root / "proc/device-tree/model") or ""
    if command.exists() and re.match("Raspberry Pi (5|Compute Module 5)", model):
        if not words:
            words = [(str(command), "get_throttled")]
        rails: Place = (str(command), "pmic_read_adc")
        yield Sensor(POWER, "vcgencmd", PMIC_RAILS, (rails,), _pmic)
    for word in words[:1]:
        source = "firmware" if isinstance(word, Path) else "vcgencmd"
        for bit, flag in enumerate(FLAGS):
            yield Sensor(THROTTLED, source, flag, (word,), _bit(bit))
            yield Sensor(THROTTLE_EVENTS, source, flag, (word,), _bit(EVER + bit))


def rapl(sys: Path) -> Iterator[Sensor]:
    """class/powercap/intel-rapl:*, of Intel and AMD: energy_uj, which restarts at max_energy_range_uj. Only root may
    read it since Linux 5.10 (CVE-2020-8694). A zone inside another one is named after both: "package-0 dram".

    intel-rapl-mmio shows a package by other registers. Its zones are read only for packages that intel-rapl lacks."""
    shown: set[str] = set()
    for driver in ("intel-rapl", "intel-rapl-mmio"):
        of_driver: set[str] = set()
        zones = (sys / "class/powercap").glob(f"{driver}:*")
        for zone in sorted(zones):
            name = _zone_name(zone)
            energy = zone / "energy_uj"
            if name in shown or not energy.exists():
                continue
            of_driver.add(name)
            wraps_at = 0.0
            top = text_of(zone / "max_energy_range_uj") or ""
            if top.isdecimal():
                wraps_at = int(top) / 1e6
            yield Sensor(ENERGY, "rapl", name, (energy,), _micro, wraps_at=wraps_at)
        shown |= of_driver


def _zone_name(zone: Path) -> str:
    """The names of the zones that a powercap zone is in, and its own: intel-rapl:0:2 is "package-0 dram"."""
    driver, *numbers = zone.name.split(":")
    names = []
    for depth in range(1, len(numbers) + 1):
        outer = ":".join([driver, *numbers[:depth]])
        part = zone.with_name(outer)
        names.append(text_of(part / "name") or part.name)
    return " ".join(names)


def batteries(sys: Path) -> Iterator[Sensor]:
    """class/power_supply/*, of type Battery: power_now in µW, or voltage_now in µV and current_now in µA. Negative
    unless the battery is discharged: then it is not what the host uses."""
    supplies = (sys / "class/power_supply").glob("*")
    for supply in sorted(supplies):
        status = supply / "status"
        if text_of(supply / "type") != "Battery" or not status.exists():
            continue
        watts = (supply / "power_now",)
        volts_and_amperes = (supply / "voltage_now", supply / "current_now")
        for files in (watts, volts_and_amperes):
            if all(file.exists() for file in files):
                source = f"power_supply {supply.name}"
                yield Sensor(POWER, source, "battery", (status, *files), _battery)
                break


def memory(proc: Path) -> Iterator[Sensor]:
    """MemAvailable of meminfo, in kB of 1024 bytes: what programs can still have without swapping."""
    file = proc / "meminfo"
    if file.exists():
        yield Sensor(MEMORY, "meminfo", "host", (file,), _available)


def _degrees(texts: Sequence[str]) -> float:
    value = int(texts[0]) / 1e3
    if value <= SWITCHED_OFF:
        raise ValueError("the part that it measures is switched off")
    return value


def _divided_by(parts: float) -> Value:
    return lambda texts: int(texts[0]) / parts


_number = _divided_by(1)
_milli = _divided_by(1e3)
_micro = _divided_by(1e6)


def _volts_and_amperes(texts: Sequence[str]) -> float:
    """W of mV and mA."""
    millivolts, milliamperes = map(int, texts)
    return (millivolts / 1e3) * (milliamperes / 1e3)


def _bit(number: int) -> Value:
    """A bit of a hexadecimal word: "50005", or "throttled=0x50005" as vcgencmd prints it."""

    def value(texts: Sequence[str]) -> float:
        word = texts[0].strip().rpartition("=")[2]
        bits = int(word, 16)
        return float(bits >> number & 1)

    return value


def _battery(texts: Sequence[str]) -> float:
    status, *numbers = texts
    values = [abs(int(text)) / 1e6 for text in numbers]  # drivers differ in the sign
    power = values[0]
    if len(values) > 1:
        power = values[0] * values[1]
    if status.strip() == "Discharging":
        return power
    return 0.0 - power


def _available(texts: Sequence[str]) -> float:
    match = re.search(r"^MemAvailable:\s+(\d+) kB", texts[0], re.MULTILINE)
    if match is None:
        raise ValueError("this kernel does not report MemAvailable")
    return int(match[1]) * 1024.0


def _pmic(texts: Sequence[str]) -> float:
    """W of all rails that have a current and a voltage: "VDD_CORE_A current(7)=2.5A", "VDD_CORE_V volt(15)=0.72V"."""
    amperes = dict(re.findall(r"(\w+)_A current\(\d+\)=([\d.]+)A", texts[0]))
    volts = dict(re.findall(r"(\w+)_V volt\(\d+\)=([\d.]+)V", texts[0]))
    rails = amperes.keys() & volts.keys()
    if not rails:
        raise ValueError("it reports no rail with a current and a voltage")
    watts = []
    for rail in sorted(rails):
        watts.append(float(amperes[rail]) * float(volts[rail]))
    return sum(watts)


def _numbered(folder: Path, prefix: str) -> list[Path]:
    """The folders prefix0, prefix1, ... in the order of their numbers."""
    numbers: dict[Path, int] = {}
    for path in folder.glob(f"{prefix}*"):
        number = path.name.removeprefix(prefix)
        if number.isdecimal():
            numbers[path] = int(number)
    return sorted(numbers, key=lambda path: numbers[path])


def _channels(chip: Path, pattern: str) -> Iterable[tuple[str, Path]]:
    """The files of a chip with such a name, one for each number, in the order of the numbers."""
    files: dict[str, Path] = {}
    for file in sorted(chip.iterdir(), reverse=True):  # "power1_input" rather than "power1_average"
        match = re.fullmatch(pattern, file.name)
        if match:
            files.setdefault(match[1], file)
    numbers = sorted(files, key=int)
    return [(number, files[number]) for number in numbers]
