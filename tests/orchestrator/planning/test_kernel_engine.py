"""What the kernel engine cannot do is refused by the plan, with the reason."""

from __future__ import annotations

import pytest

from orchestrator.errors import PlanError
from orchestrator.fabric.namespaces.wiring import wires_of
from orchestrator.planning.kernel_engine import beyond_kernel_of
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.scenario.reading import parse

SCENARIO = """\
algorithm: {{name: fedavg, rounds: 1}}
topology: {{edges: 0, devices: 1}}
engine: {engine}
driver: {driver}
links: {{device-cloud: {link}}}
{more}
"""
LONG = "{latency: 10s, jitter: 3s}"
SCHEDULE = "{latency: 10ms, schedule: {steps: [{at: 10s, latency: 10s, jitter: 3s}]}}"
FAULT = "faults: [{at: 5s, for: 5s, action: degrade, node: device-0, latency: 10s, jitter: 3s}]"
REASON = r"link \S+ -> \S+ .* jitter of 3s"


def plan_of(link: str, engine: str = "kernel", more: str = "", driver: str = "namespaces") -> Plan:
    return make_plan(parse(SCENARIO.format(link=link, engine=engine, more=more, driver=driver), "jitter.yaml"), None)


@pytest.mark.parametrize(("link", "more"), [(LONG, ""), (SCHEDULE, ""), ("{latency: 10ms}", FAULT)])
def test_a_jitter_that_netem_would_cut_is_refused(link: str, more: str) -> None:
    with pytest.raises(PlanError, match=f"^engine: kernel .*{REASON}"):
        plan_of(link, more=more)


def test_auto_takes_the_other_engine() -> None:
    plan = plan_of(LONG, "auto")
    assert beyond_kernel_of(plan).startswith("the link")
    assert wires_of(plan).beyond_kernel.startswith("the link")


def test_what_netem_holds_is_planned() -> None:
    """At most 2^31 - 1 ns."""
    assert beyond_kernel_of(plan_of("{latency: 10s, jitter: 2.147483647s}")) == ""


def test_a_simulation_has_no_engine() -> None:
    plan_of(LONG, driver="sim")
