"""How a run stands, and what was planned for it, in plain JSON values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Reversible, Sequence
from typing import Any

from netem.errors import NetemError
from netem.library import PROFILES
from netem.profile import LinkProfile
from orchestrator.record.events.links import LossAudit
from orchestrator.record.rows import State
from orchestrator.record.words import CUTS, Ends
from orchestrator.report.figures import link_colour
from orchestrator.report.topology import Picture, describe, picture
from orchestrator.results.checks.registry import Check, overall
from orchestrator.results.facts import RUNNING
from orchestrator.results.forecast import fault_in_words
from orchestrator.results.history import History
from orchestrator.results.presence import lost_hosts
from orchestrator.results.question import question
from orchestrator.results.story import Story
from orchestrator.results.traffic.media import utilisation
from orchestrator.results.traffic.usage import GrowingCount
from orchestrator.serve.figures import FRESH

COMPUTES = 0.2  # of the speed of its hardware, from which on a node counts as computing
SENDS = 1.2  # s since its messages grew, within which a node counts as sending
BUSY = 0.5  # of a link's rate
ENDS = ("planned", "done", "left", "crashed", "failed")  # states that the end of the orchestrator does not change


def planned(history: History) -> dict[str, Any]:
    """What does not change while a run goes on: its nodes, links and faults, in the plan's order, and its clock."""
    plan = history.plan
    algorithm = None
    if not plan.get("programs"):
        algorithm = (plan.get("algorithm") or {}).get("name")
    link_classes = dict.fromkeys(history.link_classes.values())
    media = plan.get("media", ())
    return {
        "name": str(plan.get("name") or history.run),
        "question": question(history),
        "algorithm": algorithm,
        "driver": history.driver,
        "simulated": history.simulated,
        "rounds": history.rounds_planned,
        "clients": history.clients,
        "profiles": list(PROFILES),
        "colours": {link_class: link_colour(link_class) for link_class in link_classes},
        "nodes": [_node(node, media) for node in history.nodes.values()],
        "links": [_link(history, link) for link in plan.get("links", [])],
        "picture": geometry(picture(history)),
    }


def geometry(drawn: Picture) -> dict[str, Any]:
    """The report's picture of nodes and links, without what the run has made of them."""
    nodes = []
    for dot in drawn.dots:
        nodes.append([dot.name, dot.tier, dot.x, dot.y, dot.size, dot.label, dot.beside])
    links = []
    for line in drawn.lines:
        links.append([*line.ends, line.path, line.colour])
    media = []
    for medium in drawn.media:
        media.append([medium.name, medium.x, medium.y, medium.width, medium.channels])
    return {"width": drawn.width, "height": drawn.height, "nodes": nodes, "links": links, "media": media}


def present(story: Story, results: Collection[Check], rates: Mapping[Ends, float | None]) -> dict[str, Any]:
    """How the run stands at its latest row. ``results``: the checks as they stood when they were last made.
    ``rates``: see `rates_of`.

    trained: the seconds of training; None before it starts. round: the one that goes on; when the run has ended, how
    many were done. nodes: [activity, detail, cores used, bytes of memory], links: [state, bytes/s, bytes delivered,
    packets that did not arrive], each in the plan's order. media: the fraction of its time for which
    each channel of a shared medium was occupied lately. handovers: the present medium of each node that was handed
    over. memory_measure: which memory that of the nodes is (`Usage.memory`).
    """
    outcome = story.outcome
    status = story.status
    running = status == "running"
    began = story.training_began
    until = story.seconds if running or story.behind else story.training_ended
    in_force = story.faults_in_force() if running else []
    does = story.activities()
    cut: set[Ends] = set()
    changed: set[Ends] = set()
    for fault in in_force:
        affected = cut if fault["action"] in CUTS else changed
        affected.update(_pairs(fault))
    trained = None
    if began is not None:
        trained = round(until - began, 3)
    left = story.time_left() if running else None
    coming = story.next_fault() if running else None
    covered = str(story.coverage() or "")
    return {
        "status": status,
        "behind": story.behind,
        "now": round(story.seconds, 3),
        "trained": trained,
        "engine": story.engine,
        "ended": outcome.ended if outcome else None,
        "error": outcome.error if outcome else None,
        "verdict": overall(results) if results else None,
        "checks": list(results),
        "lost": lost_hosts(story),
        "metric": [story.main_metric, story.latest(story.main_metric), covered],
        "round": story.round if running or story.behind else story.rounds_done(),
        "left": left._asdict() if left else None,
        "next": [fault_in_words(coming.planned), coming.when] if coming else None,
        "nodes": [_node_now(story, name, does[name], running=running) for name in story.nodes],
        "memory_measure": story.usage.memory_measure,
        "links": [_flow(story, ends, rate, cut, changed, running=running) for ends, rate in rates.items()],
        "media": {name: _busy(story, name) if running else 0.0 for name in story.usage.occupied},
        "handovers": {fault["node"]: fault["to"] for fault in in_force if fault["action"] == "handover"},
        "kinds": {kind: [round(count) for count in counts] for kind, counts in story.usage.kinds.items()},
        "probes": len(story.probes()),
        "looks": len(story.events(LossAudit.NAME)),
    }


