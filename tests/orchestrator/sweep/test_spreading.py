"""Sweeps on several hosts, whose agents live in this process. What carries out the runs on a host is a real process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.agent.runs import RunWorker
from orchestrator.drivers.swarm.agents import starting
from orchestrator.drivers.swarm.agents.settings import CODE, MARK, RUNS
from orchestrator.drivers.swarm.cluster import Cluster, SwarmHost
from orchestrator.errors import HostError
from orchestrator.host.directory import RunDirectory, known_runs
from orchestrator.results.record.history import History
from orchestrator.sweep import spreading
from orchestrator.sweep.figures import Result
from orchestrator.sweep.on_swarm import Runs, refusal
from orchestrator.sweep.reading import Sweep, load
from orchestrator.sweep.running import carry_out
from orchestrator.sweep.spreading import spread
from orchestrator.sweep.sweeper import Sweeper
from tests.orchestrator.agent.swarm import ClusterOfAgents
from tests.orchestrator.sweep.test_running import SCENARIO

PC = SwarmHost("1", "pc-1", "10.0.0.1", True, "ready", "active", "amd64", 2.0, 33_500_000_000, "28.3.0", {})
HOSTS = [PC, replace(PC, name="pc-2", address="10.0.0.2")]
HELLO = {"pid": 7, "mtu": 1500, "version": "1"}


class Processes:
    """Starts the program of the container as a process, with the code that was brought. On the host ``deaf`` what is to
    carry out runs takes them and does nothing."""

    def __init__(self) -> None:
        self.deaf = ""
        self.broken = ""
        self.given: list[str] = []
        self.orders = asyncio.Event()

    async def start(
        self,
        image: str,
        command: Sequence[str],
        directory: RunDirectory,
        hear: Callable[[str | None], None],
        stack: AsyncExitStack,
    ) -> RunWorker:
        assert image == "edgebed-node"
        (directory.path / RUNS).mkdir()
        loop, user = asyncio.get_running_loop(), (os.geteuid(), os.getegid())
        if command[1] == self.broken:
            hear("there is no torch")
            hear(None)
        if command[1] == self.deaf:
            hear(f"{MARK}{{}}")

            def take(line: str) -> None:
                self.given.append(json.loads(line)["run"])
                loop.call_soon_threadsafe(self.orders.set)

            return RunWorker(take, user)
        return RunWorker(await asyncio.to_thread(_process, command, directory, hear, stack, loop), user)


def _process(
    command: Sequence[str],
    directory: RunDirectory,
    hear: Callable[[str | None], None],
    stack: AsyncExitStack,
    loop: asyncio.AbstractEventLoop,
) -> Callable[[str], None]:
    path = [str(directory.path / CODE), *[each for each in sys.path if "site-packages" in each]]
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            *command,
            directory.path / RUNS,
            directory.path.parent,  # where the host keeps data sets
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1", "HOME": "/nowhere"},
        cwd=directory.path,
        start_new_session=True,
    )
    given, output = process.stdin, process.stdout
    assert given is not None
    assert output is not None

    def read() -> None:
        for line in output:
            loop.call_soon_threadsafe(hear, line)

    def send(line: str) -> None:
        given.write(f"{line}\n")
        given.flush()

    def end() -> None:
        os.killpg(process.pid, signal.SIGKILL)  # as the kernel ends a container with its first process
        process.wait()
        reader.join()
        given.close()
        output.close()

    reader = threading.Thread(target=read)
    reader.start()
    stack.push_async_callback(asyncio.to_thread, end)
    return send


SWEEP = """\
scenario: small.yaml
cases:
  small: {}
  islands: {algorithm: {name: onlyedge, rounds: 2, learning_rate: 0.2}}
seeds: [1, 2, 3]
target: {accuracy: 20%}
"""


def read(tmp_path: Path, text: str = SWEEP) -> Sweep:
    (tmp_path / "small.yaml").write_text(SCENARIO)
    (tmp_path / "mine.yaml").write_text(text)
    return load(tmp_path / "mine.yaml")


class Attempt:
    """A sweep on played hosts. ``said`` is what it tells."""

    def __init__(self, tmp_path: Path, text: str = SWEEP) -> None:
        self.sweep, self.said, self.folder = read(tmp_path, text), list[str](), tmp_path / "spread"
        sweeper = Sweeper(self.sweep, self.folder, None, {}, self.said.append, ())
        self.kept: list[int] = []
        self.runs = Runs(self.sweep, sweeper, lambda results: self.kept.append(len(results)))
        self.processes = Processes()
        self.cluster = ClusterOfAgents(HOSTS, tmp_path, lambda host: cast(Any, None), HELLO, self.processes.start)

    async def spread(self, places: int | None = 1) -> None:
        assert self.runs.look()
        (self.folder / "mine-1").mkdir(parents=True, exist_ok=True)
        own = RunDirectory(self.folder / "mine-1")
        try:
            cluster = cast(Cluster, self.cluster)
            await spread(cluster, HOSTS, self.runs, own, self.said.append, places=places, provide=_nothing_to_bring)
        finally:
            own.remove()

    def told(self, *words: str) -> bool:
        return any(all(word in line for word in words) for line in self.said)


async def _nothing_to_bring(*_: object) -> None:
    """The hosts of these tests have no Engine."""


def without_wall(results: Sequence[Result]) -> list[tuple[str, int, str | None, Mapping[str, float]]]:
    """All but what a host's own clock tells."""
    return [
        (
            *(each.combination.case, each.combination.seed, each.verdict),
            {name: value for name, value in each.figures.items() if name != "wall_seconds"},
        )
        for each in results
    ]


