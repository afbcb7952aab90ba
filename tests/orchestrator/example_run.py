"""Builds the record of a run that never was: realistic, and the same to the byte of every figure each time.

By default 1 cloud, 3 edges, 12 devices and 10 rounds, with faults of four kinds, probes and counters. To look at its
report: ``python -m tests.orchestrator.example_run DIRECTORY [HOSTS [CLASS]]``; CLASS: of links that are real.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.record.events.network import FramesReading, NetworkReading, PairReading
from orchestrator.record.events.run import Injected
from orchestrator.record.rows import ProbeResult
from orchestrator.record.schema import COUNTERS
from orchestrator.record.writer import Record

SETUP = 6.5  # s from the beginning of the run to the beginning of the training
ROUND = 4.0  # s
SWITCHED_OFF = "/sys/class/thermal/thermal_zone2/temp: Resource temporarily unavailable (it is switched off)"
LOST = "its agent restarted"
MODEL = 248_024  # bytes of one model message
PROFILES: dict[str, dict[str, Any]] = {
    "device-edge": {"latency": "3ms", "jitter": "1ms", "loss": "0.2%", "rate": "40mbit"},
    "edge-cloud": {"latency": "40ms", "jitter": "5ms", "loss": "0.5%", "rate": "50mbit"},
    "edge-edge": {"latency": "2ms", "rate": "1gbit"},
}
SCENARIO = """\
# Does hierarchical averaging keep its accuracy when a fifth of the devices drop out each round?

name: dropout
seed: 7
algorithm: {name: hierfavg, rounds: 10}
"""
META: dict[str, Any] = {
    "started": "2026-05-04T09:30:00+0000",
    "command": ["edgebed", "up", "scenarios/dropout.yaml"],
    "driver": "namespaces",
    "python": "3.11.7",
    "packages": {"edgebed": "0.1.0", "numpy": "2.4.6", "pyzmq": "27.3.0", "torch": "2.13.0"},
    "platform": "Linux-6.1.0-x86_64",
    "kernel": "6.1.0",
    "cpu": "Example CPU @ 2.40GHz",
    "cores": 8,
    "memory": 16_000_000_000,
}


@dataclass
class Example:
    """What to build. ``ending`` is an outcome, or None for a run cut short after ``rounds_made``."""

    edges: int = 3
    devices_per_edge: int = 4
    rounds: int = 10
    rounds_made: int | None = None
    ending: str | None = "rounds"
    seed: int = 7
    with_faults: bool = True
    settings: dict[str, Any] = field(default_factory=dict)
    probe_error: float = 0.02  # how far measured and asked are apart
    overruns: int = 0
    gain: float = 0.31  # how quickly the accuracy rises
    driver: str = "namespaces"
    sensors: bool = False  # whether the host is a board that tells about itself
    hosts: int = 0  # hosts of nodes, edge by edge; the second is lost in round 4 and is back in round 6
    by_hand: bool = False  # whether somebody has made a fault
    devices_report: bool = False  # whether devices tell the accuracy and the loss on their own samples
    real: tuple[str, ...] = ()  # classes whose links are real where they cross hosts
    tcp: dict[str, str] = field(default_factory=dict)  # the TCP settings of nodes

    def build(self, directory: Path) -> Path:
        """Write the run into ``directory`` and return it."""
        _Builder(self, directory).build()
        return directory


def plan_of(example: Example) -> dict[str, Any]:
    """The part of plan.json that the record's readers depend on."""
    nodes = list(_nodes(example))
    for node in nodes if example.hosts else ():
        group = node["name"].split("-")[1:2]
        node["host"] = host_name(int(group[0]) % example.hosts if group else 0)
    links = [link for node in nodes for link in _links(node, nodes)]
    homes = {node["name"]: node.get("host") for node in nodes}
    for link in links:
        if link["link_class"] in example.real and homes[link["source"]] != homes[link["target"]]:
            link["profile"] = {"real": True}
    return {
        "name": "dropout",
        "seed": example.seed,
        "driver": example.driver,
        "engine": "auto",
        "algorithm": {"name": "hierfavg", "params": {"rate": 0.05}},
        "model": "cnn",
        "data": {"classes": 10, "test_samples": 10_000, "test_counts": [1000] * 10},
        "stop": {"rounds": example.rounds, "accuracy": None, "after": None},
        "nodes": nodes,
        "links": links,
        **({"hosts": [_host(number) for number in range(example.hosts)]} if example.hosts else {}),
        "faults": _faults(example, nodes, links) if example.with_faults else [],
    }


