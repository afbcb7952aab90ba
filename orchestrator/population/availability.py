"""When the clients of a population are there, as a function of the seed, the client and the time.

Times are in seconds since the start of the training. Nothing is kept for each moment: a client's day is made from a
hash of seed, client and day whenever somebody asks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from node.assignment import derive_seed
from orchestrator.population.table import AvailabilityTable

HOUR = 3600.0
DAY = 24 * HOUR
NOON = 12 * HOUR
SHORTEST = 600.0  # s that a night lasts at least

Flags = NDArray[np.bool_]
Times = NDArray[np.float64]


class Availability(Protocol):
    """Who is there, and until when."""

    def there(self, t: float) -> Flags:
        """Whether each client is there at ``t``."""

    def until(self, client: int, t: float) -> float:
        """The end of the stay of a client that is there at ``t``; infinity if it has none."""

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Always:
    """All clients are always there."""

    clients: int

    def there(self, t: float) -> Flags:
        return np.ones(self.clients, bool)

    def until(self, client: int, t: float) -> float:
        return math.inf

    def to_json(self) -> dict[str, Any]:
        return {"always": {}}


@dataclass(frozen=True)
class FromTrace:
    """Each client behaves as a device of a trace, drawn once with replacement."""

    clients: int
    seed: int
    table: AvailabilityTable = field(repr=False)

    def there(self, t: float) -> Flags:
        table = self.table
        since: Any = t % self._common if self._common else (t % table.period)[table.device]
        now = np.zeros(table.devices, bool)
        now[table.device[(table.begin <= since) & (since < table.end)]] = True
        return now[self.device]

    def until(self, client: int, t: float) -> float:
        table = self.table
        device = self.device[client]
        period = float(table.period[device])
        first, last = np.searchsorted(table.device, [device, device + 1])
        begins = table.begin[first:last]
        ends = table.end[first:last]
        since = t % period  # as in `there`: another sum of rounded numbers may be in another stay
        passed = t - since
        place = int(np.searchsorted(begins, since, side="right")) - 1
        for _ in range(len(begins)):  # stays that follow one another without a gap are one
            end = passed + float(ends[place])
            place += 1
            if place == len(begins):
                passed = passed + period
                place = 0
            if passed + float(begins[place]) > end:
                return end
        return math.inf

    @cached_property
    def _common(self) -> float | None:
        """The period of all devices, if it is one: looks take half the time then."""
        period = self.table.period
        if (period == period[0]).all():
            return float(period[0])
        return None

    @cached_property
    def device(self) -> NDArray[np.int64]:
        """The device of each client."""
        random = np.random.default_rng(derive_seed(self.seed, "availability"))
        return random.integers(self.table.devices, size=self.clients)

    def to_json(self) -> dict[str, Any]:
        return {"trace": self.table.name, "sha256": self.table.sha256, "repeat": self.table.repeat} | effect(
            self.table, self.device
        )


def effect(table: AvailabilityTable, drawn: NDArray[np.int64]) -> dict[str, float | None]:
    """When the first of these devices is available, and when the first of them changes that; None: never."""
    used = np.zeros(table.devices, bool)
    used[drawn] = True
    stays = used[table.device]
    device = table.device[stays]
    begin = table.begin[stays]
    end = table.end[stays]
    here = np.zeros(table.devices, bool)
    here[device[begin == 0]] = True
    lasting = here[device] & (end == table.period[device])  # continues in the next period
    if here[used].all():
        times = np.concatenate([begin[begin > 0], end[~lasting]])
    else:
        times = np.zeros(1)
    return {key: float(found.min()) if len(found) else None for key, found in (("first", begin), ("change", times))}


@dataclass(frozen=True)
class DayAndNight:
    """Clients that are there while they are plugged in and on Wi-Fi.

    A share ``wifi`` of them has Wi-Fi where they charge; the others never come. A client is plugged in on a share of
    ``nights``, at ``bedtime`` by its own clock and for ``sleep``, both with the standard deviation ``spread``, and on a
    share of days for one more charge with an exponential length of mean ``day_charge``. Its day goes from noon to noon,
    and a charge ends at noon at the latest. ``time_zones``: shares of clients by seconds east of UTC. ``start``: the
    time of day in UTC at t = 0. Times are in seconds.

    The form is that of K. Bonawitz et al., "Towards Federated Learning at Scale: System Design", MLSys 2019: devices
    take part while idle, charging and on an unmetered network, and four times as many are there at night as by day.
    """

    clients: int
    seed: int
    start: float = 20 * HOUR
    time_zones: Mapping[float, float] = field(default_factory=lambda: {-6 * HOUR: 0.25, HOUR: 0.35, 8 * HOUR: 0.4})
    wifi: float = 0.9
    nights: float = 0.8
    bedtime: float = 23 * HOUR
    sleep: float = 7 * HOUR
    spread: float = 1.5 * HOUR
    day_charges: float = 0.3
    day_charge: float = 40 * 60.0

    def there(self, t: float) -> Flags:
        everybody = np.arange(self.clients)
        now, stays = self._stays(everybody, t)
        found = np.zeros(self.clients, bool)
        for begin, end in stays:
            found |= (begin <= now) & (now < end)
        return found

    def until(self, client: int, t: float) -> float:
        end = t
        for _ in range(100):  # stays that overlap or follow one another are one
            now, stays = self._stays(np.array([client]), end)
            latest = max((float(last[0]) for first, last in stays if first[0] <= now[0] < last[0]), default=None)
            if latest is None:
                return end
            end += max(latest - float(now[0]), 1e-3)
        return end

    def _stays(self, clients: NDArray[np.int64], t: float) -> tuple[Times, list[tuple[Times, Times]]]:
        """For each client: the seconds since noon of its clock, and the two stays of its day in the same seconds."""
        since = t + self.start + self._zones[clients] - NOON
        day = np.floor(since / DAY)

        def draw(purpose: str) -> Times:
            return hashed(derive_seed(self.seed, "availability", purpose), clients, day.astype(np.int64))

        bedtime = (self.bedtime - NOON) % DAY
        begin = np.clip(bedtime + self.spread * normal(draw("bed"), draw("bed-2")), 0, DAY)
        length = np.maximum(self.sleep + self.spread * normal(draw("sleep"), draw("sleep-2")), SHORTEST)
        plugged = (draw("night") < self.nights) & self._connected[clients]
        night = begin, np.where(plugged, np.minimum(begin + length, DAY), 0.0)
        begin = DAY * draw("when")
        length = -self.day_charge * np.log(draw("long"))
        charged = (draw("charge") < self.day_charges) & self._connected[clients]
        return since - DAY * day, [night, (begin, np.where(charged, np.minimum(begin + length, DAY), 0.0))]

    @cached_property
    def _zones(self) -> Times:
        """The seconds east of UTC of each client."""
        zones = np.array(list(self.time_zones))
        limits = np.cumsum(list(self.time_zones.values()))
        drawn = hashed(derive_seed(self.seed, "availability", "zone"), np.arange(self.clients))
        return zones[np.minimum(np.searchsorted(limits, drawn, side="right"), len(zones) - 1)]

    @cached_property
    def _connected(self) -> Flags:
        return hashed(derive_seed(self.seed, "availability", "wifi"), np.arange(self.clients)) < self.wifi

    def to_json(self) -> dict[str, Any]:
        settings = {key: value for key, value in asdict(self).items() if key not in ("clients", "seed")}
        zones = {f"{seconds / HOUR:g}h": share for seconds, share in self.time_zones.items()}
        return {"day-and-night": settings | {"time_zones": zones}}


def hashed(seed: int, clients: NDArray[np.int64], day: NDArray[np.int64] | int = 0) -> Times:
    """A number of (0, 1) for each client and day: SplitMix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014) of both."""
    with np.errstate(over="ignore"):
        x = clients.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        x = _mixed(x) + np.asarray(day).astype(np.uint64) * np.uint64(0xD1342543DE82EF95)
        return ((_mixed(x) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def normal(one: Times, other: Times) -> Times:
    """Standard normal numbers from two uniform ones (G. Box, M. Muller, 1958)."""
    found: Times = np.sqrt(-2 * np.log(one)) * np.cos(2 * np.pi * other)
    return found
