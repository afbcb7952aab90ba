"""Which foreign processors this host can emulate: the kernel hands their programs to an emulator (binfmt_misc).

See the kernel's Documentation/admin-guide/binfmt-misc.rst, and for the numbers of machines elf(5) and <elf.h>.
"""

from __future__ import annotations

from pathlib import Path

HANDLERS = Path("/proc/sys/fs/binfmt_misc")
REMEDY = "`apt-get install qemu-user-static binfmt-support`"

MACHINES = {62: "amd64", 183: "arm64"}
"""ELF's e_machine, and what images call it: the architectures that there are nodes for."""

_MACHINE = slice(18, 20)  # where it stands in a program's first bytes, least significant byte first


def emulated(handlers: Path = HANDLERS) -> set[str]:
    """The architectures whose programs this kernel can run by an emulator, also inside of containers."""
    if not handlers.is_dir():
        return set()
    told = [each.read_text() for each in handlers.iterdir() if each.name not in ("register", "status")]
    return {architecture for text in told if (architecture := _emulated_by(text)) is not None}


def _emulated_by(handler: str) -> str | None:
    """What one handler is for, as the kernel describes it; None if for no processor, or not to be had in containers.

    A container does not see the emulator's file: the kernel must have opened it when it was registered (flag F).
    """
    lines = handler.splitlines()
    said = {name.rstrip(":"): value for name, _, value in (line.partition(" ") for line in lines)}
    magic = bytes.fromhex(said.get("magic", ""))
    if lines[:1] != ["enabled"] or "F" not in said.get("flags", "") or not magic.startswith(b"\x7fELF"):
        return None
    return MACHINES.get(int.from_bytes(magic[_MACHINE], "little"))
