"""Run the command line as a user would, and look at what it leaves."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from edgebed.testing.host import traces_of as traces_of
from edgebed.testing.host import wait_for as wait_for
from orchestrator.errors import RecordError
from orchestrator.host.process.processes import run_processes
from orchestrator.record.directory import RunDirectory, known_runs
from orchestrator.results.history import History
from orchestrator.verbs.live.inside import namespace_entry

ROOT = Path(__file__).parents[2]
T = TypeVar("T")
OWN_MOUNTS = ("unshare", "--user", "--map-root-user", "--mount", "--")
"""What a program is run by to have mounts of its own, and root's rights over them."""

SMALL = """\
# Does a small hierarchy learn the digits?
name: small
seed: 7
algorithm: {name: hierfavg, rounds: 3, kappa1: 4, kappa2: 1, learning_rate: 0.2}
data: {dataset: digits, partition: iid}
model: mlp
topology: {edges: 2, devices_per_edge: 2, cloud: true}
links:
  device-edge: {latency: 2ms, rate: 50mbit}
  edge-cloud: {latency: 10ms, rate: 20mbit}
"""
"""Seven nodes and three rounds."""

FEW = SMALL.replace("devices_per_edge: 2", "devices_per_edge: 1")
"""Five nodes, the least that has every tier."""

THREE = """\
# Do two clients learn the digits?
name: small
seed: 7
algorithm: {name: fedavg, rounds: 3, learning_rate: 0.2}
data: {dataset: digits, partition: iid}
model: mlp
topology: {edges: 0, devices: 2}
links: {device-cloud: {latency: 10ms, rate: 20mbit}}
"""
"""Three nodes, for containers: each takes a second of a processor to start."""


PACED = "hardware: {device: {speed: 0.02}}\n"
"""Has devices train for a fifth of a second, so that a long run leaves this host its processors."""


@dataclass(frozen=True)
class Result:
    code: int
    summary: dict[str, Any]
    errors: str


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "orchestrator", *map(str, arguments)]


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    return path


def up(tmp_path: Path, scenario: str, *arguments: str, prefix: Sequence[str] = (), timeout: float = 120.0) -> Result:
    """`up --json`, to its end."""
    path = write(tmp_path, scenario)
    done = subprocess.run(
        [*prefix, *command("up", path, "--runs", tmp_path / "runs", "--json", *arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Result(done.returncode, json.loads(done.stdout) if done.stdout.strip() else {}, done.stderr)


def resume(run: RunDirectory, *arguments: str, prefix: Sequence[str] = ()) -> Result:
    """`resume --json`, to the run's end."""
    done = subprocess.run(
        [*prefix, *command("resume", run.path, "--json", *arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return Result(done.returncode, json.loads(done.stdout) if done.stdout.strip() else {}, done.stderr)


@contextlib.contextmanager
def resuming(run: RunDirectory, prefix: Sequence[str] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """Run `resume` next to the test, and kill it at the end."""
    words = [*prefix, *command("resume", run.path)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


class Background:
    """`up --json` running beside the test."""

    def __init__(self, tmp_path: Path, scenario: str, *arguments: str, prefix: Sequence[str] = ()) -> None:
        self.runs = tmp_path / "runs"
        path = write(tmp_path, scenario)
        self.process = subprocess.Popen(
            [*prefix, *command("up", path, "--runs", self.runs, "--json", *arguments)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Background:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        """Remove what a run has left whose orchestrator was killed. One that ends leaves nothing, or its test fails."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        if self.process.returncode >= 0 and failure is None:
            return
        for directory in known_runs(self.runs):
            subprocess.run(
                command("down", directory.run, "--runs", self.runs), cwd=ROOT, capture_output=True, check=False
            )

    @cached_property
    def directory(self) -> RunDirectory:
        """The run's directory, which may be gone again if the run could not be set up."""
        return wait_for(lambda: next(iter(known_runs(self.runs)), None), "the run's directory")

    def history(self) -> History:
        return History.open(self.directory.path)

    def wait_round(self, round: int, timeout: float = 60.0) -> None:
        """Until the record shows that this round has begun."""
        wait_for(lambda: self.round() >= round or None, f"round {round}", timeout)

    def round(self) -> int:
        """The latest that a leading node has begun; 0 while there is none."""
        try:
            with closing(self.history()) as history:
                rounds = [event.round or 0 for event in history.events("round") if event.node in history.leaders]
                return max(rounds, default=0)
        except RecordError:
            return 0

    def pid_of(self, node: str) -> int:
        (pid,) = [each.pid for each in run_processes(self.directory.run) if each.command == node[:15]]
        return pid

    def network_of(self, node: str) -> list[str]:
        """The start of a command line that runs in the network of a node, with the host's files."""
        prefix = namespace_entry(self.directory.run, node, ["--net"])
        assert prefix is not None, f"{node} has no process"
        return prefix

    def pid_of_part(self, part: str) -> int:
        (pid,) = [each.pid for each in run_processes(self.directory.run) if each.part == part]
        return pid

    def find(self, node: str) -> int | None:
        """The process of a node, None if there is none now."""
        found = [each.pid for each in run_processes(self.directory.run) if each.command == node[:15]]
        return found[0] if found else None

    def helper(self, part: str) -> int | None:
        """The process of the switch, the anchor ("hub") or the fork server ("node"), None if there is none now."""
        found = [each for each in run_processes(self.directory.run) if each.part == part]
        return min((each.pid for each in found if each.command.startswith(("python", "forkserver"))), default=None)

    def result(self, timeout: float = 120.0) -> Result:
        output, errors = self.process.communicate(timeout=timeout)
        return Result(self.process.returncode, json.loads(output) if output.strip() else {}, errors)


def memory_directory(needed: int) -> Path:
    """Where files of so many bytes are kept in memory, if twice as much is free, and else on disk."""
    shared = Path("/dev/shm")
    with contextlib.suppress(OSError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
        if min(available, shutil.disk_usage(shared).free) > 2 * needed:
            return shared
    return Path(tempfile.gettempdir())


def json_of(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    """A verb's JSON object; the verb must end with this exit code."""
    done = subprocess.run(command(*arguments, "--json"), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result
