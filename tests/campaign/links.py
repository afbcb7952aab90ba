"""Random links: profiles by name and by value, for one direction or both, for a class or two nodes, with schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from netem.library import PROFILES
from netem.units import parse_duration
from orchestrator.scenario.sections.topology import Pair, Topology
from tests.campaign.dice import Dice

TRACES = Path(__file__).parents[2] / "scenarios" / "traces"
NAMED = [name for name, profile in PROFILES.items() if (profile.rate or 1e9) > 1e6]  # LoRa takes hours for a model


def pairs_of(topology: Mapping[str, Any], *, meshed: bool) -> list[Pair]:
    """All pairs of nodes that may communicate."""
    return Topology(**topology).pairs(meshed and topology.get("edges", 0) > 1)


def drawn_links(topology: Mapping[str, Any], *, meshed: bool, dice: Dice) -> dict[str, Any]:
    """Draw the links of a scenario; classes that keep their defaults are left out."""
    pairs = pairs_of(topology, meshed=meshed)
    links: dict[str, Any] = {}
    for link_class in dict.fromkeys(pair.link_class for pair in pairs):
        if dice.coin(0.8):
            links[link_class] = _link(dice, level=link_class == "edge-edge")
    for pair in dice.some(pairs, min(len(pairs), dice.pick([0, 0, 1, 2]))):
        arrow = dice.pick(["->", "<->"])
        links[f"{pair.lower} {arrow} {pair.upper}"] = profile(dice) | _schedule(dice)
    return links


def slowest(links: Mapping[str, Any]) -> float:
    """An upper bound of the latency of all links in seconds, including their schedules."""
    return max([0.001, *_latencies(links)])


def profile(dice: Dice, *, least: int = 1) -> dict[str, Any]:
    """Draw a profile by value with at least ``least`` keys."""
    settings: dict[str, Any] = {
        "latency": dice.seconds(1e-4, 0.5),
        "jitter": dice.seconds(1e-4, 0.1),
        "loss": _loss(dice),
        "rate": f"{dice.number(100, 1e6):.15g}kbit",
        "duplicate": dice.percent(0.1, 10),
        "corrupt": dice.percent(0.1, 5),
    }
    chosen = dice.some(list(settings), dice.whole(least, 4))
    return {name: settings[name] for name in chosen}


def _loss(dice: Dice) -> Any:
    if dice.coin():
        return dice.percent(0.01, 30)
    return {"gilbert-elliott": {"p": dice.percent(0.1, 10), "r": dice.percent(5, 90)}}


def _link(dice: Dice, *, level: bool) -> dict[str, Any]:
    link: dict[str, Any] = {"profile": dice.pick(NAMED)} if dice.coin(0.4) else profile(dice)
    if not level and dice.coin(0.2):
        link[dice.pick(["up", "down"])] = profile(dice)
    return link | _schedule(dice)


def _schedule(dice: Dice) -> dict[str, Any]:
    if not dice.coin(0.3):
        return {}
    kind = dice.pick(["steps", "ramp", "handover", "trace", "csv"])
    if kind == "trace":
        return {"schedule": {"trace": str(TRACES / "lte-up.txt"), "window": dice.seconds(0.1, 2)}}
    if kind == "csv":
        return {"schedule": {"csv": str(TRACES / "satellite.csv"), "repeat": "15s"}}
    at = sorted(dice.number(0.01, 30) for _ in range(dice.whole(1, 3)))
    changes: dict[str, list[dict[str, Any]]] = {
        "steps": [{"at": f"{t}s", **profile(dice)} for t in at],
        "ramp": [{"at": f"{at[0]}s", "over": dice.seconds(0.1, 5), "to": {"latency": dice.seconds(1e-3, 0.5)}}],
        "handover": [{"at": f"{at[0]}s", "interruption": dice.seconds(0.01, 5), **profile(dice)}],
    }
    schedule: dict[str, Any] = {kind: changes[kind]}
    if dice.coin(0.3):
        schedule["repeat"] = f"{at[-1] + dice.number(6, 30):.3f}s"
    return {"schedule": schedule}


def _latencies(value: Any) -> Iterator[float]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "latency":
                yield parse_duration(inner)
            elif key == "profile":
                yield PROFILES[inner].latency
            elif key == "csv":
                yield 0.5
            else:
                yield from _latencies(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _latencies(inner)
