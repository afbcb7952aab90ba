"""The assignment of one node: its identity, its peers, its data and model, and the rules of the run.

The orchestrator writes one JSON file per node. The node reads it. Nothing else configures a node. Times are in seconds,
sizes in bytes, fractions from 0 to 1.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from node.errors import AssignmentError

Tier = Literal["cloud", "edge", "device"]
Relation = Literal["parent", "child", "neighbour", "elsewhere"]

PLACE = Path("/run/edgebed")
"""The folder with a node's files, for nodes with a private file tree. It is the same under every driver and holds
``data``, ``shards.npz``, ``control/`` and ``checkpoints/``. Only ``checkpoints/`` is writable."""

PLUGIN_FILES = "edgebed_plugins"
"""The package that the modules of plug-in files belong to, so that a file may have the name of a library."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Keypair:
    """A CURVE key pair in Z85 text (RFC 32 of ZeroMQ)."""

    public: str
    secret: str


@dataclass(frozen=True, kw_only=True)
class PeerAddress:
    """A peer of this node. ``relation``: what the peer is to this node; "elsewhere": an edge that this device may move
    to. ``late``: the peer joins after the start. ``away``: a device of another edge, which may move to this one."""

    name: str
    tier: Tier
    relation: Relation
    host: str
    port: int
    public_key: str
    late: bool = False
    away: bool = False


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The hardware of the emulated machine. ``speed``: CPU speed relative to the host's, None for the host's own.

    The driver enforces ``cores`` and ``memory`` (bytes). They are here for the record. ``modelled``: steps take the
    time that `node.learning.step_seconds` gives for this speed, since computing takes no time."""

    speed: float | None = None
    cores: float | None = None
    memory: int | None = None
    modelled: bool = False


@dataclass(frozen=True, kw_only=True)
class DataAssignment:
    """The location of a node's data. ``directory`` holds prepared arrays (``x_train.npy`` ...).

    The ``shards`` file (npz) holds the sample indices of this node under ``train_key``, ``own_test_key`` and
    ``personal_key`` (test samples reserved for personalisation). A key is None if the node has no such samples.
    ``class_metrics``: the metrics of classes that it reports (`node.learning.class_metrics`)."""

    dataset: str
    directory: str
    shards: str
    train_key: str | None = None
    own_test_key: str | None = None
    personal_key: str | None = None
    global_test: bool = False
    class_metrics: tuple[str, ...] = ()


@dataclass(frozen=True)
class PluginSource:
    """The code of a plug-in: its ``name`` in the scenario, its ``module``, and the file or folder ``root`` with its
    source. ``sha256`` is of all its Python files, with their names."""

    name: str
    module: str
    root: str
    sha256: str

    @property
    def is_file(self) -> bool:
        """Whether the plug-in is a file that the scenario names, not an installed module."""
        return self.module.startswith(f"{PLUGIN_FILES}.")

    def contents(self) -> dict[str, bytes]:
        """The Python files by their paths, relative to the folder of ``root``. Raises OSError."""
        root = Path(self.root)
        if root.is_dir():
            files = sorted(root.rglob("*.py"))
        else:
            files = [root]
        folder = root.parent
        contents = {}
        for file in files:
            path = file.relative_to(folder).as_posix()
            contents[path] = file.read_bytes()
        return contents


@dataclass(frozen=True, kw_only=True)
class Gathering:
    """The rule for how long a coordinator waits for answers.

    ``quorum`` is the fraction of the asked peers that must answer, ``count`` their number; one of the two is None.
    After ``deadline`` s the coordinator continues without the rest. ``late`` says what happens to late messages. Peers
    that have left are not counted: if fewer than ``count`` stay, all of them must answer."""

    quorum: float | None = 1.0
    count: int | None = None
    deadline: float = 600.0
    late: Literal["discard", "keep"] = "discard"

    def __post_init__(self) -> None:
        if (self.quorum is None) == (self.count is None):
            raise ValueError(f"either a quorum or a count, not {self.quorum} and {self.count}")


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """A node sends a beat every ``beat`` s. A peer is lost after ``lost_after`` s of silence, which must exceed four
    round trips of the slowest link. A node that receives nothing from the orchestrator for ``lease`` s ends itself."""

    beat: float = 1.0
    lost_after: float = 8.0
    lease: float = 10.0


@dataclass(frozen=True, kw_only=True)
class Target:
    """Bounds of the metric ``name``."""

    name: str
    at_least: float | None = None
    at_most: float | None = None

    def met_by(self, value: float) -> bool:
        """Whether a value is within the bounds."""
        if self.at_least is not None and not value >= self.at_least:
            return False
        return self.at_most is None or value <= self.at_most


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Stop after ``rounds`` rounds, or when the reported global accuracy reaches ``accuracy`` (fraction), or another
    metric on the global test set its ``target``."""

    rounds: int
    accuracy: float | None = None
    target: Target | None = None

    def reached(self, values: Mapping[str, Any]) -> str | None:
        """What reported values reach: "accuracy", "target", or nothing."""
        if values.get("scope") != "global":
            return None
        accuracy = values.get("accuracy")
        if self.accuracy is not None and isinstance(accuracy, int | float):
            if self.accuracy <= accuracy <= 1:
                return "accuracy"
        if self.target is None:
            return None
        value = values.get(self.target.name)
        if not isinstance(value, int | float):
            return None
        if math.isfinite(value) and self.target.met_by(value):
            return "target"
        return None


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """The full configuration of a node. ``index`` counts the nodes of the run from 1. ``leads`` marks the nodes that
    count the rounds of the run. ``device``: the part of the host that it trains on, as torch names it: cpu,
    cuda or cuda:1. ``precision``: that of floats in messages, "bf16" or "fp16", or "" for their own. With "bf16", the
    node also trains in it. ``control_key`` is the orchestrator's public key. Without a ``checkpoint_directory`` ("") no
    checkpoints are written. ``network``: where peers may get other addresses, like 10.77.0.0/16; "": nowhere.
    ``start``: the number of this process among those of the node, from 1; 0 if they are not counted."""

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
    device: str = "cpu"
    precision: str = ""
    plugins: tuple[PluginSource, ...] = ()
    network: str = ""
    start: int = 0

    @property
    def in_place(self) -> Assignment:
        """This assignment without the edges that the device is not at."""
        present = [peer for peer in self.peers if peer.relation != "elsewhere"]
        return replace(self, peers=tuple(present))

    def after_move(self, device: str, edge: str) -> Assignment:
        """This assignment when ``device`` has moved to ``edge``: of the device, or of an edge."""
        peers = []
        for peer in self.peers:
            if self.node == device:
                relation: Relation = "parent" if peer.name == edge else "elsewhere"
                peer = replace(peer, relation=relation)
            elif peer.name == device:
                peer = replace(peer, away=self.node != edge)
            peers.append(peer)
        return replace(self, peers=tuple(peers))

    @property
    def model_kind(self) -> str:
        """Equal for nodes of a run with the same model, parameters and device."""
        kind = [self.model, self.model_params, self.device]
        return json.dumps(kind, sort_keys=True)

    def related(self, relation: Relation) -> tuple[str, ...]:
        """Names of the peers with this relation, in the assignment's order."""
        names = [peer.name for peer in self.peers if peer.relation == relation]
        return tuple(names)

    def to_json(self) -> str:
        return json.dumps(self, default=vars)  # with `asdict` and indentation it takes 1.4 ms a node

    @classmethod
    def from_json(cls, text: str | bytes) -> Assignment:
        """Read the output of `to_json`. AssignmentError names the field that is missing, unknown or of another type."""
        try:
            value = json.loads(text)
        except ValueError as error:
            raise AssignmentError(f"assignment: not JSON ({error})") from None
        return cast(Assignment, _read(cls, value, "assignment"))

    @classmethod
    def warm_up(cls) -> None:
        """Do the work that only the first reading of an assignment needs."""
        for kind in list(globals().values()):
            if is_dataclass(kind):
                _hints(cast(Any, kind))

    @classmethod
    def load(cls, path: str | Path) -> Assignment:
        """Read the file at ``path``. AssignmentError if it does not exist or is not an assignment."""
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise AssignmentError(f"{path}: cannot be read ({error.strerror})") from None
        try:
            return cls.from_json(text)
        except AssignmentError as error:
            raise AssignmentError(f"{path}: {error}") from None


