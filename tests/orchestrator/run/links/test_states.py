"""What weighs on links, and that the engine is kept at it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from netem.errors import ProfileError
from netem.profile import LinkProfile
from node.runtime.clock import run_virtual
from orchestrator.errors import FabricError
from orchestrator.fabric.base import Fabric
from orchestrator.planning.plan import LinkPlan
from orchestrator.run.links.states import Links, LinkState, LinkStates
from tests.virtual import virtual

BASE = LinkProfile(latency=0.01)
UP, DOWN = ("edge-0", "cloud"), ("cloud", "edge-0")
LINKS = [LinkPlan(*ends, "edge-cloud", BASE, seed) for seed, ends in enumerate((UP, DOWN))]
FAST, SLOW = LinkProfile(rate=10e6), LinkProfile(rate=1e6)


class Engine:
    """Remembers what was done to links; ``broken`` verbs fail; each takes ``takes`` seconds."""

    def __init__(self, takes: float = 0.0) -> None:
        self.done: list[tuple[float, Any]] = []
        self.broken: set[str] = set()
        self.takes = takes

    def __getattr__(self, verb: str) -> Any:
        async def power(*arguments: Any) -> None:
            if verb in self.broken:
                raise FabricError(f"{verb}: no")
            await asyncio.sleep(self.takes)
            self.done.append((asyncio.get_running_loop().time(), (verb, *arguments)))

        return power

    def verbs(self) -> list[Any]:
        return [(done[0], *done[3:]) for _, done in self.done]


def test_a_link_is_whole_when_nothing_cuts_it_any_more() -> None:
    states = LinkStates(LINKS)
    states.cut([UP, DOWN], 1)
    states.cut([UP], 2)
    states.follow(UP, BASE, "schedule", cut=True)
    assert states.lift(1) == [UP, DOWN]
    assert (states.of(UP).cut, states.of(DOWN).cut) == (True, False)
    states.lift(2)
    assert states.of(UP).cut  # the handover goes on
    states.follow(UP, BASE, "schedule", cut=False)
    assert states.of(UP) == LinkState(BASE, cut=False)
    assert states.lift(2) == []


def test_a_cause_may_end_on_some_of_its_links_only() -> None:
    states = LinkStates(LINKS)
    states.cut([UP, DOWN], "elsewhere")
    states.cut([UP], 1)
    states.mend([UP], "elsewhere")
    assert (states.of(UP).cut, states.of(DOWN).cut) == (True, True)  # a fault still cuts the first
    states.lift(1)
    assert (states.of(UP).cut, states.of(DOWN).cut) == (False, True)


def test_overlays_go_over_the_profile_of_the_moment_in_their_order() -> None:
    states = LinkStates(LINKS)
    states.overlay({UP: {"loss": "10%"}}, 1)
    states.overlay({UP: {"latency": "50ms", "loss": "1%"}}, 2)
    assert states.of(UP).profile == LinkProfile(latency=0.05, loss=0.01)
    states.follow(UP, FAST, "schedule", cut=False)
    assert states.of(UP).profile == LinkProfile(latency=0.05, loss=0.01, rate=10e6)
    states.lift(2)
    assert states.of(UP).profile == LinkProfile(rate=10e6, loss=0.1)
    assert states.of(DOWN).profile == BASE


def test_an_overlay_that_does_not_go_with_the_profile_of_the_moment_is_reported() -> None:
    states = LinkStates(LINKS)
    states.overlay({UP: {"buffer": "10ms"}}, 1)
    with pytest.raises(ProfileError, match="buffer: needs a rate"):
        states.of(UP)


def test_the_engine_receives_only_what_changes() -> None:
    async def main() -> list[Any]:
        engine = Engine()
        links = Links(LINKS, cast(Fabric, engine))
        await links.follow(UP, BASE, "schedule", cut=False)
        await links.cut([UP], 1)
        await links.follow(UP, FAST, "schedule", cut=True)  # cut already; the profile changes all the same
        await links.lift(1)
        await links.follow(UP, SLOW, "schedule", cut=False)
        return engine.verbs()

    assert run_virtual(main()) == [("cut",), ("change", FAST), ("change", SLOW), ("restore",)]


def test_the_last_one_is_right_however_long_the_engine_takes() -> None:
    async def main() -> list[Any]:
        engine = Engine(takes=1.0)
        links = Links(LINKS, cast(Fabric, engine))
        first = asyncio.create_task(links.follow(UP, FAST, "schedule", cut=False))
        await asyncio.sleep(0.1)
        rest = [links.overlay({UP: {"loss": "5%"}}, 1), links.follow(UP, SLOW, "schedule", cut=False)]
        await asyncio.gather(first, *rest)
        return engine.done

    *_, last = run_virtual(main())
    assert last == (2.0, ("change", *UP, SLOW.merged(loss=0.05)))  # one change for the two that waited


@virtual
async def test_a_weight_that_cannot_be_put_on_is_taken_off_again() -> None:
    engine = Engine()
    links = Links(LINKS, cast(Fabric, engine))
    engine.broken = {"change"}
    with pytest.raises(FabricError):
        await links.overlay({UP: {"loss": "5%"}, DOWN: {"loss": "5%"}}, 1)
    engine.broken = set()
    await links.follow(UP, FAST, "schedule", cut=False)
    assert engine.verbs() == [("change", FAST)]


@virtual
async def test_a_link_that_was_cut_is_restored_although_its_new_profile_was_refused() -> None:
    engine = Engine()
    links = Links(LINKS, cast(Fabric, engine))
    engine.broken = {"change"}
    with pytest.raises(FabricError):
        await links.follow(UP, SLOW, "schedule", cut=True)
    engine.broken = set()
    await links.follow(UP, FAST, "schedule", cut=False)
    assert engine.verbs() == [("cut",), ("change", FAST), ("restore",)]
