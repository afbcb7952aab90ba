"""How a run stands, and what was planned for it, in plain JSON values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Reversible, Sequence
from typing import Any

from netem.errors import NetemError
from netem.library import PROFILES
from netem.profile import LinkProfile
from orchestrator.record.events.links import LossAudit
from orchestrator.record.rows import CUTS, Ends, State
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
NODE_FACTS = ("name", "tier", "parent", "samples", "host")
Row = list[Any]  # the figures of a node, a link or a medium, in a fixed order
Json = dict[str, Any]
Planned = Mapping[str, Any]  # a part of plan.json
ENDS = ("planned", "done", "left", "crashed", "failed")  # states that the end of the orchestrator does not change


def planned(history: History) -> Json:
    """What does not change while a run goes on: its nodes, links and faults, in the plan's order, and its clock."""
    plan = history.plan
    if plan.get("programs"):
        algorithm = None
    else:
        algorithm = (plan.get("algorithm") or {}).get("name")
    media = plan.get("media", ())
    nodes = [_node(node, media) for node in history.nodes.values()]
    planned_links = plan.get("links", [])
    links = [_link(history, link) for link in planned_links]
    link_classes = dict.fromkeys(history.link_classes.values())
    return {
        "name": str(plan.get("name") or history.run),
        "question": question(history),
        "algorithm": algorithm,
        "driver": history.driver,
        "simulated": history.simulated,
        "rounds": history.rounds_planned,
        "clients": history.clients,
        "profiles": list(PROFILES),
        "colours": {name: link_colour(name) for name in link_classes},
        "nodes": nodes,
        "links": links,
        "picture": geometry(picture(history)),
    }


def geometry(drawn: Picture) -> Json:
    """The report's picture of nodes and links, without what the run has made of them."""
    nodes: list[Row] = []
    for dot in drawn.dots:
        node = [
            dot.name,
            dot.tier,
            dot.x,
            dot.y,
            dot.size,
            dot.label,
            dot.beside,
        ]
        nodes.append(node)
    links: list[Row] = []
    for line in drawn.lines:
        links.append([*line.ends, line.path, line.colour])
    media: list[Row] = []
    for mark in drawn.media:
        medium = [
            mark.name,
            mark.x,
            mark.y,
            mark.width,
            mark.channels,
        ]
        media.append(medium)
    return {
        "width": drawn.width,
        "height": drawn.height,
        "nodes": nodes,
        "links": links,
        "media": media,
    }


def present(
    story: Story,
    results: Collection[Check],
    rates: Mapping[Ends, float | None],
) -> Json:
    """How the run stands at its latest row. ``results``: the checks as they stood when they were last made.
    ``rates``: see `rates_of`.

    trained: the seconds of training; None before it starts. round: the one that goes on; when the run has ended, how
    many were done. nodes: [activity, detail, cores used, bytes of memory], links: [state, bytes/s, bytes delivered,
    packets that did not arrive], each in the plan's order. media: the fraction of its time for which
    each channel of a shared medium was occupied lately. handovers: the present medium of each node that was handed
    over. memory_measure: which memory that of the nodes is (`Usage.memory`).
    """
    status = story.status
    outcome = story.outcome
    running = status == "running"
    in_progress = running or story.behind
    faults = story.faults_in_force() if running else []
    left = story.time_left() if running else None
    coming = story.next_fault() if running else None
    following = None
    if coming:
        following = [fault_in_words(coming.planned), coming.when]
    metric = story.main_metric
    coverage = str(story.coverage() or "")
    return {
        "status": status,
        "behind": story.behind,
        "now": round(story.seconds, 3),
        "trained": _trained(story, in_progress=in_progress),
        "engine": story.engine,
        "ended": outcome.ended if outcome else None,
        "error": outcome.error if outcome else None,
        "verdict": overall(results) if results else None,
        "checks": list(results),
        "lost": lost_hosts(story),
        "metric": [metric, story.latest(metric), coverage],
        "round": story.round if in_progress else story.rounds_done(),
        "left": left._asdict() if left else None,
        "next": following,
        "nodes": _nodes_now(story, running=running),
        "memory_measure": story.usage.memory_measure,
        "links": _flows(story, rates, faults, running=running),
        "media": _media_now(story, running=running),
        "handovers": _handovers(faults),
        "kinds": _kinds(story),
        "probes": len(story.probes()),
        "looks": len(story.events(LossAudit.NAME)),
    }


def _trained(story: Story, *, in_progress: bool) -> float | None:
    """The seconds of training until now, or until its end; None before it starts."""
    began = story.training_began
    if began is None:
        return None
    until = story.seconds if in_progress else story.training_ended
    return round(until - began, 3)


def _nodes_now(story: Story, *, running: bool) -> list[Row]:
    activities = story.activities()
    nodes = []
    for name in story.nodes:
        node = _node_now(story, name, activities[name], running=running)
        nodes.append(node)
    return nodes


def _media_now(story: Story, *, running: bool) -> dict[str, float]:
    """The fraction of its time for which each channel was occupied lately."""
    if not running:
        return dict.fromkeys(story.usage.occupied, 0.0)
    shares = {}
    for channel in story.usage.occupied:
        shares[channel] = _busy(story, channel)
    return shares


