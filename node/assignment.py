"""What one node is told: who it is, whom it talks to, what it learns, by which rules.

The orchestrator writes one JSON file a node, the node reads it, and nothing else configures a node. Times are seconds,
sizes bytes, fractions 0 to 1.
"""

from __future__ import annotations

import hashlib
import json
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from node.errors import AssignmentError

Tier = Literal["cloud", "edge", "device"]
Relation = Literal["parent", "child", "neighbour"]

PLACE = Path("/run/edgebed")
"""Where nodes that see a file tree of their own find what they are given, the same under every driver: ``data``,
``shards.npz``, ``control/`` and ``checkpoints/``, which alone they can write to."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Keypair:
    """A CURVE key pair in Z85 text (RFC 32 of ZeroMQ)."""

    public: str
    secret: str


@dataclass(frozen=True, kw_only=True)
class PeerAddress:
    """A node this one talks to, and what that node is to it; ``late``: it is planned to join after the beginning."""

    name: str
    tier: Tier
    relation: Relation
    host: str
    port: int
    public_key: str
    late: bool = False


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """What the emulated machine has. ``speed``: CPU relative to the host's, None for the host's own; ``cores`` and
    ``memory`` (bytes) are held by the driver and stand here for the record."""

    speed: float | None = None
    cores: float | None = None
    memory: int | None = None


@dataclass(frozen=True, kw_only=True)
class DataAssignment:
    """Where a node's data is: prepared arrays (``x_train.npy`` ...) in ``directory``, and in the ``shards`` file (npz)
    the sample indices of this node under ``train_key``, ``own_test_key`` and ``personal_key`` (test samples set apart
    to personalise by); None where it has none."""

    dataset: str
    directory: str
    shards: str
    train_key: str | None = None
    own_test_key: str | None = None
    personal_key: str | None = None
    global_test: bool = False


@dataclass(frozen=True, kw_only=True)
class Gathering:
    """When a coordinator has waited enough: ``quorum``, the fraction of the peers it asked that must answer, or
    ``count``, their number, the other being None; ``deadline`` s after which it goes on without the rest; what becomes
    of a message that comes ``late``. Peers that have left are not counted: if fewer than ``count`` stay, all of them
    must answer."""

    quorum: float | None = 1.0
    count: int | None = None
    deadline: float = 600.0
    late: Literal["discard", "keep"] = "discard"

    def __post_init__(self) -> None:
        if (self.quorum is None) == (self.count is None):
            raise ValueError(f"either a quorum or a count, not {self.quorum} and {self.count}")


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """``beat`` s between signs of life; a peer is lost after ``lost_after`` s of silence, which must exceed four round
    trips of the slowest link; without the orchestrator's word for ``lease`` s a node ends itself."""

    beat: float = 1.0
    lost_after: float = 8.0
    lease: float = 10.0


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Stop after so many ``rounds``, or when the reported global ``accuracy`` (fraction) is reached."""

    rounds: int
    accuracy: float | None = None


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """Everything a node needs to know. ``index`` counts nodes of the run from 1; ``leads`` marks the nodes whose
    rounds are the rounds of the run; ``control_key`` is the orchestrator's public key; without a
    ``checkpoint_directory`` ("") nothing is kept for a restart."""

    run: str
    node: str
    tier: Tier
    index: int
    seed: int
    host: str
    port: int
    keys: Keypair
    control_endpoint: str
    control_key: str
    peers: tuple[PeerAddress, ...]
    algorithm: str
    model: str
    data: DataAssignment
    stop: Stop
    checkpoint_directory: str
    leads: bool
    params: dict[str, Any] = field(default_factory=dict)
    model_params: dict[str, Any] = field(default_factory=dict)
    hardware: Hardware = field(default_factory=Hardware)
    gathering: Gathering = field(default_factory=Gathering)
    timeouts: Timeouts = field(default_factory=Timeouts)
    profile: str = "fixed"

    def related(self, relation: Relation) -> tuple[str, ...]:
        """Names of the peers that stand in this relation, in the assignment's order."""
        return tuple(peer.name for peer in self.peers if peer.relation == relation)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Assignment:
        """Read what `to_json` wrote. AssignmentError names the field that is missing, unknown or of another type."""
        try:
            value = json.loads(text)
        except ValueError as error:
            raise AssignmentError(f"assignment: not JSON ({error})") from None
        return cast(Assignment, _read(cls, value, "assignment"))

    @classmethod
    def load(cls, path: str | Path) -> Assignment:
        """Read the file at ``path``; AssignmentError if it is not there or not an assignment."""
        try:
            text = Path(path).read_text()
        except OSError as error:
            raise AssignmentError(f"{path}: cannot be read ({error.strerror})") from None
        try:
            return cls.from_json(text)
        except AssignmentError as error:
            raise AssignmentError(f"{path}: {error}") from None


def derive_seed(seed: int, *names: str) -> int:
    """A seed of 63 bits for one purpose of one node, independent of every other: SHA-256 of the seed and the names."""
    digest = hashlib.sha256("\0".join((str(seed), *names)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _read(kind: Any, value: Any, path: str) -> Any:
    """Check ``value``, as JSON gives it, against the type ``kind`` and make the object."""
    origin = get_origin(kind)
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _read_fields(cast(type[Any], kind), value, path)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in get_args(kind):
            return None
        return _read(next(each for each in get_args(kind) if each is not type(None)), value, path)
    if origin is Literal:
        if value not in get_args(kind):
            raise AssignmentError(f"{path}: {value!r} is none of {', '.join(map(repr, get_args(kind)))}")
        return value
    if origin is tuple:
        return tuple(
            _read(get_args(kind)[0], each, f"{path}[{place}]") for place, each in enumerate(_of(list, value, path))
        )
    if origin is dict:
        return dict(_of(dict, value, path))
    if kind is float and type(value) is int:
        return float(value)
    return _of(kind, value, path)


def _read_fields(kind: type[T], value: Any, path: str) -> T:
    given: Mapping[str, Any] = _of(dict, value, path)
    hints = get_type_hints(kind)
    unknown = sorted(set(given) - set(hints))
    if unknown:
        raise AssignmentError(f"{path}.{unknown[0]}: unknown field; written by another version?")
    values = {name: _read(hints[name], given[name], f"{path}.{name}") for name in given}
    try:
        return kind(**values)
    except TypeError:
        missing = next(entry.name for entry in fields(cast(Any, kind)) if entry.name not in given)
        raise AssignmentError(f"{path}.{missing}: missing") from None


def _of(kind: type[Any], value: Any, path: str) -> Any:
    if type(value) is not kind:
        raise AssignmentError(f"{path}: expected {kind.__name__}, got {value!r}")
    return value
