"""What this host's netem can do, tried once while the host stays the same.

A trial takes a tenth of a second, and the runs of a sweep or a study all need its result.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.host.process import python

_MODULES = Path("/proc/modules")


@dataclass(frozen=True)
class Netem:
    """The features of this host's netem, see `orchestrator.fabric.tc.netem_support`. ``reason``: why it does not work,
    or ""."""

    works: bool
    seed: bool
    duplicate_in_tree: bool
    reason: str


_State = tuple[str, str | None, frozenset[str]]
_known: dict[_State, Netem] = {}


async def netem_here(hub: Hub) -> Netem:
    """The features of netem, tried in the hub, or known to this process. They are tried again after a module of the
    kernel was loaded or removed, and after a trial that a busy host may have spoiled. HostError if there is no
    trial."""
    known = _known.get(_state())
    if known is not None:
        return known
    output = await hub.run(python.module("orchestrator.fabric.tc.netem_support"))
    found = json.loads(output)
    netem = Netem(
        works=found["netem"],
        seed=found["seed"],
        duplicate_in_tree=found["duplicate_in_tree"],
        reason=found["reason"],
    )
    if found["lasting"]:
        _known[_state()] = netem  # the trial itself may have loaded modules
    return netem


def _state() -> _State:
    """What netem depends on: the kernel, the command `tc`, and the names of the loaded modules."""
    names = set()
    if _MODULES.exists():  # a kernel without modules has none
        for line in _MODULES.read_text().splitlines():
            names.add(line.split()[0])
    return os.uname().release, shutil.which("tc"), frozenset(names)
