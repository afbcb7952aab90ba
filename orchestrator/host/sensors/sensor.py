"""A sensor as data: the files to read, and how their texts make a value. Reading is separate from this."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

TEMPERATURE = "temperature"  # °C
FREQUENCY = "frequency"  # Hz
MEMORY = "memory_available"  # bytes
THROTTLED = "throttled"  # 1 while it is so, otherwise 0
THROTTLE_EVENTS = "throttle_events"  # a count that only grows
POWER = "power"  # W
ENERGY = "energy"  # J, a count that only grows

PATIENCE = 1.0  # s for a command
_SWITCHED_OFF = "the part that it measures is switched off"
_FORBIDDEN = "run edgebed as root, or ask the administrator for the right to read it"
_REMEDIES = {
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EAGAIN: _SWITCHED_OFF,
    errno.ENODATA: _SWITCHED_OFF,
    errno.EIO: "the sensor does not answer its driver, the kernel's log may say why",
    errno.ENOENT: "it was available when the run started, so its driver was unloaded",
    errno.ETIMEDOUT: f"no answer within {PATIENCE:.0f} s",
}

Command = tuple[str, ...]
Place = Path | Command  # a file, or a command and its output is read instead
Value = Callable[[Sequence[str]], float]  # makes a figure of the texts of some places. ValueError if they make none.


@dataclass(frozen=True)
class Sensor:
    """One figure of this host.

    ``source``: the driver that gives it. ``scope``: the part that it is about: a zone, a rail, a package, a core.
    ``value`` makes the figure, in the unit of its quantity, of the texts of ``places``.
    ``partial``: the places that can be read are enough. ``wraps_at``: the J at which a counter of energy restarts,
    0 if that is not known.
    """

    quantity: str
    source: str
    scope: str
    places: tuple[Place, ...]
    value: Value
    partial: bool = False
    wraps_at: float = 0.0

    @property
    def name(self) -> tuple[str, str, str]:
        return self.quantity, self.source, self.scope


class Reading(NamedTuple):
    """What a sensor showed. ``value`` is None if it cannot be read; then ``detail`` says why, and the remedy."""

    quantity: str
    source: str
    scope: str
    value: float | None
    detail: str = ""


def read(sensors: Sequence[Sensor]) -> list[Reading]:
    """Read each sensor once, in their order. A file that several sensors share is read once."""
    places: dict[Place, None] = {}
    for sensor in sensors:
        places.update(dict.fromkeys(sensor.places))
    texts = {place: _text(place) for place in places}
    return [reading(sensor, texts) for sensor in sensors]


def reading(sensor: Sensor, texts: Mapping[Place, str | OSError]) -> Reading:
    """The reading of a sensor, given the texts of its places or the errors in their stead."""
    readable = []
    failed: tuple[Place, OSError] | None = None  # the first place that cannot be read
    for place in sensor.places:
        text = texts[place]
        if isinstance(text, str):
            readable.append(text)
        elif failed is None:
            failed = (place, text)
    if failed is not None and not (readable and sensor.partial):
        place, error = failed
        return Reading(*sensor.name, None, f"{_label(place)}: {why(error)}")
    try:
        value = sensor.value(readable)
    except ValueError as error:
        return Reading(*sensor.name, None, f"{_label(sensor.places[0])}: {error}")
    return Reading(*sensor.name, value)


def why(error: OSError) -> str:
    """Why a place cannot be read, and the remedy."""
    reason = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0)
    if remedy is None:
        return reason
    return f"{reason} ({remedy})"


def _text(place: Place) -> str | OSError:
    try:
        if isinstance(place, Path):
            return place.read_text(encoding="ascii", errors="replace")
        return _output(place)
    except OSError as error:
        return error


def _output(command: Command) -> str:
    """What a command prints. OSError if it fails, or takes too long."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(errno.ETIMEDOUT, "it hangs") from None
    if done.returncode != 0:
        output = done.stderr or done.stdout
        raise OSError(0, output.strip() or f"exit code {done.returncode}")
    return done.stdout


def _label(place: Place) -> str:
    if isinstance(place, Path):
        return str(place)
    return " ".join(place)
