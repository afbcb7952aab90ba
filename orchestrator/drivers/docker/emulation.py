"""The foreign processors that this host can emulate. The kernel passes their programs to an emulator (binfmt_misc).

See the kernel's Documentation/admin-guide/binfmt-misc.rst. For the machine numbers see elf(5) and <elf.h>.
"""

from __future__ import annotations

from pathlib import Path

HANDLERS = Path("/proc/sys/fs/binfmt_misc")
REMEDY = "`apt-get install qemu-user-static binfmt-support`"

MACHINES = {62: "amd64", 183: "arm64"}
"""ELF's e_machine, and its name in images, for the architectures that images of nodes exist for."""

_MACHINE = slice(18, 20)  # the place of e_machine in a program's first bytes, least significant byte first


def emulated(handlers: Path = HANDLERS) -> set[str]:
    """The architectures of programs that this kernel can run by an emulator, also inside containers."""
    if not handlers.is_dir():
        return set()
    architectures = set()
    for path in handlers.iterdir():
        if path.name in ("register", "status"):
            continue
        architecture = _emulated_by(path.read_text())
        if architecture is not None:
            architectures.add(architecture)
    return architectures


def _emulated_by(handler: str) -> str | None:
    """The architecture of a handler, by the kernel's description; None if it emulates no processor, or not in
    containers: these do not see the emulator's file, so the kernel must have opened it at its registration (flag F)."""
    lines = handler.splitlines()
    fields = {}
    for line in lines:
        name, _, value = line.partition(" ")
        fields[name.rstrip(":")] = value
    magic = bytes.fromhex(fields.get("magic", ""))
    is_enabled = lines[:1] == ["enabled"]
    is_opened = "F" in fields.get("flags", "")
    if not is_enabled or not is_opened or not magic.startswith(b"\x7fELF"):
        return None
    machine = int.from_bytes(magic[_MACHINE], "little")
    return MACHINES.get(machine)
