"""A whole run whose links are shaped by the kernel's netem."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import closing
from itertools import permutations
from pathlib import Path

import pytest

from orchestrator.results.history import History
from orchestrator.results.traffic import volumes
from tests.e2e.harness import traces_of, up
from tests.lab.inside.chance import EXACT, likely

pytestmark = pytest.mark.e2e

SCENARIO = """\
# Do nodes learn over links that the kernel shapes?
name: nodes
seed: 7
algorithm: {name: fedavg, rounds: 2, epochs: 2, learning_rate: 0.2}
data: {dataset: digits, partition: iid}
model: mlp
topology: {devices: 1, cloud: true}
links:
  device-cloud: {latency: 100ms, loss: 3%}
driver: namespaces
"""


def interfaces() -> set[str]:
    shown = subprocess.run(["ip", "-json", "link", "show"], capture_output=True, text=True, check=True).stdout
    return {each["ifname"] for each in json.loads(shown)}


def test_nodes_learn_over_links_of_the_kernel(tmp_path: Path, note: Callable[[str, object, object], None]) -> None:
    before = interfaces()
    result = up(tmp_path, SCENARIO, timeout=240)
    summary = result.summary
    assert summary, result.errors
    beyond = {check["name"] for check in summary["checks"] if check["verdict"] != "pass"}
    assert beyond <= {"links as configured"}, result.errors
    assert result.code == (3 if beyond else 0)
    assert (summary["driver"], summary["links"]) == ("namespaces", "kernel")  # as the tryout found
    assert (summary["ended"], summary["rounds"]) == ("rounds", 2)
    assert summary["accuracy"]["global"] > 0.5  # ten classes: guessing gives 0.1

    run = Path(summary["run"])
    with closing(History.open(run)) as history:
        probes = history.probes()
        counted = {(each.source, each.target): each for each in volumes.link_counters(history)}
    # Each loss that is probed may be judged wrongly once in a hundred times.
    assert {each.quantity for each in probes if each.verdict != "pass"} <= {"loss"}
    (rtt,) = [each.measured for each in probes if each.quantity == "rtt"]
    assert rtt is not None
    assert rtt == pytest.approx(0.2, abs=EXACT)
    links = list(permutations(("cloud", "device-0"), 2))
    assert sorted(counted) == sorted(links)
    lost, offered = (sum(getattr(each, key) for each in counted.values()) for key in ("lost", "offered"))
    low, high = likely(offered, 0.03)
    assert max(low, 1) <= lost <= high
    note("a run: round trip (ms)", 200, f"{rtt * 1e3:.3f}")
    note(f"a run: lost of {offered}", "3 %", f"{lost}, {lost / offered:.1%}")

    assert traces_of(run.name) == []
    assert interfaces() == before
