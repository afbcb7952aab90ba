"""Shared media of populations: the fluid model of clients against the model of single links, under the driver `sim`.

    python -m benchmarks.client_media [--systems 50] [--cost 10000]

Random systems of 10 to 50 clients that send over one cell: 50 kB to 3 MB each, with links of 5 to 100 Mbit/s or as fast
as the cell, round trips of 10 to 200 ms, all at once or one after the other. Prints by rule how much later clients'
transfers end by the fluid model: quantiles of single transfers, and of the last one of each system. The cost is the
wall time of a round of so many clients: a transfer each, over 10 cells and one uplink.
"""

from __future__ import annotations

import argparse
import time
from random import Random

import numpy as np

from benchmarks.simulated_media import Sending, seconds
from netem.media.profile import RULES, ChannelProfile, Rule

RATES = (None, 5e6, 20e6, 100e6)


def system(random: Random) -> tuple[float, list[Sending]]:
    """The rate of a cell, and transfers over it."""
    size, together = round(50_000 * 60 ** random.random()), random.random() < 0.5
    cell, count = 5e6 * 20 ** random.random(), random.randint(10, 50)
    rate, latency = random.choice(RATES), 0.005 * 20 ** random.random()
    spread = 0.0 if together else count * size * 8 / cell
    return cell, [
        Sending(f"device-{number}", size, ("cell up",), latency, spread * random.random(), rate)
        for number in range(count)
    ]


def differences(rule: Rule, systems: int) -> tuple[list[float], list[float]]:
    """How much later transfers end by the fluid model, as fractions: all of them, and the last ones of each system."""
    singles, last = [], []
    for seed in range(systems):
        rate, sendings = system(Random(seed))
        channels = {"cell up": ChannelProfile(rate, rule)}
        links, fluid = (seconds(channels, sendings, seed, clients=clients) for clients in (False, True))
        singles += [one / other - 1 for one, other in zip(fluid, links, strict=True)]
        ends = [max(each.at + of for each, of in zip(sendings, found, strict=True)) for found in (fluid, links)]
        last.append(ends[0] / ends[1] - 1)
    return singles, last


def cost(clients: int) -> float:
    """The wall time (s) of a round of so many clients."""
    channels = {f"cell-{cell} up": ChannelProfile(20e6) for cell in range(10)} | {"uplink up": ChannelProfile(150e6)}
    random = Random(1)
    sendings = [
        Sending(
            f"device-{number}",
            100_000,
            (f"cell-{number % 10} up", "uplink up"),
            0.02,
            60 * random.random(),
            random.choice(RATES),
        )
        for number in range(clients)
    ]
    began = time.perf_counter()
    seconds(channels, sendings, clients=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=int, default=50)
    parser.add_argument("--cost", type=int, default=10_000, metavar="CLIENTS")
    options = parser.parse_args()
    print("| rule | which | 5 % | median | 95 % |\n|---|---|---|---|---|")
    for rule in RULES:
        for which, found in zip(("each", "last"), differences(rule, options.systems), strict=True):
            quantiles = " | ".join(f"{each:+.1%}" for each in np.quantile(found, (0.05, 0.5, 0.95)))
            print(f"| {rule} | {which} | {quantiles} |", flush=True)
    print(f"\n{options.cost} clients: {cost(options.cost):.1f} s")


if __name__ == "__main__":
    main()
