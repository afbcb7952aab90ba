"""The hosts that nodes can live on, and the network between them: facts that others have collected.

As JSON (``edgebed plan --hosts FILE`` reads it):

    {"hosts": [{"name": "pi-1", "address": "192.0.2.7", "architecture": "arm64", "cores": 4, "memory": 4294967296,
                "labels": {"edgebed.hardware": "raspberry-pi-4"}, "manager": false}, ...],
     "underlay": [{"source": "pc-1", "target": "pi-1", "delay": 0.0002, "rate": 9.4e8, "mtu": 1500}, ...]}
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from orchestrator.errors import InventoryError
from orchestrator.scenario.language.strict import nearest, unknown
from orchestrator.scenario.language.words import describe
from orchestrator.scenario.sections.hosts import HARDWARE_LABEL, check_board

ARCHITECTURES = ("amd64", "arm64")
UNUSABLE: Final = "unusable"
"""The severity of a finding that keeps runs from using a host."""

Read = Callable[[Any], Any]


@dataclass(frozen=True)
class HostFacts:
    """A host: ``cores`` and ``memory`` (bytes) that nodes may use, its labels, and whether it manages the hosts. The
    orchestrator runs on a manager.

    Raises InventoryError if the label of a board names no hardware class.
    """

    name: str
    address: str
    architecture: str
    cores: float
    memory: int
    labels: Mapping[str, str] = field(default_factory=dict)
    manager: bool = False

    def __post_init__(self) -> None:
        if self.hardware is not None:
            try:
                check_board(self.hardware)
            except ValueError as error:
                raise InventoryError(f"host {self.name}: label {HARDWARE_LABEL}: {error}") from None

    @property
    def hardware(self) -> str | None:
        """The hardware class of a board; None for a general host, on which hardware is emulated."""
        return self.labels.get(HARDWARE_LABEL)

    def to_json(self) -> dict[str, Any]:
        """The host as plain data."""
        return asdict(self) | {"labels": dict(self.labels)}

    @classmethod
    def from_json(cls, data: Any, where: str = "host") -> Self:
        """Read what `to_json` gives. Raises InventoryError, which says ``where``."""
        return cls(**_read(data, _HOST, where))


@dataclass(frozen=True)
class Underlay:
    """The network from one host to another, measured: ``delay`` one way in seconds, ``rate`` in bit/s (None: not
    limited, or not measured), ``mtu`` in bytes of IP packet."""

    delay: float
    rate: float | None
    mtu: int


@dataclass(frozen=True)
class Inventory:
    """The hosts, and the ``underlay`` from host to host; a pair that is missing was not measured. ``left_out``: why
    other hosts, by name, cannot be used.

    Raises InventoryError if two hosts have one name, or if the underlay is that of an unknown host.
    """

    hosts: tuple[HostFacts, ...]
    underlay: Mapping[tuple[str, str], Underlay] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counted = Counter([*(host.name for host in self.hosts), *self.left_out])
        if twice := [name for name, number in counted.items() if number > 1]:
            raise InventoryError(f"hosts: {twice[0]} is there twice: give every host a name of its own")
        for name in (name for pair in self.underlay for name in pair):
            if name not in counted:
                raise InventoryError(f"underlay: {unknown('host', name, counted)}")

    def to_json(self) -> dict[str, Any]:
        """The inventory as plain data, without what is left out."""
        underlay = [
            {"source": source, "target": target, **asdict(measured)}
            for (source, target), measured in self.underlay.items()
        ]
        return {"hosts": [host.to_json() for host in self.hosts], "underlay": underlay}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read what `to_json`, `hosts --json` or `hosts doctor --json` gives. Raises InventoryError: what is wrong, and
        where."""
        lists = _read(data, {"hosts": _list, "underlay": _list}, "the inventory", optional=("underlay",))
        hosts, left_out = [], {}
        for place, each in enumerate(lists["hosts"]):
            where = f"hosts[{place}]"
            if reason := _hindrance(each, where):
                left_out[_read({"name": each.get("name")}, {"name": _word}, where)["name"]] = reason
            else:
                hosts.append(HostFacts.from_json(_lasting(each), where))
        underlay = {}
        for place, each in enumerate(lists.get("underlay", ())):
            measured = _read(each, _UNDERLAY, f"underlay[{place}]")
            pair = measured.pop("source"), measured.pop("target")
            if pair in underlay:
                raise InventoryError(f"underlay[{place}]: {pair[0]} -> {pair[1]} is there twice: leave one out")
            underlay[pair] = Underlay(**measured)
        used = {pair: each for pair, each in underlay.items() if not left_out.keys() & set(pair)}
        return cls(tuple(hosts), used, left_out)


