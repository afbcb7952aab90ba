"""Random faults: every action, by time, by round and by chance, temporary or permanent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netem.units import parse_duration
from node.algorithms.registry import Algorithm
from orchestrator.scenario.sections.topology import Topology
from tests.campaign.dice import Dice
from tests.campaign.links import pairs_of, profile

ACTIONS = ("crash", "pause", "disconnect", "partition", "degrade", "slow", "join", "leave")


def drawn_faults(
    topology: Mapping[str, Any],
    algorithm: Algorithm,
    rounds: int,
    stop: Mapping[str, Any],
    links: Mapping[str, Any],
    dice: Dice,
) -> list[dict[str, Any]]:
    """Draw the faults of a scenario. Most cases use few of the actions."""
    members = Topology(**topology).members()
    tiers = {member.name: member.tier for member in members}
    groups = [group for group, tier in (("devices", "device"), ("edges", "edge")) if tier in tiers.values()]
    leading = [name for name, tier in tiers.items() if tier == algorithm.leader]
    meshed = algorithm.meshed or "edge-edge" in links
    pairs = pairs_of(topology, meshed=meshed)
    actions = dice.some(ACTIONS, dice.whole(1, len(ACTIONS)))
    latest = 0.99 * min(parse_duration(stop["after"]) if "after" in stop else 30.0, 30.0)
    there = {name for name in tiers if len(leading) > 1 or name not in leading}  # nodes that may join or leave
    faults: list[dict[str, Any]] = []
    for _ in range(dice.pick([0, 1, 2, 3, 5, 8])):
        action = dice.pick(actions)
        if action in ("join", "leave"):
            if there:
                name = dice.pick(sorted(there))
                there.discard(name)
                faults.append({"action": action, "node": name, **_once(dice, rounds, latest)})
            continue
        fault: dict[str, Any] = {"action": action}
        if action == "partition" or (action == "degrade" and dice.coin(0.3)):
            pair = dice.pick(pairs)
            fault |= {"between": [pair.lower, pair.upper], **_when(dice, rounds, latest)}
        elif groups and dice.coin(0.6):
            fault |= _of_group(dice, dice.pick(groups), rounds, latest)
        else:
            fault |= {"node": dice.pick(sorted(tiers)), **_when(dice, rounds, latest)}
        if action == "slow":
            fault["factor"] = dice.number(1.1, 30)
        if action == "degrade":
            fault |= profile(dice)
        if dice.coin(0.7):
            fault["for"] = dice.seconds(0.01, 20)
        faults.append(fault)
    joining = {fault["node"] for fault in faults if fault["action"] == "join"}
    return [fault for fault in faults if fault["action"] == "join" or fault.get("node") not in joining]


def _once(dice: Dice, rounds: int, latest: float) -> dict[str, Any]:
    if dice.coin():
        return {"round": dice.whole(1, rounds)}
    return {"at": dice.seconds(0.001, latest)}


def _when(dice: Dice, rounds: int, latest: float) -> dict[str, Any]:
    if dice.coin(0.2):
        return {"random": {"mean": dice.seconds(latest / 10, latest), "until": f"{latest:.4f}s"}}
    return _once(dice, rounds, latest)


def _of_group(dice: Dice, group: str, rounds: int, latest: float) -> dict[str, Any]:
    if dice.coin(0.4):
        return {"every_round": dice.percent(5, 100), "of": group}
    when = _when(dice, rounds, latest)
    return {**when, "of": group, **({"count": 1} if dice.coin() else {"fraction": dice.percent(5, 100)})}
