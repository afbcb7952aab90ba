"""Shared media against SimGrid: completion times of random transfers over random channels.

    python -m benchmarks.simgrid_media [--cases 200]

Needs SimGrid (Debian: python3-simgrid; https://simgrid.org). Each case has one to four channels of 5 to 100 Mbit/s and
two to twelve transfers of 0.1 to 5 MB that start within two seconds. Each transfer crosses one to three channels; half
of the transfers have a rate of their own, and all have 2 to 50 ms of latency. Two comparisons, each a distribution of
the differences of completion times (from a transfer's start to its end) relative to SimGrid:

allocation   `netem.media.allocation` as a fluid without latency against SimGrid's model CM02 without corrections. Both
             are max-min fair, so the differences show errors.
simulation   the driver `sim`, with its model of TCP, against SimGrid's default model LV08. Both are models.

Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from random import Random
from statistics import median, quantiles
from typing import Any

from benchmarks.simulated_media import Sending, seconds
from netem.media.allocation import Transfer, allocate, use_of
from netem.media.profile import ChannelProfile
from netem.profile import FULL_FRAME
from netem.tcp.path import SEGMENT

DEBIAN = "/usr/lib/python3/dist-packages"
FLUID = ("network/model:CM02", "network/crosstraffic:0")
DEFAULT = ("network/model:LV08",)


@dataclass(frozen=True)
class Case:
    channels: dict[str, ChannelProfile]
    sendings: list[Sending]


def cases(number: int) -> list[Case]:
    return [_case(Random(seed)) for seed in range(number)]


def _case(random: Random) -> Case:
    channels = {f"c{n}": ChannelProfile(random.uniform(5e6, 100e6)) for n in range(random.randint(1, 4))}
    sendings = [
        Sending(
            f"n{n}",
            random.randint(100_000, 5_000_000),
            tuple(random.sample(sorted(channels), min(random.randint(1, 3), len(channels)))),
            latency=random.uniform(0.002, 0.05),
            at=random.uniform(0, 2),
            rate=random.choice([None, random.uniform(1e6, 50e6)]),
        )
        for n in range(random.randint(2, 12))
    ]
    return Case(channels, sendings)


def fluid(case: Case) -> list[float]:
    """The seconds of each transfer, as a fluid that `allocate` shares out."""
    transfers = [
        Transfer({name: use_of(case.channels[name], each.member) for name in each.channels}, each.rate or math.inf)
        for each in case.sendings
    ]
    left = [8.0 * each.size for each in case.sendings]
    took: dict[int, float] = {}
    now = 0.0
    while len(took) < len(left):
        sending = {n: transfers[n] for n, each in enumerate(case.sendings) if each.at <= now and n not in took}
        rates = allocate(sending, dict.fromkeys(case.channels, 1.0))
        begins = min((each.at for each in case.sendings if each.at > now), default=math.inf)
        ends, first = min(((now + left[n] / rate, n) for n, rate in rates.items()), default=(math.inf, -1))
        step = min(begins, ends) - now
        for n, rate in rates.items():
            left[n] -= rate * step
        now += step
        if ends <= begins:
            took[first] = now - case.sendings[first].at
    return [took[n] for n in range(len(left))]


def by_simgrid(cases: list[Case], settings: tuple[str, ...], overhead: float) -> list[list[float]]:
    """The same by SimGrid, in a process of its own: it has one engine. ``overhead``: bytes with headers per byte."""
    request = json.dumps([len(cases), settings, overhead])
    command = [sys.executable, "-m", "benchmarks.simgrid_media", "--play", request]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"benchmarks.simgrid_media: {done.stderr.strip().splitlines()[-1]}")
    times: list[list[float]] = json.loads(done.stdout)
    return times


def play(number: int, settings: list[str], overhead: float) -> list[list[float]]:
    """Simulate all cases at once: they have nothing in common."""
    sys.path.append(DEBIAN)
    simgrid: Any = import_module("simgrid")

    engine = simgrid.Engine(["simgrid", "--log=root.thres:error", *(f"--cfg={each}" for each in settings)])
    zone = simgrid.NetZone.create_full_zone("all")
    ends, took = [], []
    everything = cases(number)
    for c, case in enumerate(everything):
        links = {name: zone.create_link(f"{c} {name}", profile.rate / 8) for name, profile in case.channels.items()}
        for link in links.values():
            link.set_latency(0.0).seal()
        took.append([0.0] * len(case.sendings))
        for n, each in enumerate(case.sendings):
            source, target = (zone.create_host(f"{c} {n} {end}", 1e9).seal() for end in ("source", "target"))
            own = zone.create_link(f"{c} {n}", (each.rate or 1e15) / 8)
            own.set_latency(0.0 if overhead == 1 else each.latency).seal()
            route = [simgrid.LinkInRoute(own), *(simgrid.LinkInRoute(links[name]) for name in each.channels)]
            zone.add_route(source.netpoint, target.netpoint, None, None, route, True)
            ends.append((source, target, c, n, each))
    zone.seal()

    def send(mailbox: Any, each: Sending) -> None:
        simgrid.this_actor.sleep_until(each.at)
        mailbox.put(each, round(each.size * overhead))

    def receive(mailbox: Any, c: int, n: int) -> None:
        each = mailbox.get()
        took[c][n] = engine.clock - each.at

    for source, target, c, n, each in ends:
        mailbox = simgrid.Mailbox.by_name(f"{c} {n}")
        simgrid.Actor.create("send", source, send, mailbox, each)
        simgrid.Actor.create("receive", target, receive, mailbox, c, n)
    engine.run()
    return took


def distribution(ours: list[list[float]], theirs: list[list[float]]) -> dict[str, Any]:
    """How ours differ from theirs: relative differences of single transfers and of each case's last one."""
    pairs = [pair for mine, other in zip(ours, theirs, strict=True) for pair in zip(mine, other, strict=True)]
    differences: list[float] = sorted(one / other - 1 for one, other in pairs)
    cuts = quantiles(differences, n=20)
    return {
        "transfers": len(differences),
        "median": round(median(differences), 4),
        "5 % to 95 %": [round(cuts[0], 4), round(cuts[-1], 4)],
        "largest of the absolute": round(max(-differences[0], differences[-1]), 4),
        "median of the absolute": round(median(map(abs, differences)), 4),
    }


def benchmark(number: int) -> dict[str, Any]:
    everything = cases(number)
    return {
        "cases": number,
        "allocation": distribution([fluid(each) for each in everything], by_simgrid(everything, FLUID, 1.0)),
        "simulation": distribution(
            [seconds(each.channels, each.sendings) for each in everything],
            by_simgrid(everything, DEFAULT, FULL_FRAME / SEGMENT),
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--play", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.play:
        print(json.dumps(play(*json.loads(arguments.play))))
    else:
        print(json.dumps(benchmark(arguments.cases), indent=2))


if __name__ == "__main__":
    main()
