"""Commands inside the nodes of a running run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import FEW, PACED, ROOT, Background, command, json_of, wait_for

pytestmark = pytest.mark.e2e

LONG = FEW.replace("rounds: 3", "rounds: 10000") + PACED + "probe: {before: false}\n"
NODE = "device-0-0"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Background]:
    """A run that trains until it is ended."""
    with Background(tmp_path_factory.mktemp("inside"), LONG) as run:
        run.wait_round(1)
        yield run


def inside(run: Background, line: str, code: int = 0) -> str:
    """What a line of a shell prints in the node."""
    words = command("exec", NODE, "--json", "--runs", run.runs, "--", "sh", "-c", line)
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert (done.returncode, found["node"], found["code"]) == (code, NODE, code)
    said: str = found["stdout"]
    return said


def test_a_command_has_the_files_of_the_node(run: Background) -> None:
    assert {"checkpoints", "data", "scratch"} < set(inside(run, "ls /run/edgebed").split())
    assert inside(run, "hostname; pwd; echo $HOME").split() == [NODE, "/", "/"]
    assert "forkserver" in inside(run, "cat /proc/1/cmdline | tr '\\0' ' '")  # the node itself


def test_a_command_has_the_network_of_the_node(run: Background) -> None:
    assert "data0" in inside(run, "ip -brief link")


@pytest.mark.programs("ping")
def test_its_packets_cross_the_links_of_the_node(run: Background) -> None:
    inside(run, "ping -c 1 -W 5 10.77.0.2 && exit 7", code=7)  # its edge


def test_output_and_code_are_those_of_the_command(run: Background) -> None:
    words = command("exec", NODE, "--runs", run.runs, "--", "sh", "-c", "echo out; echo err >&2; cat; exit 5")
    done = subprocess.run(words, cwd=ROOT, input="in\n", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (5, "out\nin\n", "err\n")
    words = command("shell", NODE, "--runs", run.runs)
    done = subprocess.run(words, cwd=ROOT, input="hostname; exit 6", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (6, f"{NODE}\n")


def test_a_command_ends_with_its_node(run: Background, tmp_path: Path) -> None:
    words = command("exec", "edge-0", "--runs", run.runs, "--", "sh", "-c", "echo ready; exec sleep 1000")
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            json_of("inject", "crash", "edge-0", "--for", "10s", "--runs", run.runs)
            assert wait_for(process.poll, "the end of the command") != 0
        finally:
            process.kill()
