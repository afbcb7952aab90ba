"""When netem is tried, with a hub that counts the trials."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.tc import netem_trial
from orchestrator.fabric.tc.netem_trial import netem_here


class TryingHub:
    """A hub in which netem works."""

    def __init__(self, *, lasting: bool = True) -> None:
        self.trials = 0
        self.lasting = lasting

    async def run(self, argv: Sequence[str]) -> str:
        self.trials += 1
        found = {"netem": True, "seed": True, "duplicate_in_tree": False, "reason": "", "lasting": self.lasting}
        return json.dumps(found)


def load(modules: Path, *lines: str) -> None:
    """Let the file of the kernel's modules have these lines."""
    modules.write_text("".join(f"{line} - Live 0x0\n" for line in lines))


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "modules"
    load(file, "veth 16384 0")
    monkeypatch.setattr(netem_trial, "_MODULES", file)
    monkeypatch.setattr(netem_trial, "_known", {})
    return file


async def test_netem_is_tried_once_on_an_unchanged_host(modules: Path) -> None:
    hub = TryingHub()
    first = await netem_here(cast(Hub, hub))
    load(modules, "veth 16384 6")  # the same module has more users
    assert await netem_here(cast(Hub, hub)) == first
    assert hub.trials == 1


async def test_netem_is_tried_again_after_a_module_was_loaded(modules: Path) -> None:
    hub = TryingHub()
    await netem_here(cast(Hub, hub))
    load(modules, "veth 16384 0", "sch_netem 20480 0")
    await netem_here(cast(Hub, hub))
    assert hub.trials == 2


async def test_a_trial_on_a_busy_host_is_not_kept(modules: Path) -> None:
    hub = TryingHub(lasting=False)
    await netem_here(cast(Hub, hub))
    await netem_here(cast(Hub, hub))
    assert hub.trials == 2
