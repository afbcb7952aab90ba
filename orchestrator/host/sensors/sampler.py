"""Reads the sensors again and again, and keeps the readings that say something new."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.host.sensors.sensor import ENERGY, FREQUENCY, MEMORY, POWER, TEMPERATURE, Reading, Sensor, read

# By quantity: what a change must be at least, as a fixed amount and as a share of the value. Of other quantities, each
# change counts.
ENOUGH = {TEMPERATURE: (0.5, 0.0), FREQUENCY: (0.0, 0.02), MEMORY: (0.0, 0.01), POWER: (0.01, 0.005)}


class Sampler:
    """The sensors of this host. A figure stays as it was until the next reading that is kept: curves are steps."""

    def __init__(self, sensors: Sequence[Sensor]) -> None:
        self._sensors = sensors
        self._kept: dict[tuple[str, str, str], Reading] = {}
        self._raw: dict[tuple[str, str, str], float] = {}  # J, as a counter showed it
        self._total: dict[tuple[str, str, str], float] = {}  # J since the first reading

    def sample(self, *, everything: bool = False) -> list[Reading]:
        """Read all sensors; return those that changed enough, or all. One that cannot be read is returned once."""
        new = []
        for sensor, found in zip(self._sensors, read(self._sensors), strict=True):
            current = self._grown(sensor, found)
            before = self._kept.get(sensor.name)
            if before is None or differs(before, current) or (everything and current.value is not None):
                self._kept[sensor.name] = current
                new.append(current)
        return new

    def unread(self, detail: str) -> list[Reading]:
        """Readings of all sensors that say why none of them can be read. Touches none of them."""
        return [Reading(*sensor.name, None, detail) for sensor in self._sensors]

    def _grown(self, sensor: Sensor, found: Reading) -> Reading:
        """The reading, with the energy since the first reading in place of what the counter shows."""
        if sensor.quantity != ENERGY or found.value is None:
            return found
        before = self._raw.get(sensor.name, found.value)
        self._raw[sensor.name] = found.value
        self._total[sensor.name] = self._total.get(sensor.name, 0.0) + growth(before, found.value, sensor.wraps_at)
        return found._replace(value=self._total[sensor.name])


def growth(before: float, now: float, wraps_at: float) -> float:
    """What a counter has grown by. A counter that fell has reached ``wraps_at`` and begun anew (powercap.rst,
    max_energy_range_uj). If that is not known, what it has counted since is all that is known."""
    if now >= before:
        return now - before
    return wraps_at - before + now if wraps_at >= before else now


def differs(before: Reading, now: Reading) -> bool:
    """Whether a reading is worth a row after the one that was last kept."""
    if before.value is None or now.value is None:
        return (before.value is None) != (now.value is None)
    amount, share = ENOUGH.get(now.quantity, (0.0, 0.0))
    change = abs(now.value - before.value)
    return change > 0 and change >= max(amount, share * abs(before.value))
