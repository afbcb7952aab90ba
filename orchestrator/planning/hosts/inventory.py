"""The hosts that nodes can run on, and the network between them: facts that others have collected.

As JSON (``edgebed plan --hosts FILE`` reads it):

    {"hosts": [{"name": "pi-1", "address": "192.0.2.7", "architecture": "arm64", "cores": 4, "memory": 4294967296,
                "labels": {"edgebed.hardware": "raspberry-pi-4"}, "manager": false}, ...],
     "underlay": [{"source": "pc-1", "target": "pi-1", "delay": 0.0002, "rate": 9.4e8, "mtu": 1500}, ...]}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import AfterValidator, Field, ValidationError

from orchestrator.errors import InventoryError
from orchestrator.scenario.language.strict import M, Strict, reworded, unknown
from orchestrator.scenario.language.syntax import KeyPath
from orchestrator.scenario.language.words import describe, dotted
from orchestrator.scenario.sections.hosts import HARDWARE_LABEL, check_board

Architecture = Literal["amd64", "arm64"]
ARCHITECTURES = get_args(Architecture)
UNUSABLE: Final = "unusable"  # the severity of a finding that keeps runs from using a host


@dataclass(frozen=True)
class HostFacts:
    """A host: ``cores`` and ``memory`` (bytes) that nodes may use, its labels, and whether it manages the hosts. The
    orchestrator runs on a manager. Raises InventoryError if the label of a board names no hardware class."""

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
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any, where: str = "host") -> Self:
        """Read what `to_json` gives. Raises InventoryError, which says ``where``."""
        return cls(**dict(_read(_Host, data, where)))


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
    other hosts, by name, cannot be used. Raises InventoryError if two hosts have one name, or if the underlay is that
    of an unknown host."""

    hosts: tuple[HostFacts, ...]
    underlay: Mapping[tuple[str, str], Underlay] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [host.name for host in self.hosts]
        counted = Counter([*names, *self.left_out])
        for name, number in counted.items():
            if number > 1:
                raise InventoryError(f"hosts: {name} is there twice: give every host a name of its own")
        for pair in self.underlay:
            for name in pair:
                if name not in counted:
                    raise InventoryError(f"underlay: {unknown('host', name, counted)}")

    def to_json(self) -> dict[str, Any]:
        hosts = [host.to_json() for host in self.hosts]
        underlay = []
        for (source, target), measured in self.underlay.items():
            ends = {"source": source, "target": target}
            underlay.append({**ends, **asdict(measured)})
        return {"hosts": hosts, "underlay": underlay}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read what `to_json`, `hosts --json` or `hosts doctor --json` gives. Raises InventoryError: what is wrong, and
        where."""
        lists = _read(_Lists, data, "the inventory")
        hosts = []
        left_out = {}
        for position, host in enumerate(lists.hosts):
            where = f"hosts[{position}]"
            reason = _hindrance(host, where)
            if reason:
                named = _read(_NamedHost, {"name": host.get("name")}, where)
                left_out[named.name] = reason
            else:
                hosts.append(HostFacts.from_json(_lasting(host), where))
        underlay = {}
        for pair, measured in _read_underlay(lists.underlay).items():
            if not left_out.keys() & set(pair):
                underlay[pair] = measured
        return cls(tuple(hosts), underlay, left_out)


def _read_underlay(entries: Sequence[Any]) -> dict[tuple[str, str], Underlay]:
    """The measurements by pair of hosts."""
    underlay = {}
    for position, entry in enumerate(entries):
        where = f"underlay[{position}]"
        measured = dict(_read(_Measured, entry, where))
        source = measured.pop("source")
        target = measured.pop("target")
        if (source, target) in underlay:
            raise InventoryError(f"{where}: {source} -> {target} is there twice: leave one out")
        underlay[source, target] = Underlay(**measured)
    return underlay


def _read(model: type[M], data: Any, where: str) -> M:
    """Read a mapping. Raises InventoryError, which says ``where``."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # first an unknown key: a missing one may be misspelled
        mistakes = sorted(reworded(error, model), key=_is_of_known_key)
        path, message = mistakes[0]
        parts = filter(None, (where, dotted(path), message))
        raise InventoryError(": ".join(parts)) from None


def _is_of_known_key(mistake: tuple[KeyPath, str]) -> bool:
    _, message = mistake
    return not message.startswith("unknown key")


def _word(value: str) -> str:
    if value.split() != [value]:
        raise ValueError(f"write a text without blanks, not {describe(value)}")
    return value


Word = Annotated[str, AfterValidator(_word)]


class _Lists(Strict):
    hosts: list[Any]
    underlay: list[Any] = Field(default_factory=list)


class _NamedHost(Strict):
    name: Word


class _Host(_NamedHost):
    address: Word
    architecture: Architecture
    cores: float = Field(gt=0)
    memory: int = Field(ge=1)
    labels: dict[str, str]
    manager: bool


class _Measured(Strict):
    source: Word
    target: Word
    delay: float = Field(ge=0)
    rate: float | None = Field(gt=0)
    mtu: int = Field(ge=1)


class _Finding(Strict):
    severity: str
    what: str
    remedy: str = ""
    commands: list[Any] = Field(default_factory=list)


class _Findings(Strict):
    findings: list[_Finding] = Field(default_factory=list)


_USABLE = {"state": "ready", "availability": "active"}
_PASSING = (*_USABLE, "engine", "facts", "findings")
"""Further keys of `hosts --json` and `hosts doctor --json`: their values may change from one moment to the next."""


def _hindrance(host: Any, where: str) -> str:
    """Why a host cannot be used, if `hosts` or `hosts doctor` has said so."""
    if not isinstance(host, dict):
        return ""
    written = {}
    if "findings" in host:
        written["findings"] = host["findings"]
    reasons = []
    for finding in _read(_Findings, written, where).findings:
        if finding.severity == UNUSABLE:
            reasons.append(finding.what)
    if not reasons:  # the findings of `hosts doctor` include the states
        for key, usable in _USABLE.items():
            if host.get(key, usable) != usable:
                reasons.append(f"its {key} is {host[key]}")
    return "; ".join(reasons)


def _lasting(host: Any) -> Any:
    if not isinstance(host, dict):
        return host
    facts = dict(host)
    for key in _PASSING:
        facts.pop(key, None)
    return facts
