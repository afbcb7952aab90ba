"""The clients of a run: the numbers that each has drawn, and the settings that a plan keeps of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from netem.media.profile import Crossing
from netem.profile import LinkProfile
from node.assignment import derive_seed
from node.parameters import Parameters
from orchestrator.population.availability import Availability
from orchestrator.population.selection import kind_of

Crossings = tuple[Crossing, ...]
Ways = tuple[Crossings, Crossings]
"""The channels that a client's link crosses towards the cloud and from it."""

QUANTILES = (0, 5, 50, 95, 100)  # percent, of the numbers drawn

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]
Counts = NDArray[np.int64]


class Distribution(Protocol):
    """What each client draws one number from. ``draw`` returns the numbers of ``count`` clients; the first numbers do
    not depend on ``count``."""

    def draw(self, random: np.random.Generator, count: int) -> Numbers: ...

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Fixed:
    """The same number for all."""

    value: float

    def draw(self, random: np.random.Generator, count: int) -> Numbers:
        return np.full(count, self.value)

    def to_json(self) -> dict[str, Any]:
        return {"fixed": self.value}


@dataclass(frozen=True)
class HardwareShare:
    """A class of hardware, the share of clients that have it, and its speed relative to a host core."""

    name: str
    share: float
    speed: float


@dataclass(frozen=True)
class LinkShare:
    """A link, the share of clients that have it, and its profiles towards the cloud and from it."""

    name: str
    share: float
    up: LinkProfile
    down: LinkProfile


def no_crossings(client: str) -> Ways:
    return ((), ())


@dataclass(frozen=True, eq=False)
class Population:
    """``size`` clients. ``asked`` of them are selected for a round, which ends when ``selected`` have answered. If the
    algorithm is ``asynchronous``, both are the number of clients that take part at a time.

    Either ``hardware`` or ``speed`` sets how fast they are. ``paired``: the entries of ``hardware`` and ``links`` are
    rows of one file, and a client has both from the same row. ``crossings`` gives the shared channels that the link of
    the client of this name crosses. ``alpha`` is that of the data's Dirichlet distribution,
    or None if samples are drawn at random.
    """

    seed: int
    size: int
    selected: int
    asked: int
    selection: Parameters
    availability: Availability
    hardware: Sequence[HardwareShare]
    speed: Distribution | None
    links: Sequence[LinkShare]
    samples: Distribution
    alpha: float | None
    asynchronous: bool = False
    paired: bool = False
    crossings: Callable[[str], Ways] = no_crossings

    @cached_property
    def speeds(self) -> Numbers:
        """The speed of each client relative to a host core (size,)."""
        if self.speed is not None:
            random = self._random("speed")
            return self.speed.draw(random, self.size)
        of_classes = [hardware.speed for hardware in self.hardware]
        speeds = np.array(of_classes)
        return speeds[self.hardware_numbers]

    @cached_property
    def hardware_numbers(self) -> Places:
        """The place of each client's class in ``hardware`` (size,)."""
        shares = [hardware.share for hardware in self.hardware]
        return self._placed("hardware", shares)

    @cached_property
    def link_numbers(self) -> Places:
        """The place of each client's link in ``links`` (size,)."""
        if self.paired:
            return self.hardware_numbers
        shares = [link.share for link in self.links]
        return self._placed("link", shares)

    @cached_property
    def sample_counts(self) -> Counts:
        """The number of training samples of each client, at least 1 (size,)."""
        random = self._random("samples")
        drawn = self.samples.draw(random, self.size)
        counts = np.maximum(np.rint(drawn), 1)
        return counts.astype(np.int64)

    def hardware_name(self, client: int) -> str | None:
        """The class of a client's hardware; None if its speed was drawn from a distribution."""
        if self.speed is not None:
            return None
        number = int(self.hardware_numbers[client])
        return self.hardware[number].name

    def to_json(self) -> dict[str, Any]:
        """The content of plan.json: what was drawn from, and quantiles of what was drawn."""
        speed = None
        if self.speed is not None:
            speed = self.speed.to_json()
        name = kind_of(self.selection).name
        selection = {"name": name, "params": asdict(self.selection)}
        return {
            "size": self.size,
            "asynchronous": self.asynchronous,
            "selected": self.selected,
            "asked": self.asked,
            "selection": selection,
            "availability": self.availability.to_json(),
            "hardware": [asdict(hardware) for hardware in self.hardware],
            "speed": speed,
            "links": [_link_to_json(link) for link in self.links],
            "samples": self.samples.to_json(),
            "alpha": self.alpha,
            "quantiles": {
                "speed": _quantiles(self.speeds),
                "samples": _quantiles(self.sample_counts),
            },
        }

    def _random(self, purpose: str) -> np.random.Generator:
        seed = derive_seed(self.seed, "clients", purpose)
        return np.random.default_rng(seed)

    def _placed(
        self,
        purpose: str,
        shares: Sequence[float],
    ) -> Places:
        """For each client a place in ``shares``, drawn with these chances."""
        limits = np.cumsum(shares)[:-1]
        drawn = self._random(purpose).random(self.size)
        return np.searchsorted(limits, drawn, side="right")


def _link_to_json(link: LinkShare) -> dict[str, Any]:
    return {
        "name": link.name,
        "share": link.share,
        "up": link.up.to_mapping(),
        "down": link.down.to_mapping(),
    }


def _quantiles(numbers: NDArray[Any]) -> dict[str, float]:
    quantiles = {}
    for percent in QUANTILES:
        quantile = np.percentile(numbers, percent)
        quantiles[f"{percent}%"] = float(quantile)
    return quantiles


def client_name(client: int) -> str:
    """The name of a client as a node."""
    return f"device-{client}"


def client_number(name: str) -> int:
    """The inverse of `client_name`."""
    return int(name.removeprefix("device-"))