def _read(data: Any, keys: Mapping[str, Read], where: str, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """The values of a mapping with these keys. Raises InventoryError."""
    if not isinstance(data, dict):
        raise InventoryError(f"{where}: write a mapping with {', '.join(keys)}, not {describe(data)}")
    for key in data:
        if key not in keys:
            raise InventoryError(f"{where}: unknown key '{key}'{nearest(key, keys)} (allowed: {', '.join(keys)})")
    read = {}
    for key, value in keys.items():
        if key in data:
            try:
                read[key] = value(data[key])
            except ValueError as error:
                raise InventoryError(f"{where}: {key}: {error}") from None
        elif key not in optional:
            raise InventoryError(f"{where}: '{key}' is missing")
    return read


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"write a list, not {describe(value)}")
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str) or value.split() != [value]:
        raise ValueError(f"write a text without blanks, not {describe(value)}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"write a text, not {describe(value)}")
    return value


def _architecture(value: Any) -> str:
    if value not in ARCHITECTURES:
        raise ValueError(f"write {' or '.join(ARCHITECTURES)}, not {describe(value)}")
    return str(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"write a number, 0 or more, not {describe(value)}")
    return float(value)


def _positive(value: Any) -> float:
    if not (number := _number(value)):
        raise ValueError("write a number above 0")
    return number


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"write a whole number of bytes, 1 or more, not {describe(value)}")
    return value


def _rate(value: Any) -> float | None:
    return None if value is None else _positive(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"write true or false, not {describe(value)}")
    return value


def _labels(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError('write a mapping of texts, like {"edgebed.rack": "2"}')
    return value


_USABLE = {"state": "ready", "availability": "active"}
_PASSING = (*_USABLE, "engine", "facts", "findings")
"""What `hosts --json` and `hosts doctor --json` say besides: it may change from one moment to the next."""


def _hindrance(host: Any, where: str) -> str:
    """Why a host cannot be used, if `hosts` or `hosts doctor` has said so."""
    if not isinstance(host, dict):
        return ""
    told = {key: host[key] for key in ("findings",) if key in host}
    findings = _read(told, {"findings": _list}, where, optional=("findings",)).get("findings", ())
    read = [
        _read(each, _FINDING, f"{where}: findings[{place}]", optional=("remedy", "commands"))
        for place, each in enumerate(findings)
    ]
    found = [each["what"] for each in read if each["severity"] == UNUSABLE]
    states = [f"its {key} is {host[key]}" for key, value in _USABLE.items() if host.get(key, value) != value]
    return "; ".join(found or states)  # the findings of `hosts doctor` tell the states too


def _lasting(host: Any) -> Any:
    return {key: value for key, value in host.items() if key not in _PASSING} if isinstance(host, dict) else host


_HOST: dict[str, Read] = {
    "name": _word,
    "address": _word,
    "architecture": _architecture,
    "cores": _positive,
    "memory": _whole,
    "labels": _labels,
    "manager": _flag,
}
_UNDERLAY: dict[str, Read] = {"source": _word, "target": _word, "delay": _number, "rate": _rate, "mtu": _whole}
_FINDING: dict[str, Read] = {"severity": _text, "what": _text, "remedy": _text, "commands": _list}
