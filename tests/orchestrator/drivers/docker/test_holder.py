"""Tests of the program that holds a node's namespaces open."""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from orchestrator.drivers.docker.holder import executable, write
from orchestrator.errors import HostError
from tests.e2e.harness import wait_for
from tests.programs import give_up, missing

EMULATORS = {"x86_64": "qemu-x86_64-static", "aarch64": "qemu-aarch64-static"}
ASLEEP = re.compile(r"^State:\s+S", re.MULTILINE)


def ignores(status: Path, number: signal.Signals) -> bool:
    """Whether a process ignores a signal, by its /proc/PID/status (proc(5))."""
    (ignored,) = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigIgn:")]
    return bool(int(ignored, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("machine", EMULATORS)
def test_it_ends_with_its_input(machine: str, tmp_path: Path) -> None:
    file = tmp_path / "holder"
    file.write_bytes(executable(machine))
    file.chmod(0o755)
    native = machine == os.uname().machine
    if not native and (lacking := missing([EMULATORS[machine]])):
        give_up(lacking)
    command = [str(file)] if native else [EMULATORS[machine], str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        status = Path(f"/proc/{process.pid}/status")
        wait_for(lambda: (ignores(status, signal.SIGCHLD) and ASLEEP.search(status.read_text())) or None, "its sleep")
        process.stdin.write(b"something that it does not understand")
        process.stdin.flush()
        wait_for(lambda: ASLEEP.search(status.read_text()), "its sleep")
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(10) == 0


def test_another_machine_is_refused() -> None:
    with pytest.raises(HostError, match=r"of x86_64 or aarch64.*riscv64"):
        executable("riscv64")


def test_its_file_can_be_executed_by_all(tmp_path: Path) -> None:
    write(tmp_path / "holder")
    assert (tmp_path / "holder").stat().st_mode & 0o777 == 0o755
    magic, bits = struct.unpack_from("4sB", (tmp_path / "holder").read_bytes())
    assert (magic, bits) == (b"\x7fELF", 2)
