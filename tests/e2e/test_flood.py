"""3,100 hostile frames at one edge and at the control plane: nobody dies, hangs or grows, and the rounds go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT, Background, wait_for

pytestmark = pytest.mark.e2e

HOSTILE, TARGET = "device-0-1", "edge-0"
# Devices train for a fifth of a second and more, so that the hardware they stand for sets the pace and not this host.
# The hostile device's own process is frozen; who attacks has its network and, where told so, its keys.
SCENARIO = f"""\
# Do hostile frames disturb a run?
name: flood
seed: 5
driver: namespaces
algorithm: {{name: hierfavg, rounds: 10000, kappa1: 2, kappa2: 1, learning_rate: 0.1}}
data: {{dataset: digits, partition: iid, samples_per_client: 60, evaluate_samples: 100}}
model: mlp
topology: {{edges: 2, devices_per_edge: 2, cloud: true}}
hardware: {{device: {{speed: 0.02}}}}
links: {{device-edge: {{latency: 2ms}}, edge-cloud: {{latency: 2ms}}}}
gathering: {{quorum: 50%, deadline: 5s}}
timeouts: {{beat: 500ms, lost_after: 2s}}
probe: {{before: false}}
faults:
  - {{at: 1s, node: {HOSTILE}, action: pause, for: 10min}}
"""
FRAMES = {"peer": (2_500, 2000), "node": (300, 250), "stranger": (300, 500)}  # how many, and how many a second
SECONDS = 3.0  # of quiet
# Of the pace without attacks. The attackers stand on this host, too: what is printed is 0.7 and more where it has
# processors to spare for them, and less where it has not; so what a frame costs the node that it is sent to is asked.
PACE = 0.3
COST = 0.15  # processor time of a frame, in quiet rounds of its receiver: both are slower on a busy host; 0.06 if idle
GROWTH = {"orchestrator": 20e6}  # bytes
GROWTH_OF_NODE = 10e6


class Watched:
    """What a process of the run costs."""

    def __init__(self, pid: int) -> None:
        self.path = Path(f"/proc/{pid}")

    def resident(self) -> int:
        status = (self.path / "status").read_text()
        return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))

    def processor(self) -> float:
        fields = (self.path / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Pace:
    """Rounds a second since it was made."""

    def __init__(self, run: Background) -> None:
        self.run, self.began, self.first = run, time.monotonic(), run.round()
        self.rounds = 0

    def __call__(self) -> float:
        self.rounds = self.run.round() - self.first
        return self.rounds / (time.monotonic() - self.began)


def keys_of_the_hostile(run: Background) -> Path:
    """Its assignment, as it is told; there is a file of it only while it starts."""
    path = run.directory.nodes / f"{HOSTILE}.json"

    def read() -> str | None:
        with suppress(OSError):
            return path.read_text() or None
        return None

    told = json.loads(wait_for(read, f"the assignment of {HOSTILE}"))
    kept = run.runs / "hostile.json"
    kept.write_text(json.dumps(told | {"control_endpoint": f"ipc://{run.directory.control / 'socket'}"}))
    return kept


@contextmanager
def attack(run: Background, who: str, keys: Path) -> Iterator[subprocess.Popen[str]]:
    count, rate = FRAMES[who]
    with subprocess.Popen(
        [*run.network_of(HOSTILE), sys.executable, "-m", "tests.e2e.flood", who, keys, str(count), str(rate), "1"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_hostile_frames_disturb_no_one(tmp_path: Path) -> None:
    with Background(tmp_path, SCENARIO) as run:
        keys = keys_of_the_hostile(run)
        run.wait_round(8)  # the frozen device is lost, and memory has its size
        pids = {node: run.pid_of(node) for node in ("cloud", "edge-0", "edge-1", "device-0-0", HOSTILE)}
        watched = {node: Watched(pid) for node, pid in pids.items()} | {"orchestrator": Watched(run.process.pid)}
        before = watched[TARGET].processor()
        pace = Pace(run)
        time.sleep(SECONDS)  # what happens in this time is what is measured
        quiet = pace()
        resident = {name: each.resident() for name, each in watched.items()}
        processor = watched[TARGET].processor()
        of_a_round = (processor - before) / pace.rounds  # s
        pace = Pace(run)
        with ExitStack() as ending:
            # A stranger has the address of the hostile device, too, and would end its connections (`Gate`).
            for together in (["stranger"], ["peer", "node"]):
                attacks = {who: ending.enter_context(attack(run, who, keys)) for who in together}
                for who, process in attacks.items():
                    said, errors = process.communicate(timeout=100)
                    assert process.returncode == 0, errors
                    assert json.loads(said)["sent"] == FRAMES[who][0]
                    print(who, said.strip())
            attacked = pace()
        assert {node: run.pid_of(node) for node in pids} == pids
        growth = {name: each.resident() - resident[name] for name, each in watched.items()}
        of_a_frame = (watched[TARGET].processor() - processor - pace.rounds * of_a_round) / FRAMES["peer"][0]
        print(f"rounds a second: {quiet:.2f} quiet, {attacked:.2f} attacked")
        print(f"processor of {TARGET}: {1e3 * of_a_round:.1f} ms a round, {1e3 * of_a_frame:.2f} ms a frame")
        print("growth in MB:", {name: round(each / 1e6, 1) for name, each in growth.items()})
        assert attacked >= PACE * quiet
        assert of_a_frame < COST * of_a_round
        assert all(each < GROWTH.get(name, GROWTH_OF_NODE) for name, each in growth.items()), growth
        run.wait_round(run.round() + 3)
        with run.history() as history:
            bad = [event for event in history.events("bad_message") if event.node == TARGET]
            assert 100 < len(bad) < 2000  # told, but not one by one
            crashed = [state for state in history.states() if state.state in ("crashed", "failed")]
            assert crashed == []
