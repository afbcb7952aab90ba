"""Fidelity of the userspace engine: asked and measured behaviour of links.

    python -m benchmarks.fidelity [rtt] [rate] [product] [loss] [mesh] [ceiling]        (default: all, some 5 minutes)

Prints one JSON object. Round trips: 300 ICMP echoes. Rates: TCP payload over 10 s, plus headers. Losses: of 10,000
datagrams, checked against the central 99 % of their exact distribution. Mesh: round trips and losses of 12 nodes, with
a profile for each of the 132 directions. Ceiling: the throughput of an unshaped link.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.links import packets_per_second
from netem.measurement.intervals import binomial_range, design_effect
from netem.profile import GilbertElliott, LinkProfile
from tests.netem.traffic import PAYLOAD_SHARE, datagrams, flows, goodput, round_trips
from tests.netem.wiring import Lab

RTTS = (1, 5, 20, 50, 100, 200)  # ms
RATES = (0.25, 1, 5, 20, 100, 500)  # Mbit/s
LOSSES = (0.001, 0.01, 0.05, 0.2)
CHAINS = (GilbertElliott(p=0.01, r=0.25), GilbertElliott(p=0.02, r=0.5), GilbertElliott(p=0.005, r=0.1, loss_bad=0.8))
DATAGRAMS = 10_000
SECONDS = 10.0
MESH = 12


def rtt(lab: Lab) -> list[dict[str, Any]]:
    """Measure round trips: median within max(0.5 ms, 1 %), 99th percentile within 5 ms."""
    rows = []
    for asked in RTTS:
        lab.shape("a", "b", {"latency": f"{asked / 2}ms"})
        times = [1000 * each for each in round_trips(lab, "a", "b", 300)]
        middle, late = median(times), times[int(0.99 * len(times))]
        within = abs(middle - asked) <= max(0.5, 0.01 * asked) and late - asked <= 5
        rows.append({"asked_ms": asked, "median_ms": round(middle, 3), "p99_ms": round(late, 3), "within": within})
    return rows


def rate(lab: Lab) -> list[dict[str, Any]]:
    """Measure rates with TCP over 10 s: within 2 %, or 5 % at 500 Mbit/s."""
    rows = []
    for asked in RATES:
        lab.shape("a", "b", {"rate": f"{asked}mbit"})
        found = goodput(lab, "a", "b", 1.5 * SECONDS, SECONDS / 2) / PAYLOAD_SHARE / 1e6
        within = abs(found / asked - 1) <= (0.05 if asked == 500 else 0.02)
        rows.append({"asked_mbit_s": asked, "found_mbit_s": round(found, 4), "within": within})
    return rows


def product(lab: Lab) -> dict[str, Any]:
    """Measure 100 Mbit/s at a round trip of 100 ms: 1.25 MB in flight, with a sufficiently large window."""
    lab.shape("a", "b", {"rate": "100mbit", "latency": "50ms", "buffer": "100ms"})
    found = goodput(lab, "a", "b", SECONDS, SECONDS / 2, window=2_000_000) / PAYLOAD_SHARE / 1e6
    return {"asked_mbit_s": 100, "rtt_ms": 100, "found_mbit_s": round(found, 2), "within": found >= 90}


def loss(lab: Lab) -> list[dict[str, Any]]:
    """Measure losses of 10,000 datagrams; bursts widen the interval by their design effect."""
    rows = []
    for asked in (*LOSSES, *CHAINS):
        profile = LinkProfile(loss=asked)
        lab.shape("a", "b", profile.to_mapping(), {})
        lost = DATAGRAMS - len(set(datagrams(lab, "a", "b", DATAGRAMS)))
        effect = design_effect(asked) if isinstance(asked, GilbertElliott) else 1.0
        number = round(DATAGRAMS / effect)
        low, high = (count / number for count in binomial_range(number, profile.mean_loss))
        found = lost / DATAGRAMS
        row = {"asked": profile.to_mapping()["loss"], "mean": round(profile.mean_loss, 5), "found": found}
        rows.append({**row, "low": round(low, 5), "high": round(high, 5), "within": low <= found <= high})
    return rows


def mesh() -> dict[str, Any]:
    """Measure a full mesh whose directions have different latencies and losses: 66 round trips, 132 losses of 1,000."""
    draw = random.Random(1)
    with Lab(MESH) as lab:
        lab.start_switch()
        profiles = {
            (source, target): {"latency": f"{draw.uniform(1, 40):.1f}ms", "loss": f"{draw.choice((0, 2, 10))}%"}
            for source in lab.names
            for target in lab.names
            if source != target
        }
        for (source, target), profile in profiles.items():
            lab.ask("link", source=source, target=target, profile=profile, seed=draw.randrange(2**31))
        errors, outside = [], 0
        for source, target in profiles:
            there, back = (LinkProfile.from_mapping(profiles[ends]) for ends in ((source, target), (target, source)))
            if source < target:
                times = round_trips(lab, source, target, 100, 0.002)
                asked = there.latency + back.latency
                errors.append(abs(median(times) - asked) / max(0.0005, 0.01 * asked))
            lost = 1000 - len(set(datagrams(lab, source, target, 1000, settle=0.1)))
            low, high = binomial_range(1000, there.mean_loss)
            outside += not low <= lost <= high
    return {
        "round_trips": len(errors),
        "worst_share_of_the_tolerance": round(max(errors), 3),
        "losses": len(profiles),
        "outside_99_percent": outside,
        "expected_outside": round(0.01 * len(profiles), 1),
    }


def ceiling() -> dict[str, Any]:
    """Measure TCP through the engine with one flow and with sixteen, and small packets."""
    with Lab(2) as lab:
        lab.start_switch()
        lab.shape("a", "b", {})
        one = goodput(lab, "a", "b", 3.0, 1.0)
        packets = packets_per_second(lab, "a", "b")
        sixteen = flows(lab, "a", "b", 16, 3.0)
    return {"tcp_1_gbit_s": round(one / 1e9, 2), "tcp_16_gbit_s": round(sixteen / 1e9, 2), "packets_s": round(packets)}


def in_lab(measure: Callable[[Lab], Any]) -> Callable[[], Any]:
    """Wrap a measurement: run it with two nodes and the switch between them."""

    def run() -> Any:
        with Lab(2) as lab:
            lab.start_switch()
            return measure(lab)

    return run


PARTS: dict[str, Callable[[], Any]] = {
    "rtt": in_lab(rtt),
    "rate": in_lab(rate),
    "product": in_lab(product),
    "loss": in_lab(loss),
    "mesh": mesh,
    "ceiling": ceiling,
}


if __name__ == "__main__":
    print(json.dumps({name: PARTS[name]() for name in sys.argv[1:] or PARTS}, indent=1))
