"""Changes of many links at one moment, in one process of tc."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from netem.profile import LinkProfile
from orchestrator.errors import OrchestratorError
from orchestrator.fabric.base import LinkChange
from tests.lab.inside.chance import EXACT
from tests.lab.inside.stage import Stage
from tests.lab.inside.stream import stream

Note = Callable[[str, object, object], None]
UP, DOWN = ("device-0", "cloud"), ("cloud", "device-0")
OTHER = ("device-1", "cloud")
FAR = LinkProfile(latency=0.02)


async def all_at_once(stage: Stage, changes: dict[tuple[str, str], LinkProfile]) -> list[object]:
    calls = (stage.fabric.change(*ends, profile) for ends, profile in changes.items())
    return list(await asyncio.gather(*calls, return_exceptions=True))


def test_changes_of_several_interfaces(stage: Stage) -> None:
    asked = {UP: FAR, DOWN: LinkProfile(latency=0.01, loss=0.5), OTHER: LinkProfile(latency=0.03, rate=5e6)}
    assert stage.do(all_at_once(stage, asked)) == [None] * 3
    for ends, profile in asked.items():
        found = stage.state(*ends).profile
        assert (found.latency, found.rate) == (profile.latency, profile.rate)
        assert found.loss == pytest.approx(profile.loss)
    assert stream(stage, *UP, count=20).delays == pytest.approx([0.02] * 20, abs=EXACT)


def test_one_that_the_kernel_refuses_leaves_the_others(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netem.profile.LONGEST", math.inf)  # a profile allows nothing that the kernel refuses
    beyond = LinkProfile(latency=1e6)  # more than the kernel's clock of ns holds
    refused, made = stage.do(all_at_once(stage, {OTHER: beyond, UP: FAR}))
    assert isinstance(refused, OrchestratorError)
    assert "device-1 -> cloud" in str(refused)
    assert made is None
    assert stage.state(*UP).profile == FAR


def test_cut_and_restored_at_one_moment(stage: Stage) -> None:
    before = {ends: stage.counters(*ends) for ends in (UP, OTHER)}
    assert stage.do(stage.fabric.alter([LinkChange(*ends, cut=True) for ends in (UP, OTHER)])) == [None, None]
    assert stream(stage, *UP, count=10).lost == stream(stage, *OTHER, count=10).lost == 10
    assert stage.do(stage.fabric.alter([LinkChange(*ends, cut=False) for ends in (UP, OTHER)])) == [None, None]
    assert stream(stage, *UP, count=10).lost == stream(stage, *OTHER, count=10).lost == 0
    for ends, was in before.items():
        now = stage.counters(*ends)
        counts = {key: int(now[key]) - int(was[key]) for key in ("offered", "delivered", "lost", "cut_dropped")}
        assert counts == {"offered": 20, "delivered": 10, "lost": 0, "cut_dropped": 10}
        assert now["drawn"] - was["drawn"] == 10


def test_losses_asked_for_are_counted_over_changes(stage: Stage, note: Note) -> None:
    before = stage.counters(*UP)
    for loss in (0.0, 0.5, 0.1):
        stage.shape(*UP, LinkProfile(loss=loss))
        stream(stage, *UP, count=400, spacing=0)
    now = stage.counters(*UP)
    asked, lost = (float(now[key]) - float(before[key]) for key in ("asked_lost", "lost"))
    assert asked == pytest.approx(240, abs=0.5)
    # 400 x 0.5 x 0.5 and 400 x 0.1 x 0.9: standard deviation 11.7, of which five come once in two million runs.
    assert lost == pytest.approx(240, abs=58)
    note("lost over three profiles, asked by their packets", f"{asked:.1f}", f"{lost:.0f}")


def test_two_hundred_links_at_one_moment(shared: Stage, tmp_path: Path, note: Note) -> None:
    with Stage(200, tmp_path, "{latency: 1ms, rate: 50mbit}", shared.tried) as stage:
        stage.attach("cloud")
        links = [(f"device-{number}", "cloud") for number in range(200)]
        began = processes()
        stage.do(stage.fabric.change(*links[0], LinkProfile(latency=0.01)))
        single = processes() - began
        began = processes()
        assert stage.do(all_at_once(stage, dict.fromkeys(links, FAR))) == [None] * 200
        together = processes() - began
        note("processes that change one link; 200 links at one moment", "", f"{single}; {together}")
        assert (single, together) == (0, 0)  # one tc makes all changes


def processes() -> int:
    """The processes and threads that this kernel has started (proc(5), /proc/stat)."""
    (line,) = [each for each in Path("/proc/stat").read_text().splitlines() if each.startswith("processes ")]
    return int(line.split()[1])
