"""What the kernel's list of handlers says about foreign processors; it is played by files of the same form."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.drivers.docker.emulation import emulated

# As the kernel shows what qemu-user-static of Debian 12 registers.
AARCH64 = """\
enabled
interpreter /usr/libexec/qemu-binfmt/aarch64-binfmt-P
flags: PF
offset 0
magic 7f454c460201010000000000000000000200b700
mask ffffffffffffff00fffffffffffffffffeffffff
"""
PYTHON = "enabled\ninterpreter /usr/bin/python3.11\nflags: \noffset 0\nmagic a70d0d0a\n"
JAR = "enabled\ninterpreter /usr/bin/jexec\nflags: \nextension .jar\n"


@pytest.mark.parametrize(
    ("handler", "found"),
    [
        (AARCH64, {"arm64"}),
        (AARCH64.replace("b700", "3e00"), {"amd64"}),
        (AARCH64.replace("b700", "f300"), set()),  # RISC-V, for which there are no nodes
        (AARCH64.replace("enabled", "disabled"), set()),
        (AARCH64.replace("PF", "P"), set()),  # a container would look for the emulator in itself
        (PYTHON, set()),
        (JAR, set()),
    ],
)
def test_a_handler(tmp_path: Path, handler: str, found: set[str]) -> None:
    (tmp_path / "status").write_text("enabled\n")
    (tmp_path / "handler").write_text(handler)
    assert emulated(tmp_path) == found


def test_what_is_for_writing_only_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "register").mkdir()  # reading it would be an error
    (tmp_path / "qemu-aarch64").write_text(AARCH64)
    assert emulated(tmp_path) == {"arm64"}


def test_without_binfmt_misc_nothing_is_emulated(tmp_path: Path) -> None:
    assert emulated(tmp_path / "nowhere") == emulated(tmp_path) == set()
