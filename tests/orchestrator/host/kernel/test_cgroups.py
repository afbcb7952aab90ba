from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from orchestrator.fabric.namespaces.anchor import removed
from orchestrator.host.kernel.cgroups import (
    SWAP,
    Hierarchy,
    NodeGroups,
    has_controller,
    left_behind,
    limits,
    may_swap,
    memory_group,
    writable_hierarchies,
)
from tests.e2e.harness import wait_for

BOARD = (0.25, 16 << 20)  # cores, bytes: each page that is touched takes a guest of tests.lab a millisecond
RUN = f"test-{os.getpid()}"
BUSY = "exec('while True: pass')"
GREEDY = "held = bytearray(b'1') * (256 << 20); print('allocated')"


def test_limits_of_version_2_stand_in_one_hierarchy() -> None:
    files = limits(Hierarchy(Path("/"), ("cpu", "memory"), 2), *BOARD)
    assert files == {  # of 100 ms, in microseconds; bytes
        "cpu.max": "25000 100000",
        "memory.max": "16777216",
        "memory.swap.max": "0",
    }


def test_version_1_has_a_hierarchy_for_each_controller() -> None:
    assert limits(Hierarchy(Path("/"), ("cpu",), 1), *BOARD) == {
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "25000",
    }
    assert list(limits(Hierarchy(Path("/"), ("memory",), 1), *BOARD).items()) == [
        ("memory.limit_in_bytes", "16777216"),
        ("memory.memsw.limit_in_bytes", "16777216"),  # in this order
    ]


def test_hardware_without_limits_has_none() -> None:
    assert limits(Hierarchy(Path("/"), ("cpu", "memory"), 2), None, None) == {}


@pytest.mark.parametrize("name", ["memory.swap.max", "memory.memsw.limit_in_bytes"])
def test_nodes_swap_only_where_the_host_does_and_the_kernel_cannot_limit_it(tmp_path: Path, name: str) -> None:
    none, one, group = tmp_path / "none", tmp_path / "one", tmp_path / "group"
    none.write_text("Filename Type Size Used Priority\n")
    one.write_text("Filename Type Size Used Priority\n/dev/vda2 partition 999 0 -2\n")
    group.mkdir()
    assert not may_swap([group], none)
    assert may_swap([group], one)
    (group / name).touch()
    assert not may_swap([group], one)


def test_nodes_do_not_swap_on_a_kernel_without_swap(tmp_path: Path) -> None:
    assert not may_swap([tmp_path], tmp_path / "swaps")


@pytest.mark.parametrize(
    ("version", "name", "events", "kills"),
    [
        (1, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", 2),
        (2, "memory.events", "low 0\nhigh 0\nmax 90\noom 2\noom_kill 2\n", 2),
        (2, "memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\n", 0),  # the host had no memory left
    ],
)
def test_kills_for_the_memory_limit_are_counted(
    tmp_path: Path, version: int, name: str, events: str, kills: int
) -> None:
    groups = NodeGroups("run", [Hierarchy(tmp_path, ("memory",), version)])
    assert groups.killed("device-0") == 0
    (tmp_path / "edgebed-run" / "device-0").mkdir(parents=True)
    (tmp_path / "edgebed-run" / "device-0" / name).write_text(events)
    assert groups.killed("device-0") == kills


@pytest.mark.parametrize(
    ("cgroup", "group"),
    [
        ("4:memory:/docker/abc\n0::/docker/abc\n", "memory/docker/abc"),
        ("5:cpu,memory:/libpod_parent/libpod-abc\n0::/x\n", "memory/libpod_parent/libpod-abc"),
        ("0::/machine.slice/libpod-abc.scope/container\n", "machine.slice/libpod-abc.scope"),
        ("0::/system.slice/docker-abc.scope\n", "system.slice/docker-abc.scope"),
        ("0::/user.slice\n", None),
        (None, None),
    ],
)
def test_the_group_with_the_limit_of_a_container(tmp_path: Path, cgroup: str | None, group: str | None) -> None:
    """Version 1 and 2, Docker and Podman; crun puts processes into a group below the one with the limit."""
    proc, root = tmp_path / "proc", tmp_path / "groups"
    if cgroup is not None:
        (proc / "7").mkdir(parents=True)
        (proc / "7" / "cgroup").write_text(cgroup)
    assert memory_group(7, "abc", proc, root) == (None if group is None else root / group)


def test_the_controllers_of_this_host(tmp_path: Path) -> None:
    assert not has_controller("pids", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    assert has_controller("pids", tmp_path)
    (tmp_path / "freezer").mkdir()
    assert has_controller("freezer", tmp_path)


def test_version_2_offers_what_its_root_hands_on(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("memory pids\n")
    assert writable_hierarchies(tmp_path) == [Hierarchy(tmp_path, ("memory",), 2)]
    (tmp_path / "cgroup.subtree_control").write_text("\n")
    assert writable_hierarchies(tmp_path) == []


def gone(path: Path) -> bool | None:
    """True once a control group is removed."""
    return removed(str(path)) or None


@pytest.fixture
def groups() -> Iterator[NodeGroups]:
    """Of a run that is this test, where this user may make groups."""
    hierarchies = writable_hierarchies()
    if {name for each in hierarchies for name in each.controllers} != {"cpu", "memory"}:
        pytest.skip("control groups for cpu and memory cannot be made here: that needs root")
    made = NodeGroups(RUN, hierarchies)
    paths = made.create()
    yield made
    assert left_behind(RUN) == paths
    for path in paths:
        wait_for(partial(gone, path), f"the end of {path}")
    assert left_behind(RUN) == []


@pytest.fixture
def start(groups: NodeGroups) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a program that is let go once it is under the limits."""
    started = []

    def begin(program: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-I", "-S", "-c", f"input(); {program}"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        for group in groups.make(f"device-{len(started)}", *BOARD):
            (group / "cgroup.procs").write_text(str(process.pid))
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_a_node_has_its_cores_and_no_more(start: Callable[[str], subprocess.Popen[str]]) -> None:
    process = start(BUSY)

    def used() -> float:
        """Seconds of the processor's time (proc(5), /proc/pid/stat: 14 and 15)."""
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before, began = used(), time.monotonic()
    wait_for(lambda: used() - before > 1.0 or None, "a second of its time")
    share = (used() - before) / (time.monotonic() - began)
    assert share < 0.25 * 1.25  # a first period of 100 ms, ticks, and a busy host that stops a guest


def test_a_node_that_needs_more_memory_than_it_has_is_killed(start: Callable[[str], subprocess.Popen[str]]) -> None:
    if may_swap(left_behind(RUN)):
        pytest.skip("this host swaps out what is beyond the limit")
    output, _ = start(GREEDY).communicate(timeout=60)
    assert "allocated" not in output


def test_a_node_has_no_swap(start: Callable[[str], subprocess.Popen[str]]) -> None:
    start(BUSY)
    nodes = [path / "device-1" for path in left_behind(RUN)]
    found = {name: (node / name).read_text() for node in nodes for name in SWAP if (node / name).exists()}
    if not found:
        pytest.skip("this kernel does not limit swap")
    assert found in ({"memory.swap.max": "0\n"}, {"memory.memsw.limit_in_bytes": "16777216\n"})
