"""Real runs in which a random process is killed or stopped at a random moment: `python -m tests.campaign.kills`.

Whichever process is hit, the run ends as documented, its record is intact, it leaves nothing on the host, `ps` and
`down` are correct, and `resume` completes it. A seed determines victim and moment, but not the run's progress by then.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.drivers.docker import leftovers
from orchestrator.host.process.processes import run_processes
from orchestrator.record.directory import RunDirectory, known_runs
from orchestrator.record.rows import COMPLETE
from tests.campaign.dice import Dice
from tests.e2e.engine import with_image
from tests.e2e.harness import Background, Result, json_of, resume, traces_of, wait_for

PARTS = {"namespaces": ("forkserver", "switch", "hub"), "docker": ("switch", "hub")}
TIERS = ("cloud", "edge", "device")
LIMIT = 120.0  # s in which a run ends, whichever process is hit
TRIES = 4
GONE = 20.0  # s after the orchestrator's end in which all of a run's processes end: the lease and a margin
CODES = {"finished": (0, 3), "failed": (1,), "interrupted": (130,), "killed": (-signal.SIGKILL,)}


@dataclass(frozen=True)
class Kill:
    """A kill: a process of the ``victim`` (a part or a tier) gets ``signals``, at intervals of ``stopped`` seconds.

    The first signal is sent ``after`` seconds from the start of a ``round`` (0: the run).
    """

    seed: int
    driver: str
    scenario: dict[str, Any]
    victim: str
    signals: tuple[signal.Signals, ...]
    stopped: float
    round: int
    after: float

    def __str__(self) -> str:
        names = f" {self.stopped} s ".join(each.name for each in self.signals)
        return f"kill {self.seed}: {names} to {self.victim}, {self.after} s after the beginning of round {self.round}"

    @property
    def expected(self) -> set[int]:
        """The documented exit codes. They include those of a finished run: a kill at the very end has no effect."""
        codes = set(CODES["finished"])
        if self.victim == "orchestrator" and self.signals == (signal.SIGKILL,):
            codes |= set(CODES["killed"])
        if self.victim == "orchestrator" and self.signals == (signal.SIGTERM,):
            codes |= set(CODES["interrupted"])
        if self.victim in PARTS["namespaces"] and signal.SIGSTOP not in self.signals:
            codes |= set(CODES["failed"])
        return codes


def drawn(seed: int, driver: str, devices: int | None = None) -> Kill:
    """The kill of a seed. ``devices``: of each edge; by default one or two."""
    dice = Dice(seed, "kill")
    rounds = dice.whole(4, 12 if devices is None else 4)
    signals = dice.pick([(signal.SIGKILL,), (signal.SIGKILL,), (signal.SIGTERM,), (signal.SIGSTOP, signal.SIGCONT)])
    algorithms: list[dict[str, Any]] = [
        {"name": "hierfavg", "kappa1": 4, "kappa2": 1, "rounds": rounds},
        {"name": "onlyedge", "rounds": rounds},
        {"name": "phe-fl", "epochs": 1, "rounds": rounds},
    ]
    scenario = {
        "name": f"kill-{seed}",
        "seed": seed,
        "algorithm": dice.pick(algorithms),
        "data": {"dataset": "digits", "partition": "iid"},
        "model": "mlp",
        "topology": {"cloud": True, "edges": dice.whole(1, 2), "devices_per_edge": devices or dice.whole(1, 2)},
        "links": {"device-edge": {"latency": "2ms"}, "edge-cloud": {"latency": "20ms", "rate": "20mbit"}},
        "gathering": {"quorum": "50%", "deadline": "5s", "cloud_deadline": "8s"},
        "probe": {"before": dice.coin(0.2)},
        "driver": driver,
        "engine": "userspace",
    }
    return Kill(
        seed,
        driver,
        scenario,
        dice.pick(["orchestrator", *PARTS[driver], *TIERS]),
        signals,
        dice.number(0.05, 3),
        dice.whole(0, rounds),
        dice.number(0.01, 2),
    )


def carry_out(kill: Kill) -> list[str]:
    """The findings of a kill. If the run was already over, or its victim gone, an earlier moment is tried."""
    for _ in range(TRIES):
        found = _carried_out(kill)
        if found is not None:
            return found
        kill = replace(kill, round=kill.round // 2, after=kill.after / 4)
    return ["its victim was not found"]


def _carried_out(kill: Kill) -> list[str] | None:
    """The findings of one try; None if no process was hit and there are no findings."""
    before = interfaces()
    with (
        tempfile.TemporaryDirectory(prefix="kill-") as name,
        Background(Path(name), yaml.safe_dump(kill.scenario)) as run,
    ):
        struck = _strike(kill, run)
        try:
            result = run.result(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return [f"it did not end within {LIMIT:.0f} s"]
        if not known_runs(run.runs):
            return _never_began(run, result, before)
        directory = run.directory
        found = []
        if result.code not in kill.expected:
            found.append(f"exit code {result.code} ({result.summary.get('error')}): {result.errors[-600:]}")
        found += _left(directory, before) + _record(directory)
        ended = result.summary.get("ended")
        if result.code == 1 and not result.summary.get("error"):
            found.append("it failed without a reason")
        if result.code is None or ended not in COMPLETE:
            found += _resumed(directory, resume(directory), before)
        return found if found or struck else None


def _never_began(run: Background, result: Result, before: set[str]) -> list[str]:
    """Findings on a run that could not be set up: it says why, and it leaves nothing, not even a directory."""
    found = [] if result.code == 1 and "error: " in result.errors else [f"exit code {result.code}: {result.errors}"]
    _await_end(run.directory.run)
    if remains := _remains(run.directory.run, before):
        found.append(f"left on the host: {remains}")
    return found


def _await_end(name: str) -> None:
    """Wait until the run has no trace on the host, as long as a lease may take."""
    with contextlib.suppress(AssertionError):
        wait_for(lambda: not traces_of(name) or None, "the end of every trace", GONE)


def _remains(name: str, before: set[str]) -> str:
    """The containers, traces and interfaces that are left of a run; empty if there are none."""
    boxes, traces = [each.node for each in leftovers.listed(name)], traces_of(name)
    changed = interfaces() ^ before
    return f"{boxes} {traces} {changed}" if boxes or traces or changed else ""


def interfaces() -> set[str]:
    """The network interfaces of this host."""
    return set(os.listdir("/sys/class/net"))


def _strike(kill: Kill, run: Background) -> bool:
    """Send the signals. Returns whether there was a process to hit."""
    if kill.round:
        with contextlib.suppress(AssertionError):
            wait_for(lambda: run.process.poll() is not None or run.round() >= kill.round or None, "its moment", LIMIT)
    else:
        wait_for(lambda: run.directory, "the run's directory")
    time.sleep(kill.after)  # the random moment: no condition to wait for
    with contextlib.suppress(AssertionError):  # a container starts slowly
        wait_for(lambda: run.process.poll() is not None or _pids(kill, run) or None, "its victim", LIMIT)
    pids = _pids(kill, run)
    if not pids or run.process.poll() is not None:
        return False
    pid = Dice(kill.seed, "victim").pick(pids)
    for number, each in enumerate(kill.signals):
        time.sleep(kill.stopped if number else 0.0)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, each)
    return True


def _pids(kill: Kill, run: Background) -> list[int]:
    if kill.victim == "orchestrator":
        return [run.process.pid]
    name = run.directory.run
    if kill.victim in TIERS:
        inside = [each.pid for each in leftovers.listed(name) if each.node.startswith(kill.victim) and each.pid]
        outside = [
            each.pid for each in run_processes(name) if each.part == "node" and each.command.startswith(kill.victim)
        ]
        return inside or outside
    return [each.pid for each in run_processes(name) if kill.victim in (each.part, each.command)]


def _left(directory: RunDirectory, before: set[str]) -> list[str]:
    """Findings on leftovers of the run on the host, and on the output of `ps` and `down`."""
    found = []
    _await_end(directory.run)
    if traces := traces_of(directory.run):
        found.append(f"left on the host: {', '.join(traces)}")
    (down,) = json_of("down", directory.path)["runs"]
    if not down["clean"]:
        found.append(f"down could not remove {down['left']}")
    if remains := _remains(directory.run, before):
        found.append(f"left after down: {remains}")
    if any(run["run"] == directory.run for run in json_of("ps", "--runs", directory.path.parent)["runs"]):
        found.append("ps lists it")
    if keys := [path.name for path in (directory.nodes, directory.control) if path.exists()]:
        found.append(f"the secret keys in {keys} are still there")
    return found


def _record(directory: RunDirectory) -> list[str]:
    """Findings on the record, the report and the orchestrator's log."""
    with contextlib.closing(sqlite3.connect(directory.path / "run.db")) as database:
        (said,) = database.execute("PRAGMA integrity_check").fetchone()
    found = [] if said == "ok" else [f"the record is damaged: {said}"]
    json_of("report", directory.path)
    if not directory.report.exists():
        found.append("there is no report")
    if (log := directory.logs / "orchestrator.log").exists():
        found.append(f"a defect: {log.read_text()[-600:]}")
    return found


