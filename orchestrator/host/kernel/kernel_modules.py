"""Whether the kernel has a module: loaded, built in, or installed to be loaded (modules.dep(5), modules.builtin)."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.host.kernel.small_files import text_of


def has_module(
    name: str,
    root: Path = Path("/"),
    release: str | None = None,
) -> bool | None:
    """Whether the kernel of the tree ``root``, which holds proc and lib, has a module. None if that is unknown.
    ``release``: the kernel's, by default that of this host."""
    wanted = name.replace("-", "_")
    loaded = text_of(root / "proc/modules") or ""  # "iptable_raw 16384 0 - Live 0x0"
    for line in loaded.splitlines():
        module, _, _ = line.partition(" ")
        if module == wanted:
            return True
    if not release:
        release = os.uname().release
    folder = root / "lib/modules" / release
    built_in = _listed(folder / "modules.builtin")
    loadable = _listed(folder / "modules.dep")
    if built_in is None and loadable is None:
        return None
    for modules in (built_in, loadable):
        if modules is not None and wanted in modules:
            return True
    return False


def _listed(file: Path) -> set[str] | None:
    """The modules by their paths at the start of lines: "kernel/net/ipv4/netfilter/iptable_raw.ko.xz: ..."."""
    text = text_of(file)
    if text is None:
        return None
    modules = set()
    for line in text.splitlines():
        path, _, _ = line.partition(":")
        name = path.rpartition("/")[2]
        module, _, _ = name.partition(".ko")
        modules.add(module.replace("-", "_"))
    return modules
