"""The keys of a scenario as types, so that editors complete and check a scenario that is written in Python.

They are dictionaries when a program runs. `orchestrator.scenario.schema` checks their values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Required, TypedDict

from netem.media.profile import Rule, TrafficKind
from orchestrator.scenario.actions import Action
from orchestrator.scenario.sections.engines import EngineName
from orchestrator.scenario.sections.faults import TierGroup

Section = Mapping[str, Any]


class Profile(TypedDict, total=False):
    """The keys of a link profile, with units: ``{"latency": "5ms", "rate": "20mbit", "loss": "1%"}``."""

    profile: str
    latency: str
    jitter: str
    distribution: str
    loss: str | Section
    rate: str | None
    buffer: str | None
    duplicate: str
    corrupt: str
    reorder: str
    drop_above: int | None


class Direction(Profile, total=False):
    """One direction of a link: a profile, and how it changes over time."""

    schedule: Section | None


class Link(Direction, total=False):
    """A class of links, or one link: ``Link(profile="wifi", up={"rate": "5mbit"})``. The keys apply to both directions.
    ``up`` (towards the cloud) and ``down`` change one."""

    up: str | Direction
    down: str | Direction
    nat_timeout: str | None
    mtu: int | None


_For = TypedDict("_For", {"for": str}, total=False)


class Medium(TypedDict, total=False):
    """A medium that links share: ``Medium(rate="54mbit", duplex="half", members=["device-0-*"])``."""

    profile: str
    rate: str
    up: str
    down: str
    duplex: Literal["half", "full"]
    share: Rule
    buffer: str
    rates: Mapping[str, str]
    schedule: Section | None
    members: Sequence[str]


class CrossTraffic(_For, total=False):
    """Traffic of others on a medium: ``CrossTraffic(on="backhaul", kind="poisson", rate="30mbit")``."""

    on: Required[str]
    kind: Required[TrafficKind]
    direction: Literal["up", "down"]
    rate: str
    on_for: str
    off_for: str
    csv: str
    at: str


class Fault(Profile, _For, total=False):
    """A fault, or a rule for several: ``{"round": 3, "node": "device-0-1", "action": "crash", "for": "1s"}``.

    ``for`` is a keyword of Python, so a fault with this key is written with braces. The keys of a profile go with the
    action "degrade".
    """

    action: Required[Action]
    at: str
    round: int
    every_round: str | float
    random: Section
    event: str
    node: str
    nodes: Sequence[str]
    of: TierGroup
    fraction: str | float
    count: int
    between: Sequence[str | Sequence[str]]
    medium: str
    direction: Literal["up", "down"]
    program: str
    to: str
    factor: float


class Scenario(TypedDict, total=False):
    """A scenario: ``Scenario(algorithm="fedavg", topology={"devices": 4}, driver="sim")``. Every key but the algorithm
    or the programs has a default."""

    name: str
    plugins: Sequence[str]
    seed: int
    algorithm: str | Section
    programs: Section
    data: Section
    model: str | Section
    topology: Section
    clients: Section
    hardware: Mapping[str, str | Section]
    stack: Mapping[str, Section]
    hosts: Mapping[str, str]
    compute: Section
    links: Mapping[str, str | Link]
    shared: Mapping[str, str | Medium]
    routes: Mapping[str, Sequence[str]]
    cross_traffic: Sequence[CrossTraffic]
    faults: Sequence[Fault]
    gathering: Section
    timeouts: Section
    restart: Literal["on-failure", "never"]
    stop: Section
    expect: Section
    driver: str
    engine: EngineName
    probe: Section
