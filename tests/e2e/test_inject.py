"""Faults by hand in a run of real nodes: at once, in the record, again by the YAML they make, and by nobody else."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.host.process.user_socket import user_name
from orchestrator.record.directory import RunDirectory
from orchestrator.record.rows import FaultSpan
from orchestrator.verbs.live.inject import command as ask
from tests.e2e.harness import FEW, PACED, ROOT, Background, Result, command, json_of, traces_of, up, wait_for

pytestmark = pytest.mark.e2e

LONG = (
    FEW.replace("rounds: 3", "rounds: 2000").replace("name: small", "name: touched")
    + PACED
    + "probe: {before: false}\ngathering: {quorum: 50%, deadline: 3s}\nstop: {after: 5s}\n"
)
AT_ONCE = 0.5  # s
ALIKE = 0.4  # s between the times of a fault in two runs, on a busy host
STRANGER = """
import socket, sys
client = socket.socket(socket.AF_UNIX)
try:
    client.connect(sys.argv[1])
    print(client.makefile().readline())
except PermissionError:
    print("may not connect")
"""
GARBAGE = (
    *(b"\x00\xff\n", b"[]\n", b'{"op": "kill"}\n', b'{"op": "inject", "fault": {"action": "crash"}}\n'),
    *(b'{"op": "inject", "fault": 3}\n', b"x" * 70_000),
)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that strangers can reach."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


def spans(run: Background) -> list[FaultSpan]:
    with run.history() as history:
        return history.faults()


def took_effect(result: Result) -> str:
    """The verdict on the faults. The others depend on what else this host does."""
    (check,) = [check for check in result.summary["checks"] if check["name"] == "faults took effect"]
    return str(check["verdict"])


def send(path: Path, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        while client.recv(4096):
            pass


def as_stranger(path: Path) -> str:
    words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", sys.executable, "-I", "-S", "-c"]
    return subprocess.run([*words, STRANGER, str(path)], capture_output=True, text=True, check=True).stdout


def refuse_strangers(directory: RunDirectory) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return  # nobody can be made a stranger here
    assert as_stranger(directory.commands) == "may not connect\n"
    directory.commands.chmod(0o666)
    assert "this run belongs to root" in as_stranger(directory.commands)
    directory.commands.chmod(0o600)


def test_a_manual_crash_and_partition(open_path: Path) -> None:
    with Background(open_path, LONG) as run:
        run.wait_round(1)
        victim = run.find("device-0-0")
        called = time.monotonic()
        fault = {"action": "crash", "node": "device-0-0", "for": "1s"}
        (crash,) = ask(run.directory, "inject", {"fault": fault})["faults"]
        wait_for(lambda: run.find("device-0-0") != victim or None, "the end of the node's process")
        assert time.monotonic() - called < AT_ONCE
        said = json_of(
            "inject", "partition", "edge-0", "cloud", "--for", "1s", "-r", run.directory.run, "--runs", run.runs
        )
        (cut,) = said["faults"]
        assert [(span.action, span.target) for span in spans(run)] == [
            ("crash", "device-0-0"),
            ("partition", "edge-0 | cloud"),
        ]
        assert crash["at"] < cut["at"]
        for each in GARBAGE:
            send(run.directory.commands, each)
        refuse_strangers(run.directory)
        refused = subprocess.run(
            command("inject", "crash", "device-9", "-r", run.directory.run, "--runs", run.runs),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (refused.returncode, refused.stderr.startswith("error: node: there is no node")) == (2, True)
        assert len(spans(run)) == 2
        result = run.result()
        assert (result.summary["ended"], took_effect(result)) == ("after", "pass")
        assert [fault.get("by") for fault in result.summary["faults"]] == [user_name(os.geteuid())] * 2
        assert not run.directory.commands.exists()
        assert traces_of(run.directory.run) == []
        rules = subprocess.run(
            command("faults", run.directory.run, "--yaml", "--runs", run.runs),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    again = up(open_path, LONG + rules)
    assert took_effect(again) == "pass"
    assert [fault.get("by") for fault in again.summary["faults"]] == [None, None]
    for fault, before in zip(again.summary["faults"], result.summary["faults"], strict=True):
        assert [fault.get(key) for key in ("action", "node", "between")] == [
            before.get(key) for key in ("action", "node", "between")
        ]
        assert fault["at"] == pytest.approx(before["at"], abs=ALIKE)
