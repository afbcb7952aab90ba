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
from orchestrator.population.selection import SELECTIONS

Ways = tuple[tuple[Crossing, ...], tuple[Crossing, ...]]
"""The channels that a client's link crosses towards the cloud and from it."""

QUANTILES = (0, 5, 50, 95, 100)  # percent, of the numbers drawn

Numbers = NDArray[np.float64]


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


@dataclass(frozen=True, eq=False)
class Population:
    """``size`` clients, of which ``asked`` are selected for a round that ends when ``selected`` have answered. If the
    algorithm is ``asynchronous``, both are the number of clients that take part at a time.

    Either ``hardware`` or ``speed`` says how fast they are. ``paired``: the entries of ``hardware`` and ``links`` are
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
    crossings: Callable[[str], Ways] = lambda client: ((), ())

    @cached_property
    def speeds(self) -> Numbers:
        """The speed of each client relative to a host core (size,)."""
        if self.speed is not None:
            return self.speed.draw(self._random("speed"), self.size)
        return np.array([each.speed for each in self.hardware])[self.hardware_numbers]

    @cached_property
    def hardware_numbers(self) -> NDArray[np.int64]:
        """The place of each client's class in ``hardware`` (size,)."""
        return self._placed("hardware", [each.share for each in self.hardware])

    @cached_property
    def link_numbers(self) -> NDArray[np.int64]:
        """The place of each client's link in ``links`` (size,)."""
        if self.paired:
            return self.hardware_numbers
        return self._placed("link", [each.share for each in self.links])

    @cached_property
    def sample_counts(self) -> NDArray[np.int64]:
        """The number of training samples of each client, at least 1 (size,)."""
        return np.maximum(np.rint(self.samples.draw(self._random("samples"), self.size)), 1).astype(np.int64)

    def hardware_name(self, client: int) -> str | None:
        """The class of a client's hardware; None if its speed was drawn from a distribution."""
        if self.speed is not None:
            return None
        return self.hardware[int(self.hardware_numbers[client])].name

    def to_json(self) -> dict[str, Any]:
        """The content of plan.json: what was drawn from, and quantiles of what was drawn."""
        name = next(kind.name for kind in SELECTIONS.values() if kind.params is type(self.selection))
        drawn = {"speed": self.speeds, "samples": self.sample_counts}
        return {
            "size": self.size,
            "asynchronous": self.asynchronous,
            "selected": self.selected,
            "asked": self.asked,
            "selection": {"name": name, "params": asdict(self.selection)},
            "availability": self.availability.to_json(),
            "hardware": [asdict(each) for each in self.hardware],
            "speed": None if self.speed is None else self.speed.to_json(),
            "links": [
                {
                    "name": each.name,
                    "share": each.share,
                    "up": each.up.to_mapping(),
                    "down": each.down.to_mapping(),
                }
                for each in self.links
            ],
            "samples": self.samples.to_json(),
            "alpha": self.alpha,
            "quantiles": {
                what: {f"{part}%": float(np.percentile(numbers, part)) for part in QUANTILES}
                for what, numbers in drawn.items()
            },
        }

    def _random(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng(derive_seed(self.seed, "clients", purpose))

    def _placed(self, purpose: str, shares: Sequence[float]) -> NDArray[np.int64]:
        """For each client a place in ``shares``, drawn with these chances."""
        limits = np.cumsum(shares)[:-1]
        return np.searchsorted(limits, self._random(purpose).random(self.size), side="right")


def client_name(client: int) -> str:
    """The name of a client as a node."""
    return f"device-{client}"


def client_number(name: str) -> int:
    """The inverse of `client_name`."""
    return int(name.removeprefix("device-"))
