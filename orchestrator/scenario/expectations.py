"""The expected results of a run (``expect``), so that a user who changes a system detects regressions.

expect:
  accuracy: 80%                       # at least
  rounds: 10                          # at least
  duration: 2min                      # at most
  bytes: {total: 20mb, edge-cloud: 5mb}
  abandoned: 25%                      # at most
  metrics:
    - {name: loss, scope: train, at_most: 0.5}
  checks: [links kept up, nodes kept pace]
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from netem.units import parse_fraction
from orchestrator.scenario.quantities import FRACTION_SCHEMA, Duration, Fraction, Size
from orchestrator.scenario.strict import Strict

CheckName = Literal[
    "finished",
    "learned",
    "participation",
    "links as asked",
    "faults took effect",
    "links over time",
    "links during the run",
    "rates during the run",
    "network between hosts",
    "nodes kept pace",
    "links kept up",
    "clients available",
    "nodes answered",
    "undisturbed",
]
"""The checks that a scenario may require: all of `orchestrator.results.checks` except the check of expectations
and that of refused messages, which only a run with some has."""

Number = Annotated[
    float,
    BeforeValidator(lambda value: parse_fraction(value) if isinstance(value, str) and "%" in value else value),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": FRACTION_SCHEMA["pattern"]}]}),
]


class BytesSpec(Strict):
    """The maximum number of bytes that all links together, or the links of a class, may deliver."""

    short: ClassVar[str | None] = "total"

    total: Size | None = None
    device_edge: Size | None = Field(default=None, alias="device-edge")
    device_cloud: Size | None = Field(default=None, alias="device-cloud")
    edge_edge: Size | None = Field(default=None, alias="edge-edge")
    edge_cloud: Size | None = Field(default=None, alias="edge-cloud")

    def given(self) -> dict[str, int]:
        """The given limits by key: "total" or a class of links."""
        return {key: size for name, key in self.key_names().items() if (size := getattr(self, name)) is not None}


class MetricSpec(Strict):
    """Bounds of a metric at the end of the run: of one node, or the mean of all nodes that report it."""

    name: str = Field(examples=["accuracy", "loss"])
    scope: str = Field(
        default="global",
        examples=["global", "own", "train"],
        description="of what: of the global test set, own test sets or the training",
    )
    node: str | None = None
    at_least: Number | None = None
    at_most: Number | None = None

    @model_validator(mode="after")
    def _check_bounds(self) -> MetricSpec:
        low, high = self.at_least, self.at_most
        if low is None and high is None:
            raise ValueError("give a bound: at_least, at_most or both")
        if low is not None and high is not None and low > high:
            raise ValueError(f"at_least: {low:g} is more than at_most, {high:g}")
        return self


class ExpectSpec(Strict):
    """The expected results of the run. If one is missed, the check fails and the run ends with exit code 3."""

    accuracy: Fraction | None = Field(default=None, gt=0, description="at least, on the global test set, at the end")
    rounds: int | None = Field(default=None, ge=1, description="lowest number of finished rounds")
    duration: Duration | None = Field(default=None, gt=0, description="at most, of the training")
    bytes: BytesSpec = BytesSpec()
    abandoned: Fraction | None = Field(
        default=None, description="at most, of any node's rounds, for lack of answers; default: 50%"
    )
    metrics: list[MetricSpec] = Field(default=[], description="figures that nodes report, the algorithm's own included")
    checks: list[CheckName] = Field(default=[], description="that must pass; unknown is not a pass")

    def asks(self) -> bool:
        """Whether any result is expected, ``abandoned`` aside: it is a limit of the check "learned"."""
        return self != ExpectSpec(abandoned=self.abandoned)


def expectations(effective: dict[str, Any]) -> ExpectSpec:
    """The expectations of an effective scenario."""
    return ExpectSpec.model_validate(effective.get("expect") or {})