@pytest.fixture(autouse=True)
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "LEASE", 3.0)
    monkeypatch.setattr(spreading, "LEASE", 3.0)


@pytest.mark.slow
async def test_hosts_give_the_table_of_one_host_though_one_is_lost_and_comes_back(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path)
    attempt.processes.deaf = "pc-2"
    carrying = asyncio.create_task(attempt.spread())
    await attempt.processes.orders.wait()
    attempt.processes.deaf = ""
    await attempt.cluster.end("pc-2")
    await attempt.cluster.begin("pc-2")
    await carrying
    assert attempt.told("the host pc-2 is lost: ")
    assert len([line for line in attempt.said if ": stopped, and starts again elsewhere: pc-2: " in line]) == 1
    assert [each.run.name in attempt.processes.given for each in attempt.runs.results if each.run].count(True) == 1
    assert sorted(attempt.kept) == [1, 2, 3, 4, 5, 6]
    here = await asyncio.to_thread(carry_out, attempt.sweep, tmp_path / "here", workers=1, tell=lambda line: None)
    assert without_wall(attempt.runs.results) == without_wall(here.results)
    for each in attempt.runs.results:
        assert each.run is not None
        with History.open(each.run) as history:
            case, seed, host = each.combination.case, each.combination.seed, history.meta["host"]
            assert attempt.told(f"{case}, seed {seed}: done on {host}")
        assert not [path for path in each.run.iterdir() if path.name.startswith(".arriving")]
        assert RunDirectory(each.run).holder() is None
    assert attempt.cluster.calls == ["start pc-1, pc-2", "stop"]


@pytest.mark.slow
async def test_a_host_that_cannot_be_used_is_told_and_left_out(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, "scenario: small.yaml\nseeds: [1, 2]\n")
    attempt.processes.broken = "pc-2"
    await attempt.spread()
    assert attempt.told("the host pc-2 is not used: the worker for runs has ended: there is no torch")
    assert len([line for line in attempt.said if "done on pc-1" in line]) == 2


async def test_without_a_host_that_can_be_used_nothing_is_left(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path)
    attempt.cluster = ClusterOfAgents(HOSTS, tmp_path, lambda host: "No such image: edgebed-agent", HELLO)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starting, "FAILING", 0.0)
        with pytest.raises(HostError, match=r"no host of the swarm can be used \(pc-1: No such image: .*; pc-2: "):
            await attempt.spread()
    attempt.runs.abandon()
    assert list(attempt.folder.iterdir()) == []
    assert attempt.cluster.calls == ["start pc-1, pc-2", "stop"]


async def test_a_cancelled_sweep_leaves_no_directory_without_a_result(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path)
    attempt.processes.deaf = "pc-2"
    attempt.processes.broken = "pc-1"
    carrying = asyncio.create_task(attempt.spread())
    await attempt.processes.orders.wait()
    assert len(known_runs(attempt.folder)) == 1
    carrying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await carrying
    attempt.runs.abandon()
    assert (attempt.runs.results, list(attempt.folder.iterdir())) == ([], [])
    assert attempt.cluster.calls[-1] == "stop"


async def test_a_run_that_gets_no_result_anywhere_is_failed_and_the_others_go_on(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, "scenario: small.yaml\nseeds: [1]\n")
    refused = "the process of the run was killed by signal -9; is there not enough memory?"

    async def start(
        image: str,
        command: Sequence[str],
        directory: RunDirectory,
        hear: Callable[[str | None], None],
        stack: AsyncExitStack,
    ) -> RunWorker:
        (directory.path / RUNS).mkdir()
        loop = asyncio.get_running_loop()

        def refuse(line: str) -> None:
            message = json.dumps({"run": json.loads(line)["run"], "error": refused})
            loop.call_soon_threadsafe(hear, f"{MARK}{message}")

        hear(f"{MARK}{{}}")
        return RunWorker(refuse, (os.geteuid(), os.getegid()))

    attempt.cluster = ClusterOfAgents(HOSTS, tmp_path, lambda host: cast(Any, None), HELLO, start)
    await attempt.spread()
    (result,) = attempt.runs.results
    assert (result.failed, result.error, result.run) == (True, refused, None)
    assert list(attempt.folder.iterdir()) == []


async def test_hosts_that_are_slow_to_begin_are_not_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading, "AWAY", 0.0)
    attempt = Attempt(tmp_path, "scenario: small.yaml\nseeds: [1]\n")
    started = asyncio.Event()

    async def start(*_: object) -> RunWorker:
        started.set()
        raise HostError("it has no torch")

    async def provide(*_: object) -> None:
        await asyncio.sleep(2.5)  # the sweep looks once a second

    attempt.cluster = ClusterOfAgents(HOSTS, tmp_path, lambda host: cast(Any, None), HELLO, start)
    monkeypatch.setattr(sys.modules[__name__], "_nothing_to_bring", provide)
    with pytest.raises(HostError, match=r"no host of the swarm can be used .*it has no torch"):
        await attempt.spread()
    assert started.is_set()


def test_only_simulations_are_spread(tmp_path: Path) -> None:
    sweep = read(tmp_path, "scenario: small.yaml\ncases: {here: {}, there: {driver: docker}}\n")
    assert refusal(sweep) == "only runs of the driver sim are spread over hosts; this sweep has docker"
    assert refusal(read(tmp_path)) is None
