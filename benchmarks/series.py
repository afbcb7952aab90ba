"""What a run costs in a sweep, against another commit: three nodes in namespaces, with programs that do little.

    python -m benchmarks.series [--against COMMIT] [--runs 12] [--pairs 6]

Each tree executes the same sweep in turns, of so many runs, without and with measurements of the links. Prints one JSON
object: for both, the median wall time and processor time of a run in seconds, and their ratios to the other commit: the
median over the pairs, the lowest and the highest. These two enclose the true median with a probability of
1 - 2 ** (1 - PAIRS), with 6 pairs 97 %.

The programs run for 50 ms: at the first commit, one that ended at once could fail its run, on a busy host even these.
``incomplete_before`` counts such runs. They end no later than others.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parents[1]
BEFORE = "22acb08a"  # the last commit in which each run of a series measures its links
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""As of a user: modules are compiled once, not at each start of a process."""

GOALS = {"without probes": 0.5, "with probes": 0.6}
"""The largest ratios of the wall times that are intended."""

SCENARIO = """\
topology: {{edges: 0, devices: 2, cloud: true}}
links: {{device-cloud: {{profile: wifi}}}}
driver: namespaces
probe: {{before: {before}}}
programs:
  cloud: {{command: sleep 0.05}}
  device: {{command: sleep 0.05}}
"""
SWEEP = """\
scenario: scenario.yaml
seeds: {seeds}
"""


@dataclass(frozen=True)
class Cost:
    """Of one run, in seconds. ``incomplete``: the runs of its sweep that failed."""

    wall: float
    processor: float
    incomplete: int


@contextlib.contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """A folder with the files of a commit, which is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def cost(tree: Path, before: str, runs: int) -> Cost:
    """The cost of a run in a sweep that the code of a tree executes, with the start and the end of the command."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "scenario.yaml").write_text(SCENARIO.format(before=before))
        sweep = Path(folder) / "sweep.yaml"
        seeds = list(range(1, runs + 1))
        sweep.write_text(SWEEP.format(seeds=seeds))
        command = [sys.executable, "-m", "orchestrator", "sweep", str(sweep), "--runs", folder, "--json"]
        earlier = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        done = subprocess.run(command, cwd=tree, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        wall = time.perf_counter() - began
        later = resource.getrusage(resource.RUSAGE_CHILDREN)
    incomplete = runs - done.stderr.count(": done, ")
    if incomplete and tree == HERE:
        raise SystemExit(f"{incomplete} of {runs} runs are not complete:\n{done.stderr}")
    user = later.ru_utime - earlier.ru_utime
    system = later.ru_stime - earlier.ru_stime
    return Cost(wall / runs, (user + system) / runs, incomplete)


def compared(former: Path, before: str, runs: int, pairs: int) -> dict[str, Any]:
    """The costs of both trees in turns. Every second pair starts with the other tree."""
    there = []
    here = []
    for pair in range(pairs):
        if pair % 2:
            here.append(cost(HERE, before, runs))
            there.append(cost(former, before, runs))
        else:
            there.append(cost(former, before, runs))
            here.append(cost(HERE, before, runs))
    result: dict[str, Any] = {"incomplete_before": sum(each.incomplete for each in there)}
    for quantity in ("wall", "processor"):
        former_seconds = [getattr(each, quantity) for each in there]
        seconds = [getattr(each, quantity) for each in here]
        ratios = [new / old for new, old in zip(seconds, former_seconds, strict=True)]
        result[quantity] = {
            "before": round(median(former_seconds), 3),
            "now": round(median(seconds), 3),
            "ratio": round(median(ratios), 3),
            "lowest": round(min(ratios), 3),
            "highest": round(max(ratios), 3),
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.series")
    parser.add_argument("--against", default=BEFORE, metavar="COMMIT")
    parser.add_argument("--runs", type=int, default=12, help="in each sweep")
    parser.add_argument("--pairs", type=int, default=6, help="of sweeps")
    options = parser.parse_args()
    results = {}
    with tree_of(options.against) as former:
        for tree in (former, HERE):
            cost(tree, "true", runs=1)  # compiles the modules
        for name, before in (("without probes", "false"), ("with probes", "true")):
            result = compared(former, before, options.runs, options.pairs)
            result["goal"] = GOALS[name]
            result["reached"] = result["wall"]["ratio"] <= GOALS[name]
            results[name] = result
    facts = {"against": options.against, "runs": options.runs, "pairs": options.pairs}
    print(json.dumps({"benchmark": "series", **facts, "results": results}, indent=1))


if __name__ == "__main__":
    main()
