"""Whole runs: seven nodes and more, real namespaces, real TCP, shaped links.

They are of this host and in real time: what they check is that its processors compute and shape links on time, and that
nothing is left in its kernel. In virtual time nothing is late.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from orchestrator.host.kernel.cgroups import PREFIX, limits, writable_hierarchies
from orchestrator.results.history import History
from tests.e2e.harness import FEW, ROOT, SMALL, Background, command, json_of, traces_of, up, write
from tests.tries import tries

pytestmark = pytest.mark.e2e

DONE = (0, 3)  # 3: a host that is busy with something else
PAGE = 4096  # bytes, in which memory is limited
# A user with no rights at all, whatever this machine's users may do: uid 1000 of a user namespace, no capability.
AS_ORDINARY_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")


@pytest.mark.alone
def test_a_run_ends_trusted_and_leaves_nothing(tmp_path: Path) -> None:
    for _ in tries(3):  # the verdict may be "fail" on a machine that is busy with something else
        result = up(tmp_path, SMALL)
        if result.code != 3:
            break
    assert result.code == 0, result.errors
    summary = result.summary
    assert summary["verdict"] == "pass", summary["checks"]
    assert summary["driver"] == "namespaces"
    assert summary["links"] in ("userspace", "kernel")
    assert (summary["rounds"], summary["nodes"], summary["overruns"], summary["faults"]) == (3, 7, 0, [])
    assert summary["accuracy"]["global"] > 0.5  # ten classes: guessing gives 0.1
    assert set(summary["accuracy"]["edge"]) == {"edge-0", "edge-1"}
    # Three rounds of the model each way on every link: the wire carries no less than the tensors.
    model = json_of("plan", tmp_path / "scenario.yaml")["model_bytes"]
    assert summary["bytes"]["edge-cloud"] > 2 * 3 * 2 * model
    assert summary["bytes"]["device-edge"] > 4 * 3 * 2 * model
    run = Path(summary["run"])
    with History.open(run) as history:  # what hosts tell differs, but each has memory
        told = [row for row in history.sensors() if row.quantity == "memory_available"]
        assert told[0].t < (history.training_began or 0.0)
        assert told[-1].t >= history.training_ended
    assert traces_of(run.name) == []
    assert not (run / "nodes").exists()  # the keys
    page = (run / "report.html").read_text()
    assert "drawFigures" in page
    assert page.rstrip().endswith("</html>")


def test_without_any_right(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    result = up(tmp_path, SMALL, "--set", "probe.before=false", prefix=AS_ORDINARY_USER)
    assert result.code in DONE, result.errors
    assert result.summary["rounds"] == 3
    assert traces_of(Path(result.summary["run"]).name) == []


def test_clients_directly_at_the_cloud(tmp_path: Path) -> None:
    scenario = """\
# Do four clients learn the digits?
name: flat
algorithm: {name: fedprox, rounds: 2}
data: {dataset: digits, partition: iid}
model: mlp
topology: {edges: 0, devices: 4, cloud: true}
probe: {before: false}
"""
    result = up(tmp_path, scenario)
    assert result.code in DONE, result.errors
    assert result.summary["rounds"] == 2
    assert result.summary["nodes"] == 5


FAULTS = """\
faults:
  - {round: 3, node: device-1-0, action: slow, factor: 150}
  - {random: {mean: 1s, until: 4s}, of: edges, action: degrade, latency: 60ms, for: 2s}
stop: {rounds: 6}
"""


def test_nodes_have_the_cores_and_the_memory_of_their_hardware(tmp_path: Path) -> None:
    hierarchies = writable_hierarchies()
    if not hierarchies:
        pytest.skip("this user may not make control groups")
    settings = ["hardware.device={cores: 0.5, memory: 1gb}", "probe.before=false", "algorithm.rounds=20"]
    with Background(tmp_path, SMALL, *(word for each in settings for word in ("--set", each))) as run:
        run.wait_round(1)
        for hierarchy in hierarchies:
            group = hierarchy.path / f"{PREFIX}{run.directory.run}" / "device-0-1"
            assert str(run.pid_of("device-0-1")) in (group / "cgroup.procs").read_text().split()
            for file, asked in limits(hierarchy, 0.5, 10**9).items():
                whole = int(asked) // PAGE * PAGE if file.startswith("memory") else asked
                assert (group / file).read_text().strip() == str(whole)
        result = run.result()
        assert result.code in DONE, result.errors
        assert result.summary["rounds"] == 20
        assert traces_of(run.directory.run) == []


@pytest.mark.alone
def test_slowness_and_random_faults(tmp_path: Path) -> None:
    hardware = "hardware: {device: {speed: 0.5}}\n"
    scenario = SMALL.replace("rounds: 3", "rounds: 6") + hardware + FAULTS + "probe: {before: false}\n"
    scenario = scenario.replace(
        "seed: 7", "seed: 11"
    )  # by which no link is worse before 2 s, when rounds 1 and 2 are over
    planned = json_of("plan", write(tmp_path, scenario))["faults"]
    result = up(tmp_path, scenario)
    assert result.code in (0, 3), result.errors  # 3: a busy machine could not keep the devices' pace
    assert result.summary["rounds"] == 6
    happened = {fault["action"] for fault in result.summary["faults"]}
    assert happened == {"slow", "degrade"}
    assert sum(fault["action"] == "degrade" for fault in planned) >= 1
    with History.open(Path(result.summary["run"])) as history:
        lasted = [each.end - each.start for each in history.rounds() if each.node == "cloud" and each.end is not None]
    # From the step after the fault on, the slow device takes 150 times as long, and everybody waits for it.
    assert min(lasted[3:]) > 2 * max(lasted[:2]), lasted


@pytest.mark.alone
def test_links_are_calibrated_without_training(tmp_path: Path) -> None:
    path = write(tmp_path, FEW.replace("latency: 2ms", "latency: 2ms, loss: 2%"))
    for _ in tries(3):  # the verdict may be "fail" on a machine that is busy with something else
        done = subprocess.run(
            command("calibrate", path, "--runs", tmp_path / "runs", "--json"),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 3:
            break
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["ended"], summary["rounds"], summary["verdict"]) == ("calibrated", 0, "pass"), summary["checks"]
    found = {(row["link_class"], row["quantity"]) for row in summary["probes"]}
    quantities = ("rtt", "delay", "loss", "duplicate", "reorder", "rate", "queue")
    assert found == {(name, quantity) for name in ("device-edge", "edge-cloud") for quantity in quantities}
    assert {row["verdict"] for row in summary["probes"]} == {"pass"}
    assert traces_of(Path(summary["run"]).name) == []
