"""Faults in a scenario: time, target and action.

    - {at: 20s, node: device-1-2, action: crash, for: 15s}
    - {round: 3, of: edges, count: 1, action: pause, for: 5s}
    - {every_round: 30%, of: devices, action: disconnect}
    - {random: {mean: 30s}, of: devices, action: crash, for: 10s}
    - {at: 40s, between: [edge-0, cloud], action: partition, for: 10s}
    - {at: 10s, node: edge-1, action: degrade, loss: 10%, for: 20s}

Without ``for`` a fault lasts to the end of the run; with ``every_round``, to the end of its round.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from orchestrator.scenario.language.quantities import Duration, Fraction
from orchestrator.scenario.language.strict import Strict
from orchestrator.scenario.language.words import describe
from orchestrator.scenario.sections.profiles import LinkKeys

Action = Literal["crash", "pause", "disconnect", "partition", "degrade", "slow", "join", "leave"]
TierGroup = Literal["devices", "edges"]

_WHEN = ("at", "round", "every_round", "random")
_WHOM = ("node", "nodes", "of", "between")


class RandomTimes(Strict):
    """Random times, drawn with the scenario's seed: a Poisson process."""

    mean: Duration = Field(gt=0, description="mean time between two events of this rule, whatever its number of nodes")
    until: Duration | None = Field(
        default=None, description="last time of an event, after training started; default: stop.after"
    )


def _sides(value: Any) -> list[list[str]]:
    """The two sides as lists of names and groups, from ``[edge-0, cloud]`` or ``[[edge-0, edge-1], cloud]``."""
    message = "write the two sides, each a name, a group or a list of names, like [edge-0, cloud]"
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{message}, not {describe(value) if not isinstance(value, list) else f'{len(value)} sides'}")
    sides = [side if isinstance(side, list) else [side] for side in value]
    if not all(side and all(isinstance(name, str) for name in side) for side in sides):
        raise ValueError(message)
    return sides


_NAMES = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}


class FaultSpec(LinkKeys):
    """A fault, or a rule for many. Exactly one key says when (``at``, ``round``, ``every_round`` or ``random``) and
    one where (``node``, ``nodes``, ``of`` or ``between``). Settings of a link are for ``degrade``."""

    short: ClassVar[str | None] = None

    action: Action = Field(
        description="crash: the process of a node is killed, and restarts when the fault ends. pause: it is stopped. "
        "slow: its steps take longer. disconnect: its links are cut. join: it starts only then. leave: it ends for "
        "good. partition: the links between two sides are cut. degrade: links of a node or between two sides get other "
        "settings"
    )
    at: Duration | None = Field(default=None, description="when: this time after training started")
    round: int | None = Field(default=None, ge=1, description="when: at the start of this round")
    every_round: Fraction | None = Field(
        default=None,
        gt=0,
        description="when: in every round, for this share of the group in `of`, drawn again for each round",
    )
    random: RandomTimes | None = Field(
        default=None,
        description="when: at random times; each event hits the named nodes, or one node of the group in `of` (more "
        "with `count` or `fraction`)",
    )
    node: str | None = Field(default=None, description="where: this node")
    nodes: list[str] | None = Field(default=None, min_length=1, description="where: all of these nodes")
    of: TierGroup | None = Field(
        default=None,
        description="where: nodes drawn from this group; `fraction` or `count` says how many, or `every_round` does",
    )
    fraction: Fraction | None = Field(
        default=None, gt=0, description="with `of`: the share of the group that is drawn, at least one node"
    )
    count: int | None = Field(default=None, ge=1, description="with `of`: the number of nodes that are drawn")
    between: Annotated[
        list[list[str]] | None,
        BeforeValidator(_sides),
        WithJsonSchema({"type": "array", "items": _NAMES, "minItems": 2, "maxItems": 2}),
    ] = Field(
        default=None,
        description="where: the links between two sides, each a node, a group (devices, edges) or a list of nodes",
    )
    for_: Duration | None = Field(
        default=None,
        alias="for",
        gt=0,
        description="duration of the fault; default: until its round ends with every_round, else until the run ends",
    )
    factor: float | None = Field(
        default=None, gt=1, le=1_000_000, description="slow only: every step takes this many times as long"
    )

    @model_validator(mode="after")
    def _check_sense(self) -> FaultSpec:
        when, whom = self._only(_WHEN, "when"), self._only(_WHOM, "whom")
        self._check_count(when, whom)
        self._check_action(when, whom)
        return self

    def _has(self, name: str) -> bool:
        return getattr(self, name) is not None

    def _only(self, names: tuple[str, ...], question: str) -> str:
        given = [name for name in names if self._has(name)]
        if len(given) != 1:
            found = f"here are {' and '.join(given)}" if given else "here is none"
            raise ValueError(f"a fault says {question} with exactly one of {', '.join(names)}; {found}")
        return given[0]

    def _check_count(self, when: str, whom: str) -> None:
        counted = [name for name in ("fraction", "count") if self._has(name)]
        if counted and whom != "of":
            raise ValueError(f"{counted[0]}: goes with of: devices or of: edges, not with {whom}")
        if when == "every_round":
            if whom != "of":
                raise ValueError("every_round: is a share of a group: add of: devices or of: edges")
            if counted:
                raise ValueError(f"{counted[0]}: every_round already says how many")
        elif whom == "of" and len(counted) != 1 and not (when == "random" and not counted):
            raise ValueError(f"of: say how many of the {self.of}, with either fraction or count")

    def _check_action(self, when: str, whom: str) -> None:
        if self.action == "partition" and whom != "between":
            raise ValueError("action: partition needs between, e.g. between: [edge-0, cloud]")
        if whom == "between" and self.action not in ("partition", "degrade"):
            raise ValueError(f"between: goes with partition and degrade, not with {self.action}")
        if self.action in ("join", "leave") and when not in ("at", "round"):
            raise ValueError(f"action: {self.action} happens once: say when with at or round")
        if self.action in ("join", "leave") and self._has("for_"):
            raise ValueError(f"for: {self.action} has no end; a node that comes back is a crash or a disconnect")
        if self.action == "degrade" and not self.changes():
            raise ValueError("action: degrade needs a profile or keys of one, e.g. loss: 10%")
        if self.action != "degrade" and (stray := list(self.changes())):
            raise ValueError(f"{stray[0] if self.profile is None else 'profile'}: goes with degrade, not {self.action}")
        if self.action == "slow" and not self._has("factor"):
            raise ValueError("action: slow needs a factor; factor: 4 makes steps last four times as long")
        if self.action != "slow" and self._has("factor"):
            raise ValueError(f"factor: goes with slow, not {self.action}")