def _resumed(directory: RunDirectory, result: Result, before: set[str]) -> list[str]:
    """Findings on the resumed run."""
    if result.code == 1 and ("cannot be continued" in result.errors or "is complete" in result.errors):
        return []
    if result.code not in CODES["finished"] or result.summary["ended"] not in COMPLETE:
        return [f"resume ended with {result.code} ({result.summary.get('error')}): {result.errors[-600:]}"]
    return [f"after resume: {each}" for each in _left(directory, before) + _record(directory)]


@contextlib.contextmanager
def _engine() -> Iterator[None]:
    """Provide a Docker Engine with an image of nodes to this process and its children."""
    with with_image() as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", place.address)
        patch.setenv("EDGEBED_IMAGE", place.image)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the kills. Returns the exit code: 1 if there were findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.kills", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=20, help="how many (default: %(default)s)")
    parser.add_argument("--driver", choices=sorted(PARTS), default="namespaces")
    parser.add_argument("--devices", type=int, help="devices of each edge (default: one or two)")
    given = parser.parse_args(arguments)
    failed = 0
    with _engine() if given.driver == "docker" else contextlib.nullcontext():
        for seed in range(given.first, given.first + given.kills):
            kill = drawn(seed, given.driver, given.devices)
            found = carry_out(kill)
            failed += bool(found)
            print(kill, *(f"  {each}" for each in found or ["as documented"]), sep="\n", flush=True)
    print(f"{given.kills} kills, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