def _node_now(story: Story, name: str, activity: str, *, running: bool) -> list[Any]:
    """What a node does and uses, as far as the record shows; it has no processor time of a simulated node. When the
    orchestrator is gone, so are the nodes that it did not end."""
    since, _, state, detail = story.latest_states.get(name, State(0.0, name, "planned", ""))
    cpu = story.usage.cpu.get(name)
    latest = story.latest_round(name)
    if running and cpu is not None and _is_fresh(story, cpu):
        share = cpu.rate
    else:
        share = 0.0
    if not running:
        activity = state if state in ENDS else "gone"
    elif latest is not None and latest.end is None and latest.start >= since:
        detail = f"round {latest}"
    if running and state == RUNNING and not story.simulated:
        hardware = story.nodes[name].get("hardware") or {}
        speed = hardware.get("speed") or 1.0
        sent_ago = story.seconds - story.usage.sending.get(name, -SENDS)
        does = ""
        if share >= COMPUTES * min(1.0, speed):
            does = "computing"
        elif sent_ago < SENDS:
            does = "sending"
        detail = ", ".join(filter(None, (detail, does)))
    return [activity, detail, round(share, 3), story.usage.memory.get(name, 0)]


def _flow(
    story: Story,
    ends: Ends,
    most: float | None,
    cut: Collection[Ends],
    changed: Collection[Ends],
    *,
    running: bool,
) -> list[Any]:
    flow = story.usage.links.get(ends)
    dropped = story.usage.dropped.get(ends)
    if running and flow is not None and _is_fresh(story, flow):
        rate = flow.rate
    else:
        rate = 0.0
    if ends in cut:
        state = "cut"
    elif ends in changed:
        state = "degraded"
    elif rate:
        is_busy = most and 8 * rate >= BUSY * most
        state = "busy" if is_busy else "in use"
    else:
        state = "idle"
    delivered_bytes = round(flow.total) if flow else 0
    dropped_packets = round(dropped.total) if dropped else 0
    return [state, round(rate), delivered_bytes, dropped_packets]


def _busy(story: Story, channel: str) -> float:
    """The fraction of the time between the latest reading and the sample before it."""
    usage = story.usage
    t, seconds = next(reversed(usage.occupied[channel].items()))
    if story.seconds - t > FRESH:
        return 0.0
    began = story.training_began or 0.0
    samples: list[Reversible[float]] = [*usage.delivered.values(), *usage.occupied.values()]
    latest_before = []
    for times in samples:
        earlier = (sample for sample in reversed(times) if sample < t)
        latest_before.append(next(earlier, began))
    steps = utilisation({t: seconds}, [max(latest_before)], began)
    return max(round(share, 3) for _, share in steps)


def _is_fresh(story: Story, flow: GrowingCount) -> bool:
    return story.seconds - flow.t <= FRESH


def _node(node: Mapping[str, Any], media: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """``medium``: the one that the node is in, and can be handed over from."""
    facts = {key: node.get(key) for key in ("name", "tier", "parent", "samples", "host")}
    within = [medium["name"] for medium in media if node["name"] in medium["members"]]
    medium = within[0] if len(within) == 1 else None
    return facts | {"hardware": (node.get("hardware") or {}).get("name"), "medium": medium}


def _link(history: History, link: Mapping[str, Any]) -> dict[str, Any]:
    source = link["source"]
    target = link["target"]
    return {
        "source": source,
        "target": target,
        "class": link["link_class"],
        "kind": history.link_kinds[source, target],
        "asked": describe(link["profile"]),
        "changes": "schedule" in link,
    }


def _pairs(fault: Mapping[str, Any]) -> list[Ends]:
    return [(link[0], link[1]) for link in fault.get("links") or ()]


def rates_of(plan: Mapping[str, Any]) -> dict[Ends, float | None]:
    """The configured rate of each link, bit/s."""
    rates = {}
    for link in plan.get("links", []):
        rates[link["source"], link["target"]] = _rate(link["profile"])
    return rates


def _rate(profile: Mapping[str, Any]) -> float | None:
    try:
        return LinkProfile.from_mapping(profile).rate
    except NetemError:
        return None