def _handovers(faults: Iterable[Planned]) -> dict[str, str]:
    """The present medium of each node that was handed over."""
    handovers = {}
    for fault in faults:
        if fault["action"] == "handover":
            handovers[fault["node"]] = fault["to"]
    return handovers


def _kinds(story: Story) -> dict[str, list[int]]:
    """Messages and bytes sent of each kind."""
    kinds = {}
    for kind, counts in story.usage.kinds.items():
        messages, size = counts
        kinds[kind] = [round(messages), round(size)]
    return kinds


def _node_now(
    story: Story,
    name: str,
    activity: str,
    *,
    running: bool,
) -> Row:
    """What a node does and uses, as far as the record shows; it has no processor time of a simulated node. When the
    orchestrator is gone, so are the nodes that it did not end."""
    planned_state = State(0.0, name, "planned", "")
    since, _, state, detail = story.latest_states.get(name, planned_state)
    cpu = story.usage.cpu.get(name)
    memory = story.usage.memory.get(name, 0)
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
        work = _work(story, name, share)
        detail = ", ".join(filter(None, (detail, work)))
    return [activity, detail, round(share, 3), memory]


def _work(story: Story, name: str, share: float) -> str:
    """What a node does at present, by the cores that it uses (``share``) and its messages; empty if it waits."""
    hardware = story.nodes[name].get("hardware") or {}
    speed = hardware.get("speed") or 1.0
    if share >= COMPUTES * min(1.0, speed):
        return "computing"
    sent_last = story.usage.sending.get(name, -SENDS)
    if story.seconds - sent_last < SENDS:
        return "sending"
    return ""


def _flows(
    story: Story,
    rates: Mapping[Ends, float | None],
    faults: Iterable[Planned],
    *,
    running: bool,
) -> list[Row]:
    """Each direction of a link in the plan's order."""
    cut: set[Ends] = set()
    changed: set[Ends] = set()
    for fault in faults:
        affected = cut if fault["action"] in CUTS else changed
        affected.update(_pairs(fault))
    flows = []
    for ends, configured_rate in rates.items():
        rate = _rate_now(story, ends, running=running)
        if ends in cut:
            state = "cut"
        elif ends in changed:
            state = "degraded"
        else:
            state = _load(rate, configured_rate)
        flow = story.usage.links.get(ends)
        dropped = story.usage.dropped.get(ends)
        flows.append([state, round(rate), _total(flow), _total(dropped)])
    return flows


def _total(count: GrowingCount | None) -> int:
    if count is None:
        return 0
    return round(count.total)


def _rate_now(story: Story, ends: Ends, *, running: bool) -> float:
    """The bytes/s that a direction delivers."""
    flow = story.usage.links.get(ends)
    if running and flow is not None and _is_fresh(story, flow):
        return flow.rate
    return 0.0


def _load(rate: float, configured_rate: float | None) -> str:
    """The state of a link without a fault, by the bytes/s that it delivers and its configured bit/s."""
    if not rate:
        return "idle"
    if configured_rate and 8 * rate >= BUSY * configured_rate:
        return "busy"
    return "in use"


def _busy(story: Story, channel: str) -> float:
    """The fraction of the time between the latest reading and the sample before it."""
    usage = story.usage
    occupied = usage.occupied[channel]
    t, seconds = next(reversed(occupied.items()))
    if story.seconds - t > FRESH:
        return 0.0
    began = story.training_began or 0.0
    sampled: list[Reversible[float]] = list(usage.delivered.values())
    sampled.extend(usage.occupied.values())
    before = max(_latest_before(t, times, began) for times in sampled)
    steps = utilisation({t: seconds}, [before], began)
    return max(round(share, 3) for _, share in steps)


def _latest_before(t: float, times: Reversible[float], default: float) -> float:
    """The latest of increasing ``times`` that is before ``t``."""
    for time in reversed(times):
        if time < t:
            return time
    return default


def _is_fresh(story: Story, flow: GrowingCount) -> bool:
    return story.seconds - flow.t <= FRESH


def _node(node: Planned, media: Sequence[Planned]) -> Json:
    """``medium``: the one that the node is in, and can be handed over from."""
    facts = {key: node.get(key) for key in NODE_FACTS}
    hardware = node.get("hardware") or {}
    name = node["name"]
    media_of_node = [medium["name"] for medium in media if name in medium["members"]]
    medium = None
    if len(media_of_node) == 1:
        (medium,) = media_of_node
    return {**facts, "hardware": hardware.get("name"), "medium": medium}


def _link(history: History, link: Planned) -> Json:
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


def _pairs(fault: Planned) -> list[Ends]:
    links = fault.get("links") or ()
    return [(link[0], link[1]) for link in links]


def rates_of(plan: Planned) -> dict[Ends, float | None]:
    """The configured rate of each link, bit/s."""
    rates = {}
    for link in plan.get("links", []):
        ends = (link["source"], link["target"])
        profile = link["profile"]
        rates[ends] = _rate(profile)
    return rates


def _rate(profile: Planned) -> float | None:
    try:
        return LinkProfile.from_mapping(profile).rate
    except NetemError:
        return None
