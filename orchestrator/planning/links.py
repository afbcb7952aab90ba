"""The links of a plan: every direction between two nodes that may communicate, with its profile."""

from __future__ import annotations

from netem.profile import LinkProfile
from node.assignment import derive_seed
from orchestrator.planning.plan import LinkPlan
from orchestrator.scenario.schema import Scenario


def plan_links(scenario: Scenario) -> tuple[LinkPlan, ...]:
    """All directions between nodes that may communicate; for each pair, up before down. Under a driver that does not
    shape links, all are real."""
    resolved = scenario.resolved_links
    crossings = scenario.resolved_media.crossings
    visits = set(scenario.visits)
    links = []
    for pair in scenario.pairs:
        for ends in (pair.up, pair.down):
            source, target = ends
            link = LinkPlan(
                source,
                target,
                pair.link_class,
                profile=resolved.profiles[ends],
                seed=derive_seed(scenario.seed, "link", source, target),
                schedule=resolved.schedules.get(ends),
                crossings=crossings.get(ends, ()),
                nat_timeout=resolved.nats.get(ends),
                waits=pair in visits,
                mtu=resolved.mtus.get(ends),
            )
            links.append(link)
    if scenario.driver_kind.shapes_links:
        return tuple(links)
    return tuple(map(_unshaped, links))


def _unshaped(link: LinkPlan) -> LinkPlan:
    """The link under a driver that does not shape it."""
    return LinkPlan(
        link.source,
        link.target,
        link.link_class,
        profile=LinkProfile(real=True),
        seed=link.seed,
        waits=link.waits,
    )