def derive_seed(seed: int, *names: str) -> int:
    """A seed of 63 bits for one purpose of one node, independent of every other: SHA-256 of the seed and the names."""
    purpose = "\0".join((str(seed), *names))
    digest = hashlib.sha256(purpose.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _read(kind: Any, value: Any, path: str) -> Any:
    """Check the parsed JSON ``value`` against the type ``kind`` and make the object."""
    origin = get_origin(kind)
    if kind is Any:
        return value
    if is_dataclass(kind):
        fields_of = cast(type[Any], kind)
        return _read_fields(fields_of, value, path)
    kinds = get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in kinds:
            return None
        others = [other for other in kinds if other is not type(None)]
        return _read(others[0], value, path)
    if origin is Literal:
        if value not in kinds:
            allowed = ", ".join(map(repr, kinds))
            raise AssignmentError(f"{path}: {value!r} is none of {allowed}")
        return value
    if origin is tuple:
        elements = []
        for place, element in enumerate(_of(list, value, path)):
            elements.append(_read(kinds[0], element, f"{path}[{place}]"))
        return tuple(elements)
    if origin is dict:
        return dict(_of(dict, value, path))
    if kind is float and type(value) is int:
        return float(value)
    return _of(kind, value, path)


@functools.cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """The types of a class's fields. They are read once for all nodes that are forked from one process."""
    return get_type_hints(kind)


def _read_fields(kind: type[T], value: Any, path: str) -> T:
    given: Mapping[str, Any] = _of(dict, value, path)
    hints = _hints(cast(Any, kind))
    unknown = sorted(given.keys() - hints.keys())
    if unknown:
        raise AssignmentError(f"{path}.{unknown[0]}: unknown field; written by another version?")
    values = {}
    for name, given_value in given.items():
        values[name] = _read(hints[name], given_value, f"{path}.{name}")
    try:
        return kind(**values)
    except TypeError:
        names = [entry.name for entry in fields(cast(Any, kind))]
        missing = next(name for name in names if name not in given)
        raise AssignmentError(f"{path}.{missing}: missing") from None


def _of(kind: type[Any], value: Any, path: str) -> Any:
    if type(value) is not kind:
        raise AssignmentError(f"{path}: expected {kind.__name__}, got {value!r}")
    return value
