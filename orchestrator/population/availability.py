"""When the clients of a population are available, as a function of the seed, the client and the time.

Times are in seconds since the start of the training. Nothing is kept for each moment: a client's day is made from a
hash of seed, client and day at each request.
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

Bits = NDArray[np.uint64]
Flags = NDArray[np.bool_]
Times = NDArray[np.float64]
Clients = NDArray[np.int64]  # their numbers, or the number of the device of each


class Availability(Protocol):
    """Which clients are available, and until when."""

    def there(self, t: float) -> Flags:
        """Whether each client is available at ``t``."""

    def until(self, client: int, t: float) -> float:
        """The end of the stay of a client that is available at ``t``; infinity if it has none."""

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Always:
    """All clients are always available."""

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
        since: Any
        if self._common:
            since = t % self._common
        else:
            since = (t % table.period)[table.device]
        has_started = table.begin <= since
        is_on = has_started & (since < table.end)
        available = np.zeros(table.devices, bool)
        available[table.device[is_on]] = True
        return available[self.device]

    def until(self, client: int, t: float) -> float:
        table = self.table
        device = self.device[client]
        period = float(table.period[device])
        device_and_next = [device, device + 1]
        first, last = np.searchsorted(table.device, device_and_next)
        begins = table.begin[first:last]
        ends = table.end[first:last]
        since = t % period  # as in `there`: another sum of rounded numbers may be in another stay
        passed = t - since
        started = np.searchsorted(begins, since, side="right")
        place = int(started) - 1
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
    def device(self) -> Clients:
        """The device of each client."""
        seed = derive_seed(self.seed, "availability")
        random = np.random.default_rng(seed)
        return random.integers(self.table.devices, size=self.clients)

    def to_json(self) -> dict[str, Any]:
        table = self.table
        source = {
            "trace": table.name,
            "sha256": table.sha256,
            "repeat": table.repeat,
        }
        return source | effect(table, self.device)


def effect(
    table: AvailabilityTable,
    drawn: Clients,
) -> dict[str, float | None]:
    """When the first of these devices is available, and when the first of them changes that; None: never."""
    used = np.zeros(table.devices, bool)
    used[drawn] = True
    stays = used[table.device]
    device = table.device[stays]
    begin = table.begin[stays]
    end = table.end[stays]
    at_start = np.zeros(table.devices, bool)
    at_start[device[begin == 0]] = True
    to_the_end = end == table.period[device]
    lasting = at_start[device] & to_the_end  # continues in the next period
    if at_start[used].all():
        later_begins = begin[begin > 0]
        changes = np.concatenate([later_begins, end[~lasting]])
    else:
        changes = np.zeros(1)
    return {"first": _earliest(begin), "change": _earliest(changes)}


def _earliest(times: Times) -> float | None:
    if not len(times):
        return None
    return float(times.min())


def _default_time_zones() -> dict[float, float]:
    return {
        -6 * HOUR: 0.25,
        HOUR: 0.35,
        8 * HOUR: 0.4,
    }


Stays = tuple[Times, Times]
"""The start and the end of one stay of each of some clients."""


@dataclass(frozen=True)
class DayAndNight:
    """Clients that are available while they are plugged in and on Wi-Fi.

    A share ``wifi`` of them has Wi-Fi where they charge; the others are never available. A client is plugged in on a
    share of ``nights``, at ``bedtime`` by its own clock and for ``sleep``, both with the standard deviation ``spread``,
    and on a share of days for one more charge with an exponential length of mean ``day_charge``. Its day goes from noon
    to noon, and a charge ends at noon at the latest. ``time_zones``: shares of clients by seconds east of UTC.
    ``start``: the time of day in UTC at t = 0. Times are in seconds.

    The form is that of K. Bonawitz et al., "Towards Federated Learning at Scale: System Design", MLSys 2019: devices
    take part while idle, charging and on an unmetered network, and four times as many are available at night as by day.
    """

    clients: int
    seed: int
    start: float = 20 * HOUR
    time_zones: Mapping[float, float] = field(default_factory=_default_time_zones)
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
        available = np.zeros(self.clients, bool)
        for begin, end in stays:
            available |= (begin <= now) & (now < end)
        return available

    def until(self, client: int, t: float) -> float:
        end = t
        for _ in range(100):  # stays that overlap or follow one another are one
            only = np.array([client])
            now, stays = self._stays(only, end)
            moment = float(now[0])
            ends = []
            for begin_of_stay, end_of_stay in stays:
                if begin_of_stay[0] <= now[0] < end_of_stay[0]:
                    ends.append(float(end_of_stay[0]))
            if not ends:
                return end
            end += max(max(ends) - moment, 1e-3)
        return end

    def _stays(
        self,
        clients: Clients,
        t: float,
    ) -> tuple[Times, list[Stays]]:
        """For each client: the seconds since noon of its clock, and the two stays of its day in the same seconds."""
        since = t + self.start + self._zones[clients] - NOON
        day = np.floor(since / DAY)
        number_of_day = day.astype(np.int64)

        def draw(purpose: str) -> Times:
            seed = derive_seed(self.seed, "availability", purpose)
            return hashed(seed, clients, number_of_day)

        def stay(begin: Times, length: Times, happens: Flags) -> Stays:
            end = np.minimum(begin + length, DAY)
            return begin, np.where(happens, end, 0.0)

        connected = self._connected[clients]
        bedtime = (self.bedtime - NOON) % DAY
        delay = self.spread * normal(draw("bed"), draw("bed-2"))
        begin = np.clip(bedtime + delay, 0, DAY)
        difference = self.spread * normal(draw("sleep"), draw("sleep-2"))
        asleep = self.sleep + difference
        plugged = (draw("night") < self.nights) & connected
        length = np.maximum(asleep, SHORTEST)
        night = stay(begin, length, plugged)
        begin = DAY * draw("when")
        length = -self.day_charge * np.log(draw("long"))
        charged = (draw("charge") < self.day_charges) & connected
        now = since - DAY * day
        return now, [night, stay(begin, length, charged)]

    @cached_property
    def _zones(self) -> Times:
        """The seconds east of UTC of each client."""
        zones = np.array(list(self.time_zones))
        shares = list(self.time_zones.values())
        limits = np.cumsum(shares)
        seed = derive_seed(self.seed, "availability", "zone")
        drawn = hashed(seed, np.arange(self.clients))
        places = np.searchsorted(limits, drawn, side="right")
        last = len(zones) - 1  # the shares may sum to less than 1, by rounding
        return zones[np.minimum(places, last)]

    @cached_property
    def _connected(self) -> Flags:
        seed = derive_seed(self.seed, "availability", "wifi")
        everybody = np.arange(self.clients)
        return hashed(seed, everybody) < self.wifi

    def to_json(self) -> dict[str, Any]:
        settings = asdict(self)
        del settings["clients"]
        del settings["seed"]
        zones = {}
        for seconds, share in self.time_zones.items():
            zones[f"{seconds / HOUR:g}h"] = share
        settings["time_zones"] = zones
        return {"day-and-night": settings}


def hashed(
    seed: int,
    clients: Clients,
    day: Clients | int = 0,
) -> Times:
    """A number of (0, 1) for each client and day: SplitMix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014) of both."""
    with np.errstate(over="ignore"):
        x = clients.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = x + np.uint64(seed)
        of_day = np.asarray(day).astype(np.uint64)
        of_day = of_day * np.uint64(0xD1342543DE82EF95)
        x = _mixed(x) + of_day
        highest_53_bits = _mixed(x) >> np.uint64(11)
        as_float = highest_53_bits.astype(np.float64)
        return (as_float + 0.5) * 2.0**-53


def _mixed(x: Bits) -> Bits:
    x = x ^ (x >> np.uint64(30))
    x = x * np.uint64(0xBF58476D1CE4E5B9)
    x = x ^ (x >> np.uint64(27))
    x = x * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def normal(one: Times, other: Times) -> Times:
    """Standard normal numbers from two uniform ones (G. Box, M. Muller, 1958)."""
    squared_radius = -2 * np.log(one)
    radius = np.sqrt(squared_radius)
    angle = 2 * np.pi * other
    standard: Times = radius * np.cos(angle)
    return standard
