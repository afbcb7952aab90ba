"""The calls of the orchestrator on the agent of a host: the methods of the protocols in `PROTOCOLS`.

`Agents.call` takes a method and its arguments. The agent has an object for each protocol. Arguments and results travel
as plain data (`plain`). The receiver makes objects of them by the annotations of the method. A path is relative to the
directory of the run, and the agent looks for it in its own. `Host` and those after it are described in the classes of
`orchestrator.agent`: `Worker`, `Files`, `DataSets`, `Images`, `HostRun` and `Responders`. Those of their methods that
are not coroutines run in threads.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, make_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, get_type_hints

from pydantic import TypeAdapter, ValidationError

from node.errors import WireError
from orchestrator.drivers.base import CanPause, Driver, RunsPrograms
from orchestrator.drivers.hosts.agents.facts import HostState
from orchestrator.fabric.base import Fabric, KeepsNetworks, LinkChange, NodeHandle, SharesMedia
from orchestrator.fabric.link_prober import Prober
from orchestrator.fabric.namespaces.wiring import Wires
from orchestrator.fabric.trunk import Trunk
from orchestrator.planning.plan import Accelerated, LinkPlan
from orchestrator.planning.programs import ProgramPlan

PATIENCE = 120.0  # s for one answer; an Engine that starts many containers is slow
TIMEOUTS = {
    "Fabric.counters": 5.0,
    "KeepsNetworks.unsent": 5.0,
    "RunsPrograms.listening_on": 5.0,
    "RunsPrograms.usage": 5.0,
    "Prober.probe": 7200.0,  # of a slow link; who measures it sets the limit
    "Host.sense": 15.0,  # sensors are found, and read
    "Host.finish": 60.0,
    "Host.leave": 10.0,
    "Host.facts": 60.0,
    "HostImages.finish_load": 3600.0,  # an SD card is slow
}
"""Seconds for the answers to some calls."""


@dataclass(frozen=True)
class HostSetup:
    """What a host needs to open its part of a run: the ``image`` of nodes, the other ``images`` of nodes of this host,
    the nodes that are ``accelerated``, the ``programs`` of nodes (None if they run none), the ``names`` that resolve in
    nodes, the ``wires``, and the ``trunk`` (None if all nodes run on this host)."""

    image: str
    images: Sequence[str]
    accelerated: Sequence[Accelerated]
    programs: Sequence[ProgramPlan] | None
    names: Mapping[str, str]
    wires: Wires
    trunk: Trunk | None


@dataclass(frozen=True)
class HostEngine:
    """The link ``engine`` of a host, the ``tcp`` settings of nodes there, and ``notes`` for the record."""

    engine: str
    tcp: Mapping[str, str]
    notes: Sequence[str]


@dataclass(frozen=True)
class ExaminationSetup:
    """What a host needs to examine itself: a ``run`` to name what it makes, the ``image`` of nodes, and the ``number``,
    ``hosts`` and ``mtu`` of the trunk (see `create_trial`)."""

    run: str
    image: str
    number: int
    hosts: Sequence[str]
    mtu: int


class Host(Protocol):
    async def begin(self, run: str) -> None: ...
    async def open(self, data: str | None, setup: HostSetup) -> HostEngine: ...
    async def facts(self, setup: ExaminationSetup) -> tuple[HostState, int]: ...
    async def listen(self, address: str) -> tuple[int, bytes]: ...
    async def echo(
        self,
        address: str,
        port: int,
        token: bytes,
        count: int,
        spacing: float,
    ) -> list[float]: ...
    async def sense(self) -> None: ...
    async def finish(self) -> None: ...
    async def leave(self) -> None: ...


class HostFiles(Protocol):
    async def put(
        self,
        path: Path,
        data: bytes,
        first: bool,
        secret: bool = False,
    ) -> None: ...
    async def remove(self, path: Path) -> None: ...
    async def files(self, folder: Path) -> list[bytes]: ...
    async def get(self, folder: Path, path: bytes, start: int) -> bytes: ...


class HostDataSets(Protocol):
    async def has_data(self, sha256: str) -> bool: ...
    async def put_data(
        self,
        sha256: str,
        path: str,
        data: bytes,
        first: bool,
    ) -> None: ...
    async def keep_data(self, sha256: str) -> None: ...


class HostImages(Protocol):
    async def images(self, names: Sequence[str]) -> dict[str, Any]: ...
    async def load(self, name: str, data: bytes, first: bool) -> None: ...
    async def finish_load(self, name: str) -> None: ...
    async def pull(
        self,
        name: str,
        repository: str,
        digest: str,
        login: str | None,
    ) -> None: ...
    async def pull_progress(self, name: str) -> tuple[bool, int, int]: ...


class HostLinks(Protocol):
    async def shape(self, links: Sequence[LinkPlan]) -> list[str]: ...
    async def alter(self, changes: Sequence[LinkChange]) -> list[str | None]: ...
    async def redirect(self, remotes: Mapping[str, str]) -> None: ...


class HostResponders(Protocol):
    async def respond(
        self,
        handle: NodeHandle,
        address: str,
    ) -> tuple[dict[str, Any], int]: ...
    async def dismiss(self, number: int) -> None: ...


PROTOCOLS: tuple[Any, ...] = (
    Host,
    HostFiles,
    HostDataSets,
    HostImages,
    HostLinks,
    HostResponders,
    Driver,
    CanPause,
    RunsPrograms,
    Fabric,
    KeepsNetworks,
    SharesMedia,
    Prober,
)
Method = Callable[..., Any]
METHODS: dict[str, Method] = {}
for _protocol in PROTOCOLS:
    for _method in vars(_protocol).values():
        if inspect.iscoroutinefunction(_method):
            METHODS[_method.__qualname__] = _method


def plain(value: object) -> Any:
    """What travels instead of an object: the fields of a dataclass, or the text of a path."""
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
        return {name: getattr(value, name) for name in names}
    if isinstance(value, Path):
        return str(value)
    kind = type(value).__name__
    raise TypeError(f"{kind} cannot be sent")


def bound(method: Method, *arguments: Any, **named: Any) -> dict[str, Any]:
    """The arguments of a call by their names."""
    signature = _signature(method)
    call: inspect.BoundArguments = signature.bind(None, *arguments, **named)
    call.apply_defaults()
    by_name = dict(call.arguments)
    by_name.pop("self", None)
    return by_name


def arguments_of(method: Method, data: Any) -> dict[str, Any]:
    """The arguments of a call that was received. WireError if they do not fit."""
    arguments = from_plain(_arguments(method), data)
    return dict(vars(arguments))


def result_of(method: Method, data: Any) -> Any:
    """The result of a call that was received. WireError if it does not fit."""
    hints = get_type_hints(method)
    return from_plain(hints["return"], data)


def from_plain(kind: Any, data: Any) -> Any:
    """An object of this type. WireError with the path and the reason if it cannot be made of the data."""
    try:
        return _adapter(kind).validate_python(data)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        first = details[0]
    reason = first["msg"]
    path = ".".join(str(step) for step in first["loc"])
    if path:
        reason = f"{path}: {reason}"
    raise WireError(reason) from None


_signature = cache(inspect.signature)
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


@cache
def _arguments(method: Method) -> type:
    """A dataclass of the arguments of a method. Its configuration admits `Schedule`, but only None can travel."""
    hints = dict(get_type_hints(method))
    hints.pop("return", None)
    namespace = {"__pydantic_config__": _CONFIG}
    return make_dataclass(method.__name__, hints.items(), namespace=namespace)


_CONFIG = {"arbitrary_types_allowed": True}
