from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.drivers.virtual.guest import command
from orchestrator.host.kernel.virtual_time import in_virtual_time
from tests.orchestrator.drivers.virtual.test_guest import KERNEL, of_programs


def test_a_guest_is_in_virtual_time(tmp_path: Path) -> None:
    file = tmp_path / "cmdline"
    file.write_text(" ".join(command(KERNEL, of_programs())) + "\n")
    assert in_virtual_time(file)


@pytest.mark.parametrize("line", ["", "root=/dev/vda ro quiet", "mem=1G time-travel=ext:5:/socket", "x=time-travel"])
def test_other_kernels_are_not(tmp_path: Path, line: str) -> None:
    file = tmp_path / "cmdline"
    file.write_text(f"{line}\n")
    assert not in_virtual_time(file)


def test_without_proc_the_time_is_not_virtual(tmp_path: Path) -> None:
    assert not in_virtual_time(tmp_path / "cmdline")
