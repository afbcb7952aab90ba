"""Whether the kernel has a module: loaded, built in, or installed to be loaded (modules.dep(5), modules.builtin)."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.host.kernel.small_files import text_of


def has_module(name: str, root: Path = Path("/"), release: str | None = None) -> bool | None:
    """Whether the kernel of the tree ``root``, which holds proc and lib, has a module. None if that cannot be told.
    ``release``: the kernel's, by default that of this host."""
    wanted = name.replace("-", "_")
    loaded = text_of(root / "proc/modules") or ""  # "iptable_raw 16384 0 - Live 0x0"
    if any(line.partition(" ")[0] == wanted for line in loaded.splitlines()):
        return True
    folder = root / "lib/modules" / (release or os.uname().release)
    listed = [_listed(folder / file) for file in ("modules.builtin", "modules.dep")]
    if all(each is None for each in listed):
        return None
    return any(wanted in each for each in listed if each is not None)


def _listed(file: Path) -> set[str] | None:
    """The modules by their paths at the start of lines: "kernel/net/ipv4/netfilter/iptable_raw.ko.xz: ..."."""
    text = text_of(file)
    if text is None:
        return None
    paths = (line.partition(":")[0].rpartition("/")[2] for line in text.splitlines())
    return {path.partition(".ko")[0].replace("-", "_") for path in paths}
