"""Comparison of simulation and emulation: the same scenarios under two drivers, side by side.

    python -m benchmarks.drivers [scenario ...] [--drivers namespaces sim] [--repeat 1]

Five scenarios: without faults, with loss and jitter, with bursts of loss, with dropouts keyed to rounds, and over slow
links of long delay. Prints one JSON object with the figures of both drivers and verdicts: whether the roles sent the
same bytes of each kind and the accuracies are equal in every round (both not required with dropouts), and whether the
medians of the round times differ by at most 10 %. On lossy links the times vary from seed to seed and, in the
emulation, from run to run: each repetition has a seed of its own, the same for both drivers.

In the emulation, speed 1 is a core of this host. In the simulation it is the reference core. `benchmarks.step_seconds`
measures the ratio of the two for the scenarios' model, and the simulation gets the hardware's speeds times this ratio.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.step_seconds import this_core
from node.role import RESERVED_KINDS
from orchestrator.results.history import History
from orchestrator.results.summary import summary
from orchestrator.results.traffic import volumes

TARGET = 0.7  # accuracy for the time to target
WITHIN = 0.10  # relative difference of the median rounds that is allowed

MODEL = ("mlp", (1, 8, 8), 32)  # that of COMMON, with samples of the digits
SPEEDS = {"device": 0.16, "edge": 0.26, "cloud": 1.0}  # a Raspberry Pi 4, a Jetson Orin Nano, this host

SEED = 3  # of the first repetition

COMMON = """\
data: {dataset: digits, partition: {dirichlet: 0.5}}
model: {name: mlp, hidden: 400}
gathering: {quorum: 50%, deadline: 5s}
timeouts: {beat: 500ms, lost_after: 2s}
probe: {before: false}
stop: {after: 3min}
"""

TREE = """\
algorithm: {name: hierfavg, rounds: 20, kappa2: 2, learning_rate: 0.1}
topology: {edges: 2, devices_per_edge: 3, cloud: true}
"""

SCENARIOS = {
    "no-faults": TREE
    + """\
# Do both drivers agree where only delays and rates matter?
name: no-faults
links:
  device-edge: {latency: 10ms, rate: 20mbit}
  edge-cloud: {latency: 40ms, rate: 50mbit}
""",
    "loss-and-jitter": TREE
    + """\
# Do both drivers agree where packets are lost and late?
name: loss-and-jitter
links:
  device-edge: {latency: 10ms, jitter: 3ms, loss: 1%, rate: 20mbit}
  edge-cloud: {latency: 40ms, jitter: 5ms, loss: 0.5%, rate: 50mbit}
""",
    "bursts": TREE
    + """\
# Do both drivers agree where losses come in bursts, as on a radio link?
name: bursts
links:
  device-edge: {latency: 15ms, loss: {gilbert-elliott: {p: 0.5%, r: 25%}}, rate: 10mbit}
  edge-cloud: {latency: 20ms, rate: 100mbit}
""",
    "long-and-slow": """\
# Do both drivers agree where a transfer takes many round trips, and most of a round?
name: long-and-slow
algorithm: {name: fedavg, rounds: 20, learning_rate: 0.1}
topology: {devices: 4}
links:
  device-cloud: {latency: 60ms, rate: 5mbit}
""",
    "dropouts": TREE
    + """\
# Do both drivers agree on who takes part when devices come and go?
name: dropouts
links:
  device-edge: {latency: 10ms, rate: 20mbit}
  edge-cloud: {latency: 40ms, rate: 50mbit}
faults:
  - {round: 2, node: device-0-1, action: crash, for: 3s}
  - {round: 4, node: device-1-2, action: disconnect, for: 1s}
  - {round: 6, node: device-0-0, action: leave}
