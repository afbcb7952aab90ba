"""The expected results of a run (``expect``), so that a user who changes a system detects regressions.

expect:
  accuracy: 80%                       # at least
  rounds: 10                          # at least
  duration: 2min                      # at most
  bytes: {total: 20mb, edge-cloud: 5mb}
  abandoned: 25%                      # at most
  metrics:
    - {name: loss, scope: train, at_most: 0.5}
  checks: [links on time, compute on time]
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from netem.units import parse_fraction
from orchestrator.scenario.language.quantities import FRACTION_SCHEMA, Duration, Fraction, Size
from orchestrator.scenario.language.strict import Strict

CheckName = Literal[
    "finished",
    "learned",
    "participation",
    "links as configured",
    "TCP as configured",
    "faults took effect",
    "links over time",
    "losses during the run",
    "rates during the run",
    "network between hosts",
    "compute on time",
    "links on time",
    "clients available",
    "nodes responded",
    "no unplanned failures",
]
"""The checks that a scenario may require: all of `orchestrator.results.checks.registry` except the check of
expectations and that of refused messages, which only a run with some has."""

FORMER_NAMES = {
    "links as asked": "links as configured",
    "links during the run": "losses during the run",
    "links kept up": "links on time",
    "nodes answered": "nodes responded",
    "nodes kept pace": "compute on time",
    "undisturbed": "no unplanned failures",
}
"""Names of checks in scenarios of version 0.1.0, with those of today."""


def _read_check_name(name: Any) -> Any:
    return FORMER_NAMES.get(str(name), name)


def _read_number(value: Any) -> Any:
    if isinstance(value, str) and "%" in value:
        return parse_fraction(value)
    return value


_PERCENTAGE = {"type": "string", "pattern": FRACTION_SCHEMA["pattern"]}
Number = Annotated[
    float,
    BeforeValidator(_read_number),
    WithJsonSchema({"anyOf": [{"type": "number"}, _PERCENTAGE]}),
]


class BytesSpec(Strict):
    """The maximum number of bytes that links deliver, headers included."""

    short: ClassVar[str | None] = "total"

    total: Size | None = Field(default=None, description="maximum over all links")
    device_edge: Size | None = Field(
        default=None, alias="device-edge", description="maximum over the links between devices and edges"
    )
    device_cloud: Size | None = Field(
        default=None, alias="device-cloud", description="maximum over the links between devices and the cloud"
    )
    edge_edge: Size | None = Field(default=None, alias="edge-edge", description="maximum over the links between edges")
    edge_cloud: Size | None = Field(
        default=None, alias="edge-cloud", description="maximum over the links between edges and the cloud"
    )

    def given(self) -> dict[str, int]:
        """The limits that are set, by key: "total" or a class of links."""
        limits = {}
        for name, key in self.key_names().items():
            size = getattr(self, name)
            if size is not None:
                limits[key] = size
        return limits


class TargetSpec(Strict):
    """Bounds of a metric on the global test set."""

    name: str = Field(examples=["accuracy", "loss"], description="name of the metric, such as accuracy or loss")
    at_least: Number | None = Field(default=None, description="minimum")
    at_most: Number | None = Field(default=None, description="maximum")

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        low = self.at_least
        high = self.at_most
        if low is None and high is None:
            raise ValueError("give a bound: at_least, at_most or both")
        if low is not None and high is not None and low > high:
            raise ValueError(f"at_least: {low:g} is more than at_most, {high:g}")
        return self

    def met_by(self, value: float) -> bool:
        """Whether a value is within the bounds; NaN is not."""
        if self.at_least is not None and not value >= self.at_least:
            return False
        return self.at_most is None or value <= self.at_most


class MetricSpec(TargetSpec):
    """Bounds of a metric at the end of the run."""

    scope: str = Field(
        default="global",
        examples=["global", "own", "train"],
        description="what it was computed on: the global test set, the own test set of a node, or train (the training)",
    )
    node: str | None = Field(
        default=None, description="the node that reports it; default: the mean of all nodes that do"
    )


class ExpectSpec(Strict):
    """The expected results of the run. If one is missed, the check fails and the run ends with exit code 3."""

    accuracy: Fraction | None = Field(
        default=None, gt=0, description="minimum accuracy on the global test set at the end of the run"
    )
    rounds: int | None = Field(default=None, ge=1, description="minimum number of finished rounds")
    duration: Duration | None = Field(default=None, gt=0, description="maximum duration of the training")
    bytes: BytesSpec = Field(
        default=BytesSpec(), description="maximum number of bytes that links deliver, headers included"
    )
    abandoned: Fraction | None = Field(
        default=None,
        description="maximum share of rounds that a node abandons because too few peers answered; default: 50%",
    )
    metrics: list[MetricSpec] = Field(default=[], description="bounds of metrics that nodes report")
    checks: list[Annotated[CheckName, BeforeValidator(_read_check_name)]] = Field(
        default=[], description="checks that must pass; a check without a result (unknown) does not count as passed"
    )

    def asks(self) -> bool:
        """Whether any result is expected, ``abandoned`` aside: it is a limit of the check "learned"."""
        return self != ExpectSpec(abandoned=self.abandoned)


def expectations(effective: dict[str, Any]) -> ExpectSpec:
    return ExpectSpec.model_validate(effective.get("expect") or {})
