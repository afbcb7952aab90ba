"""What the kernel engine cannot do of a plan."""

from __future__ import annotations

from netem import units
from netem.kernel.tc import LONGEST_JITTER
from orchestrator.errors import PlanError
from orchestrator.planning.hosts.on_hosts import requested_links
from orchestrator.planning.media import media_beyond_kernel
from orchestrator.planning.plan import Plan
from orchestrator.scenario.sections.engines import candidate_engines


def beyond_kernel_of(plan: Plan) -> str:
    """The first thing in a few words; empty if the kernel engine can shape all links of a plan, now, later by a
    schedule, or by a fault."""
    beyond = media_beyond_kernel(plan)
    if beyond:
        return beyond
    for link in requested_links(plan.links, plan.faults):
        longest = max(profile.jitter for profile in link.profiles)
        if longest > LONGEST_JITTER:
            most = units.format_duration(round(LONGEST_JITTER, 3))
            jitter = units.format_duration(longest)
            return f"the link {link.source} -> {link.target} has a jitter of {jitter}, and netem's is at most {most}"
    return ""


def refuse_beyond_kernel(plan: Plan) -> None:
    """PlanError if no engine that the scenario allows can shape the links of a plan."""
    if plan.driver_kind.simulated:
        return
    beyond = beyond_kernel_of(plan)
    if not candidate_engines(plan.engine, beyond, media=bool(plan.media)):
        raise PlanError(("engine",), f"{plan.engine} cannot make these links: {beyond}; choose userspace")
