"""Cores and memory of hardware under cgroup v2, which the kernel of a guest has, whatever the host's own has."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.host.cgroups import PREFIX, ROOT, writable_hierarchies
from tests.e2e.harness import SMALL, Background, traces_of
from tests.orchestrator.host.test_cgroups import (  # noqa: F401
    groups,
    start,
    test_a_node_has_its_cores_and_no_more,
    test_a_node_that_needs_more_memory_than_it_has_is_killed,
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        [each.version for each in writable_hierarchies()] != [2], reason="no cgroup v2 to make groups in"
    ),
]

PAGE = 4096  # bytes, in which memory is limited
HARDWARE = """\
hardware:
  device: {cores: 0.5, memory: 1gb}
"""


def test_a_run_keeps_its_nodes_within_their_hardware(tmp_path: Path) -> None:
    with Background(tmp_path, SMALL + HARDWARE, "--set", "algorithm.rounds=1") as run:
        run.wait_round(1, timeout=200)
        group = ROOT / f"{PREFIX}{run.directory.run}" / "device-0-1"
        assert (group / "cpu.max").read_text().split() == ["50000", "100000"]  # microseconds of 100 ms
        assert int((group / "memory.max").read_text()) == 10**9 // PAGE * PAGE
        assert str(run.pid_of("device-0-1")) in (group / "cgroup.procs").read_text().split()
        result = run.result(timeout=200)
        assert result.code == 0, result.errors
        with closing(run.history()) as history:
            assert [note for note in history.notes if "limit" in note] == []
        assert traces_of(run.directory.run) == []