""",
}


@dataclass(frozen=True)
class RunFigures:
    """The figures of one run. Times in seconds; bytes ``sent`` by the roles, ``delivered`` by links with headers."""

    driver: str
    verdict: str
    ended: str
    rounds: int
    seconds: float
    wall_seconds: float | None
    accuracy: dict[int, float]
    round_seconds: list[float]
    median_round: float
    time_to_target: float | None
    sent: dict[str, int]
    messages: dict[str, int]
    delivered: dict[str, int]
    faults: list[dict[str, Any]]
    overruns: int
    failed_checks: list[str]


def run(driver: str, scenario: Path) -> RunFigures:
    """Run a scenario under a driver and read the figures from its record."""
    up = [sys.executable, "-m", "orchestrator", "up", str(scenario), "--runs", str(scenario.parent), "--json"]
    done = subprocess.run([*up, "--driver", driver], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"benchmarks.drivers: {scenario.stem} failed under {driver}: {done.stderr.strip()[-500:]}")
    told = json.loads(done.stdout)
    with History.open(Path(told["run"])) as history:
        return read(history, told.get("wall_seconds"))


def read(history: History, wall_seconds: float | None) -> RunFigures:
    facts = summary(history)
    accuracy = {row.round: row.value for row in history.global_series("accuracy") if row.round is not None}
    rounds = [each.end - each.start for each in history.rounds() if each.node in history.leaders and each.end]
    began = history.training_began or 0.0
    reached = (row.t - began for row in history.global_series("accuracy") if row.value >= TARGET)
    sent: defaultdict[str, int] = defaultdict(int)
    messages: defaultdict[str, int] = defaultdict(int)
    for row in volumes.traffic(history):
        if row.direction == "sent" and row.kind not in RESERVED_KINDS:
            sent[row.kind] += row.bytes
            messages[row.kind] += row.messages
    return RunFigures(
        driver=history.driver,
        verdict=facts["verdict"],
        ended=facts["ended"],
        rounds=facts["rounds"],
        seconds=facts["seconds"],
        wall_seconds=wall_seconds,
        accuracy={round: value for round, value in sorted(accuracy.items())},
        round_seconds=[round(each, 3) for each in rounds],
        median_round=round(median(rounds), 4),
        time_to_target=next(reached, None),
        sent=dict(sorted(sent.items())),
        messages=dict(sorted(messages.items())),
        delivered=facts["bytes"],
        faults=facts["faults"],
        overruns=facts["overruns"],
        failed_checks=[check["name"] for check in facts["checks"] if check["verdict"] == "fail"],
    )


def compared(name: str, a: Sequence[RunFigures], b: Sequence[RunFigures]) -> dict[str, Any]:
    """The verdicts on the runs of two drivers with the same seeds, in order."""
    pairs = list(zip(a, b, strict=True))
    medians = [median(each.median_round for each in runs) for runs in (a, b)]
    ratio = medians[1] / medians[0]
    equal = {
        "bytes_equal": all(one.sent == other.sent for one, other in pairs),
        "accuracy_equal": all(one.accuracy == other.accuracy for one, other in pairs),
        "medians_within_10_percent": abs(ratio - 1) <= WITHIN,
    }
    asked = set(equal) - ({"accuracy_equal", "bytes_equal"} if name == "dropouts" else set())
    return {
        "verdict": "pass" if all(equal[each] for each in asked) else "fail",
        **equal,
        "ratio_of_median_rounds": round(ratio, 3),
        "greatest_difference_of_accuracy": max(difference(one.accuracy, other.accuracy) for one, other in pairs),
        "delivered_ratio": {
            kind: round(b[0].delivered.get(kind, 0) / count, 3) for kind, count in a[0].delivered.items() if count
        },
    }


def difference(a: Mapping[int, float], b: Mapping[int, float]) -> float:
    """The largest difference over the rounds that both have."""
    return max((abs(a[round] - b[round]) for round in a.keys() & b.keys()), default=0.0)


def hardware(core: float) -> str:
    """The speeds of the nodes relative to a core that is ``core`` times as fast as theirs."""
    speeds = ", ".join(f"{tier}: {{speed: {speed * core:.4g}}}" for tier, speed in SPEEDS.items())
    return f"hardware: {{{speeds}}}\n"


def compare(name: str, drivers: Sequence[str], repeat: int) -> dict[str, Any]:
    """Run a scenario under both drivers with ``repeat`` seeds, and compare them."""
    core = this_core([MODEL])
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for seed in range(SEED, SEED + repeat):
            pair = []
            for driver in drivers:
                scenario = Path(folder) / f"{name}-{driver}.yaml"
                speeds = hardware(core if driver == "sim" else 1.0)
                scenario.write_text(f"seed: {seed}\n" + SCENARIOS[name] + COMMON + speeds)
                pair.append(run(driver, scenario))
            runs.append(pair)
    a, b = zip(*runs, strict=True)
    return {"this_core": core, **compared(name, a, b), "runs": [asdict(each) for pair in runs for each in pair]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "scenarios", nargs="*", metavar="scenario", help=f"{', '.join(SCENARIOS)}; all if none is given"
    )
    parser.add_argument("--drivers", nargs=2, default=["namespaces", "sim"])
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"no scenario {', '.join(unknown)}: there are {', '.join(SCENARIOS)}")
    results = {name: compare(name, options.drivers, options.repeat) for name in options.scenarios or SCENARIOS}
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