def host_name(number: int) -> str:
    return f"pc-{number + 1}"


def _host(number: int) -> dict[str, Any]:
    labels = {"edgebed.hardware": "jetson-orin-nano"} if number == 1 else {}
    facts = {"architecture": "amd64", "cores": 8.0, "memory": 16_000_000_000, "labels": labels, "manager": number == 0}
    return {"name": host_name(number), "address": f"192.0.2.{number + 1}", **facts}


def _nodes(example: Example) -> Iterator[dict[str, Any]]:
    edges = [f"edge-{i}" for i in range(example.edges)]
    yield _node("cloud", "cloud", None, edges, leads=True)
    for i, edge in enumerate(edges):
        devices = [f"device-{i}-{j}" for j in range(example.devices_per_edge)]
        yield _node(edge, "edge", "cloud", devices, neighbours=[other for other in edges if other != edge])
    for i, edge in enumerate(edges):
        for j in range(example.devices_per_edge):
            yield _node(f"device-{i}-{j}", "device", edge, [])


def _node(
    name: str,
    tier: str,
    parent: str | None,
    children: list[str],
    neighbours: list[str] | None = None,
    leads: bool = False,
) -> dict[str, Any]:
    hardware = {"name": {"cloud": "host", "edge": "jetson-orin-nano", "device": "raspberry-pi-4"}[tier]}
    return {
        "name": name,
        "tier": tier,
        "parent": parent,
        "children": children,
        "neighbours": neighbours or [],
        "hardware": hardware,
        "samples": 480 if tier == "device" else 0,
        "leads": leads,
    }


