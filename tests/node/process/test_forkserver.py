from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import wait_for

PATIENCE = 10.0

SERVER = """
import os, signal, sys, time
import node.process.forkserver as server
import node.process.main as main

place, mark = sys.argv[1:]
server.namespaces.begin_pid_namespace()

def stay():
    with open(mark, "a") as file:
        file.write(os.readlink("/proc/self") + "\\n")
    time.sleep(60)

unshare, write = server.namespaces.unshare, os.write

def slow_unshare(flags):
    if (place, flags) == ("no namespace left", server.namespaces.CLONE_NEWPID):
        raise OSError("no space left")
    unshare(flags)
    if (place, flags) == ("on the way", server.NODE_NAMESPACES):
        stay()

def slow_write(descriptor, data):
    if place == "before the word" and data.strip().isdigit():
        stay()
    return write(descriptor, data)

def end(assignment, turn, rehearsal):
    group = "/proc/self/autogroup"
    os.write(1, open(group, "rb").read() if os.path.exists(group) else b"")
    os._exit(7 + os.nice(0))

class Loaded(str):
    def related(self, relation):
        return (place,) if (place, relation) == ("a parent", "child") else ()

server.namespaces.unshare, os.write = slow_unshare, slow_write
server.Assignment.load, main.run_node = Loaded, end
server.confine = lambda confinement, view, calls: []
server.ForkServer(server.FileView(""), crowded=place.startswith("a ")).serve()
"""
"""A fork server without torch and confinement, in which a fork stays for long at a ``place``; who is there writes its
id."""


class Server:
    """What `SERVER` is asked, and what it answers."""

    def __init__(self, tmp_path: Path, place: str) -> None:
        self.folder, self.mark = tmp_path, tmp_path / "mark"
        way_in = [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user"]
        self.process = subprocess.Popen(
            [*way_in, sys.executable, "-c", SERVER, place, self.mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ask(self, log: Path | None = None) -> None:
        assert self.process.stdin is not None
        rights: dict[str, Any] = {"checkpoints": "", "user": None, "groups": []}
        request = {"id": 1, "op": "fork", "node": "device-0", "assignment": "", "rights": rights}
        self.process.stdin.write(json.dumps(request | {"log": str(log or self.folder / "device-0.log")}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@contextmanager
def serving(tmp_path: Path, place: str = "") -> Iterator[Server]:
    server = Server(tmp_path, place)
    try:
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.process.pid, signal.SIGKILL)
        server.process.communicate()


def children(pid: int) -> list[int]:
    """The processes whose parent is ``pid``, and theirs."""
    own = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*own, *(each for child in own for each in children(child))]


@pytest.mark.parametrize("place", ["before the word", "on the way"])
def test_a_server_that_is_killed_while_it_forks_leaves_no_one_and_nothing_open(tmp_path: Path, place: str) -> None:
    with serving(tmp_path, place) as server:
        server.ask()
        wait_for(lambda: server.mark.exists() or None, "the fork to be there", PATIENCE)
        forked = children(server.process.pid)
        assert forked
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.communicate(timeout=PATIENCE)  # nobody else holds its output
        wait_for(lambda: not any(map(lives, forked)) or None, f"the end of {forked}", PATIENCE)


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # whoever adopted it has not yet taken note


def test_a_node_that_ends_early_is_an_exit(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.ask()
        forked = server.answer()
        ended = server.answer()
        assert forked == {"id": 1, "ok": True, "pid": ended["pid"], "lacking": []}
        assert (ended["event"], ended["node"], ended["code"]) == ("exit", "device-0", 7 + os.nice(0))


@pytest.mark.parametrize(("place", "niceness"), [("a leaf", min(19, os.nice(0) + 10)), ("a parent", os.nice(0))])
def test_devices_of_a_large_run_give_way(tmp_path: Path, place: str, niceness: int) -> None:
    with serving(tmp_path, place) as server:
        server.ask()
        server.answer()
        assert server.answer()["code"] == 7 + niceness
        group = (tmp_path / "device-0.log").read_text()  # of the scheduler; "" if this kernel has none
        assert group == "" or group == Path(f"/proc/{server.process.pid}/autogroup").read_text()


def test_a_node_that_is_killed_before_it_is_ready_is_an_exit(tmp_path: Path) -> None:
    with serving(tmp_path, "on the way") as server:
        server.ask()
        wait_for(lambda: server.mark.exists() or None, "the node to be there", PATIENCE)
        pid = int(server.mark.read_text())
        os.kill(pid, signal.SIGKILL)
        assert server.answer() == {"id": 1, "ok": True, "pid": pid, "lacking": []}
        assert server.answer()["code"] == -signal.SIGKILL


def test_a_fork_that_is_refused_leaves_nothing_open(tmp_path: Path) -> None:
    with serving(tmp_path, "no namespace left") as server:
        numbers = []
        for _ in range(2):
            server.ask()
            assert server.answer()["error"] == "cannot fork device-0: no space left"
            (pid,) = children(server.process.pid)
            numbers.append(len(os.listdir(f"/proc/{pid}/fd")))
        assert numbers[0] == numbers[1]


def test_a_node_with_a_log_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.ask(tmp_path / "gone" / "device-0.log")
        assert str(tmp_path / "gone" / "device-0.log") in server.answer()["error"]


def test_a_server_of_holders_loads_neither_numpy_nor_the_network() -> None:
    """Every run with programs starts one, and these modules take most of the time of its start."""
    code = "import json, sys, node.process.forkserver; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(json.loads(done.stdout))
    assert "node.process.holder" in modules
    assert not modules & {"numpy", "zmq", "asyncio", "node.role"}