def _links(node: dict[str, Any], nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    tiers = {each["name"]: each["tier"] for each in nodes}
    for peer in [*filter(None, [node["parent"]]), *node["children"], *node["neighbours"]]:
        order = ["device", "edge", "cloud"]
        pair = sorted((tiers[node["name"]], tiers[peer]), key=order.index)
        link_class = "-".join(pair)
        profile = PROFILES[link_class]
        yield {"source": node["name"], "target": peer, "link_class": link_class, "profile": profile, "seed": 1}


def _faults(example: Example, nodes: list[dict[str, Any]], links: list[dict[str, Any]]) -> list[dict[str, Any]]:
    devices = [node["name"] for node in nodes if node["tier"] == "device"]
    if not devices:
        return []
    rng = random.Random(example.seed)
    faults: list[dict[str, Any]] = [
        {"action": "crash", "node": devices[len(devices) // 2], "at": 9.0, "duration": 7.0},
        {"action": "slow", "node": devices[-1], "at": 14.0, "duration": 10.0, "factor": 3.0},
        {"action": "partition", "between": [["edge-0"], ["cloud"]], "at": 22.0, "duration": 6.0},
    ]
    for round in range(2, example.rounds + 1):
        for device in rng.sample(devices, max(1, len(devices) // 5)):
            faults.append({"action": "disconnect", "node": device, "round": round, "lasts_a_round": True})
    keys = ("node", "between", "at", "round", "duration", "profile", "factor")
    blank: dict[str, Any] = {**dict.fromkeys(keys), "lasts_a_round": False, "links": []}
    listed = [{"id": id, **blank, **fault} for id, fault in enumerate(faults, start=1)]
    for fault in listed:
        pairs = [(link["source"], link["target"]) for link in links]
        if fault["action"] == "disconnect":
            fault["links"] = [pair for pair in pairs if fault["node"] in pair]
        elif fault["between"]:
            fault["links"] = [
                pair for pair in pairs if set(pair) == {name for side in fault["between"] for name in side}
            ]
    return listed


def _by_hand(id: int) -> dict[str, Any]:
    fault: dict[str, Any] = dict.fromkeys(("between", "round", "profile", "factor"))
    fault |= {"id": id, "action": "crash", "node": "device-0-0", "at": 12.0, "duration": 3.0}
    return fault | {"lasts_a_round": False, "links": []}


class _Builder:
    """Plays the run second by second and writes down what the orchestrator would have written."""

    def __init__(self, example: Example, directory: Path) -> None:
        self.example = example
        self.plan = plan_of(example)
        self.by_hand = [_by_hand(len(self.plan["faults"]) + 1)] if example.by_hand else []
        self.rng = random.Random(example.seed)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "scenario.yaml").write_text(SCENARIO)
        effective = {
            "name": "dropout",
            "seed": example.seed,
            "algorithm": {"name": "hierfavg", "rounds": example.rounds, "rate": 0.05},
            "topology": {"edges": example.edges, "devices_per_edge": example.devices_per_edge, "cloud": True},
            "links": PROFILES,
            **example.settings,
        }
        self.record = Record.create(
            directory, json.dumps(self.plan, indent=1), {**META, "driver": example.driver, "effective": effective}
        )
        self.record.engine("userspace", example.tcp)
        self.links = {
            (link["source"], link["target"]): {**link, **dict.fromkeys(COUNTERS, 0)} for link in self.plan["links"]
        }
        self.traffic: dict[tuple[str, str, str, str], list[int]] = {}
        self.sensed: dict[tuple[str, str, str, str], float] = {}  # by host, quantity, source, scope
        self.sensing = [host_name(number) for number in range(example.hosts)] or [""]
        self.cuts: dict[int, set[tuple[str, str]]] = {}
        self.down: set[str] = set()
        self.in_force: list[dict[str, Any]] = []

    def build(self) -> None:
        made = self.example.rounds if self.example.rounds_made is None else self.example.rounds_made
        if self.example.real:
            self.read_network(0)
        self.start_nodes()
        self.probe()
        if self.example.sensors:
            self.sense(SETUP - 0.1, everything=True)
            for host in self.sensing:
                switched_off = ("temperature", "thermal", "zone cv0-thermal", None, SWITCHED_OFF)
                self.record.sensors(SETUP - 0.1, host, [switched_off])
        self.record.event(SETUP, None, "training", None, {})
        for node in self.plan["nodes"]:
            self.record.state(SETUP, node["name"], "running")
        for round in range(1, made + 1):
            self.turn_hosts(round)
            self.play_round(round)
            if self.example.real:
                self.read_network(round)
        self.finish(SETUP + made * ROUND)

    def turn_hosts(self, round: int) -> None:
        if self.example.hosts < 2 or round not in (4, 6):
            return
        t, host = SETUP + (round - 1) * ROUND + 0.7, host_name(1)
        state, reason = ("lost", LOST) if round == 4 else ("back", "")
        if round == 4:
            self.sensing.remove(host)
            known = sorted({key[1:] for key in self.sensed if key[0] == host})
            self.record.sensors(t, host, [(*key, None, f"the host is lost: {LOST}") for key in known])
        else:
            self.sensing.insert(1, host)
            self.sensed = {key: value for key, value in self.sensed.items() if key[0] != host}
        self.record.event(t, None, "host", round, {"host": host, "state": state, "reason": reason})
        for node in self.plan["nodes"]:
            if node["host"] == host and round == 4:
                self.record.state(t, node["name"], "crashed", "killed by SIGKILL")
                self.record.state(t, node["name"], "restarting", "restart 1")
            elif node["host"] == host:
                self.record.state(t + 0.1, node["name"], "starting")
                self.record.state(t + 1.3, node["name"], "running")

    def start_nodes(self) -> None:
        for index, node in enumerate(self.plan["nodes"]):
            start = 0.4 + 2.0 * index / len(self.plan["nodes"])
            self.record.state(start, node["name"], "starting")
            self.record.state(start + 1.1 + 0.3 * self.rng.random(), node["name"], "registered")

    def probe(self) -> None:
        seen: dict[str, int] = {}
        for (source, target), link in self.links.items():
            link_class = link["link_class"]
            seen[link_class] = seen.get(link_class, 0) + 1
            if seen[link_class] > 2:
                continue
            if link["profile"].get("real"):
                seen[link_class] -= 1
                self.probe_real(source, target, link_class)
                continue
            profile = PROFILES[link_class]
            rtt = 2 * float(profile["latency"].removesuffix("ms")) / 1e3
            rate = float(profile["rate"].rstrip("mgbit")) * (1e9 if "gbit" in profile["rate"] else 1e6)
            asked = {"rtt": rtt, "rate": rate}
            if "loss" in profile:
                asked["loss"] = float(profile["loss"].removesuffix("%")) / 100
            for quantity, value in asked.items():
                measured = value * (1 + self.example.probe_error * self.rng.uniform(0.5, 1.0))
                low, high = value * 0.9, value * 1.1
                verdict = "pass" if low <= measured <= high else "fail"
                self.record.probe(
                    ProbeResult(5.0, source, target, link_class, quantity, value, measured, low, high, verdict)
                )

    def probe_real(self, source: str, target: str, link_class: str) -> None:
        figures = {"rtt": 0.00042, "loss": 0.004, "duplicate": 0.0, "reorder": 0.0, "rate": 0.91e9}
        for quantity, value in figures.items():
            row = (quantity, None, value, None, None, "measured", "median of 250")
            self.record.probe(ProbeResult(5.0, source, target, link_class, *row, kind="real"))

    def read_network(self, round: int) -> None:
        """A network between the hosts that becomes slower in round 6, and loses an echo then."""
        hosts = [host_name(number) for number in range(self.example.hosts)]
        delay, lost = (0.0062, 1) if round == 6 else (0.00021, 0)
        pairs = tuple(PairReading((hosts[0], other), delay, 10, lost, delay) for other in hosts[1:])
        frames = tuple(FramesReading(hosts[0], other, 2000 * round, round // 6) for other in hosts[1:])
        reading = NetworkReading(pairs, frames, first=round == 0)
        self.record.add_event(SETUP + ROUND * round, reading, round or None)

    def play_round(self, round: int) -> None:
        start = SETUP + (round - 1) * ROUND
        edges = [node for node in self.plan["nodes"] if node["tier"] == "edge"]
        self.record.event(start, "cloud", "round", round, {"phase": "start"})
        self.turn_faults(start, round)
        for edge in edges:
            self.record.event(start + 0.15, edge["name"], "round", round, {"phase": "start"})
        for second in range(int(ROUND)):
            t = start + second
            self.time_faults(t)
            self.move(t, round, second)
            if self.example.sensors:
                self.sense(t + 0.4)
            self.record.counters(
                t + 0.5, [{k: v for k, v in link.items() if k != "profile"} for link in self.links.values()]
            )
        for edge in edges:
            self.end_edge_round(start, round, edge)
        self.evaluate("cloud", "global", round, start + ROUND - 0.12, 0.91)
        ended = {"phase": "end", "gatherings": 1, "abandoned": 0}
        self.record.event(start + ROUND - 0.1, "cloud", "round", round, ended)
        self.write_traffic(start + ROUND - 0.05)
        if round <= self.example.overruns:
            data = {"asked": 1.2, "taken": 1.2 + 0.8 * round}
            self.record.event(start + 2, self.plan["nodes"][-1]["name"], "overrun", round, data)
        self.record.flush()

    def sense(self, t: float, *, everything: bool = False) -> None:
        """A Jetson that gets warm: 10 W in the first two seconds of each round, then 6 W, of which 40 % are the
        processor's; throttled from 60 °C on, which it reaches after 20 s. The n-th of several hosts draws n times as
        much."""
        trained = max(0.0, t - SETUP)
        power, hot = (10.0 if int(trained) % 4 < 2 else 6.0), 45.0 + 0.75 * trained >= 60
        rows = [
            ("temperature", "thermal", "zone tj-thermal", 45.0 + 0.75 * trained),
            ("frequency", "cpufreq", "slowest core", 729.6e6),
            ("frequency", "cpufreq", "fastest core", 1.1136e9 if hot else 1.5104e9),
            ("memory_available", "meminfo", "host", 6e9 - 1e8 * int(trained / 8)),
            ("throttled", "firmware", "soft temperature limit", float(hot)),
            ("power", "hwmon ina3221", "rail VDD_IN", power),
            ("power", "hwmon ina3221", "rail VDD_CPU_GPU_CV", 0.4 * power),
        ]
        for host in self.sensing:
            factor = int(host.removeprefix("pc-") or 1)
            own = [(*row[:3], row[3] * factor if row[0] == "power" else row[3]) for row in rows]
            new = [row for row in own if everything or self.sensed.get((host, *row[:3])) != row[3]]
            self.sensed |= {(host, *row[:3]): row[3] for row in own}
            self.record.sensors(t, host, [(*row, "") for row in new])

    def end_edge_round(self, start: float, round: int, edge: Mapping[str, Any]) -> None:
        lost = [device for device in edge["children"] if self.is_cut(device, edge["name"]) or device in self.down]
        abandoned = len(lost) * 2 > len(edge["children"])
        if abandoned:
            self.record.event(start + 3.0, edge["name"], "round_abandoned", round, {"answered": 0})
        for device in lost[:1]:
            self.record.event(start + 3.1, edge["name"], "late", round, {"peer": device, "kind": "update"})
        if self.example.devices_report:
            for device in edge["children"]:
                self.evaluate(device, "own", round, start + ROUND - 0.6, 0.8)
        self.evaluate(edge["name"], "own", round, start + ROUND - 0.5, 0.84 - 0.015 * (int(edge["name"][5:]) % 5))
        ended = {"phase": "end", "gatherings": 1, "abandoned": int(abandoned)}
        self.record.event(start + ROUND - 0.4, edge["name"], "round", round, ended)

    def evaluate(self, node: str, scope: str, round: int, t: float, ceiling: float) -> None:
        share = 1 - math.exp(-self.example.gain * round)
        accuracy = 0.1 + (ceiling - 0.1) * share + self.rng.uniform(-0.012, 0.012)
        self.record.metric(t, node, round, scope, "accuracy", round_to(accuracy))
        self.record.metric(
            t, node, round, scope, "loss", round_to(2.3 * (1 - share) + 0.25 + self.rng.uniform(0, 0.04))
        )

    def turn_faults(self, t: float, round: int) -> None:
        for fault in [each for each in self.in_force if each["duration"] is None]:
            self.lift(t + 0.01, fault)
        for fault in self.plan["faults"]:
            if fault["round"] == round:
                self.apply(t + 0.02, fault, round)

    def time_faults(self, t: float) -> None:
        for fault in [each for each in self.in_force if each["duration"] is not None]:
            if fault["at"] + fault["duration"] <= t - SETUP:
                self.lift(SETUP + fault["at"] + fault["duration"], fault)
        for fault in (*self.plan["faults"], *self.by_hand):
            if fault["at"] is not None and t - SETUP - 1 < fault["at"] <= t - SETUP:
                self.apply(SETUP + fault["at"], fault, int((t - SETUP) // ROUND) + 1)

    def apply(self, t: float, fault: dict[str, Any], round: int) -> None:
        target = self.target(fault)
        if fault["node"] in self.down:
            detail = f"{fault['node']} is not running but crashed"
            self.record.fault(t, fault["id"], fault["action"], target, "skipped", round, detail)
            return
        self.in_force.append(fault)
        if fault["action"] == "crash":
            self.down.add(fault["node"])
            self.record.state(t, fault["node"], "crashed", "fault")
        self.cuts[fault["id"]] = set(fault["links"])
        if fault in self.by_hand:
            written = {"at": "12s", "node": fault["node"], "action": "crash", "for": "3s"}
            facts = {"fault": fault["id"], "user": "ada", "uid": 1000, "via": "inject", "written": written}
            self.record.event(t, None, Injected.NAME, round, {**facts, "planned": fault})
        self.record.fault(t, fault["id"], fault["action"], target, "start", round)

    def lift(self, t: float, fault: dict[str, Any]) -> None:
        self.in_force.remove(fault)
        if fault["action"] == "crash":
            self.record.state(t, fault["node"], "restarting", "fault over")
            self.record.state(t + 0.4, fault["node"], "registered")
            self.record.state(t + 0.45, fault["node"], "running")
            self.down.discard(fault["node"])
        del self.cuts[fault["id"]]
        self.record.fault(t, fault["id"], fault["action"], self.target(fault), "end", None)

    def target(self, fault: Mapping[str, Any]) -> str:
        return str(fault["node"] or " | ".join(", ".join(side) for side in fault["between"]))

    def is_cut(self, source: str, target: str) -> bool:
        return any((source, target) in pairs for pairs in self.cuts.values())

    def move(self, t: float, round: int, second: int) -> None:
        """Models go down in the first second of a round, updates up in the third."""
        for (source, target), link in self.links.items():
            if link["link_class"] == "edge-edge" or source in self.down or target in self.down:
                continue
            down = source == "cloud" or (source.startswith("edge") and target.startswith("device"))
            if second != (0 if down else 2):
                continue
            kind = "model" if down else "update"
            self.count(source, target, kind, "sent")
            packets = MODEL // 1448
            link["offered"] += packets
            link["offered_bytes"] += packets * 1514
            if self.is_cut(source, target):
                link["cut_dropped"] += packets
                continue
            self.count(target, source, kind, "received")
            lost = self.rng.randint(0, 2)
            link["lost"] += lost
            link["delivered"] += packets - lost
            link["delivered_bytes"] += (packets - lost) * 1514
            link["overflowed"] += self.rng.randint(0, 1)

    def count(self, node: str, peer: str, kind: str, direction: str) -> None:
        counted = self.traffic.setdefault((node, peer, kind, direction), [0, 0])
        counted[0] += 1
        counted[1] += MODEL

    def write_traffic(self, t: float) -> None:
        for node in self.plan["nodes"]:
            rows = [
                {"peer": peer, "kind": kind, "direction": direction, "messages": messages, "bytes": size}
                for (name, peer, kind, direction), (messages, size) in self.traffic.items()
                if name == node["name"]
            ]
            self.record.traffic(t, node["name"], rows)
            self.record.resources(t, node["name"], 0.4 * (t - SETUP), 182_000_000, 31_000_000)

    def finish(self, t: float) -> None:
        if self.example.ending is None:
            self.record.close()
            return
        for fault in list(self.in_force):
            if fault["action"] == "crash":
                self.lift(t, fault)
        if self.example.sensors:
            self.sense(t, everything=True)
        for node in self.plan["nodes"]:
            self.record.state(t + 0.2, node["name"], "done")
        packets = sum(link["offered"] for link in self.links.values())
        look = {"links": len(self.links), "packets": packets, "told": 0, "astray_count": 0, "astray": [], "classes": []}
        self.record.event(t + 0.3, None, "links looked at", None, look)
        error = "cloud ended (exit code 1) and is not restarted again" if self.example.ending == "failed" else None
        self.record.outcome(t + 0.4, {"ended": self.example.ending, "error": error, "wall_seconds": t + 0.4})
        self.record.close()


def round_to(value: float) -> float:
    return round(value, 5)


if __name__ == "__main__":
    from orchestrator.report import write_report
    from orchestrator.results.history import History

    hosts, real = int(sys.argv[2]) if sys.argv[2:] else 0, tuple(sys.argv[3:])
    run = Example(sensors=True, hosts=hosts, real=real).build(Path(sys.argv[1]))
    write_report(History.open(run), run / "report.html")
