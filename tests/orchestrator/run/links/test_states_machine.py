"""The state of links under random causes is what follows from the causes that are in force, in their order."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from hypothesis.strategies import booleans, sampled_from, sets

from netem.media.profile import Crossing
from netem.profile import LinkProfile
from orchestrator.planning.plan import LinkPlan
from orchestrator.run.links.states import LinkStates
from orchestrator.scenario.sections.topology import Ends

BASE = LinkProfile(latency=0.01)
PAIRS: list[Ends] = [("edge-0", "cloud"), ("cloud", "edge-0"), ("edge-1", "cloud")]
PLANNED = {PAIRS[0]: (Crossing("cell-a", "edge-0"),), PAIRS[2]: (Crossing("cell-b", "edge-1"),)}
PROFILES = [BASE, LinkProfile(rate=10e6), LinkProfile(latency=0.2, rate=1e6)]
OVERLAYS: list[dict[str, Any]] = [{"latency": "300ms"}, {"rate": "5mbit"}, {"latency": "400ms", "rate": "2mbit"}]
SCHEDULE = "schedule"

causes = sampled_from([1, 2, 3])
some_pairs = sets(sampled_from(PAIRS), min_size=1)
channels = sampled_from(["cell-a", "cell-b"])


class Causes(RuleBasedStateMachine):
    """Every entry of ``force`` is a cause that is in force, in the order in which they came: what it does, the cause,
    the link or channel that it concerns, and a value."""

    def __init__(self) -> None:
        super().__init__()
        plans = []
        for seed, (source, target) in enumerate(PAIRS):
            crossings = PLANNED.get((source, target), ())
            plans.append(LinkPlan(source, target, "edge-cloud", BASE, seed, crossings=crossings))
        self.states = LinkStates(plans)
        self.profiles = dict.fromkeys(PAIRS, BASE)
        self.force: list[tuple[str, Any, Any, Any]] = []

    def _put(self, kind: str, cause: Any, concerned: Any, value: Any = None) -> None:
        """Add what a cause does. If it did the same to the same link before, it keeps its place."""
        for number, entry in enumerate(self.force):
            if entry[:3] == (kind, cause, concerned):
                self.force[number] = (kind, cause, concerned, value)
                return
        self.force.append((kind, cause, concerned, value))

    def _in_force(self, kind: str, concerned: Any) -> list[Any]:
        return [entry[3] for entry in self.force if (entry[0], entry[2]) == (kind, concerned)]

    def _crossings(self, pair: Ends) -> tuple[Crossing, ...]:
        handovers: list[tuple[Crossing, ...]] = self._in_force("reroute", pair)
        if handovers:
            return handovers[-1]
        return PLANNED.get(pair, ())

    def _channels(self, pair: Ends) -> list[str]:
        return [crossing.channel for crossing in self._crossings(pair)]

    @rule(pairs=some_pairs, cause=causes)
    def cut(self, pairs: set[Ends], cause: int) -> None:
        self.states.cut(pairs, cause)
        for pair in pairs:
            self._put("cut", cause, pair)

    @rule(pairs=some_pairs, cause=causes)
    def mend(self, pairs: set[Ends], cause: int) -> None:
        self.states.mend(pairs, cause)
        for pair in pairs:
            self.force = [entry for entry in self.force if entry[:3] != ("cut", cause, pair)]

    @rule(pairs=some_pairs, cause=causes, changes=sampled_from(OVERLAYS))
    def overlay(self, pairs: set[Ends], cause: int, changes: dict[str, Any]) -> None:
        self.states.overlay(dict.fromkeys(pairs, changes), cause)
        for pair in pairs:
            self._put("overlay", cause, pair, changes)

    @rule(pairs=some_pairs, cause=causes, channel=channels)
    def reroute(self, pairs: set[Ends], cause: int, channel: str) -> None:
        crossings = (Crossing(channel, "edge"),)
        self.states.reroute(dict.fromkeys(pairs, crossings), cause)
        for pair in pairs:
            self._put("reroute", cause, pair, crossings)

    @rule(channel=channels, cause=causes)
    def close(self, channel: str, cause: int) -> None:
        concerned = self.states.close([channel], cause)
        self._put("close", cause, channel)
        across = [pair for pair in PAIRS if channel in self._channels(pair)]
        assert concerned == sorted(across)

    @rule(pair=sampled_from(PAIRS), profile=sampled_from(PROFILES), cut=booleans())
    def follow(self, pair: Ends, profile: LinkProfile, cut: bool) -> None:
        self.states.follow(pair, profile, SCHEDULE, cut=cut)
        self.profiles[pair] = profile
        self.force = [entry for entry in self.force if entry[:3] != ("cut", SCHEDULE, pair)]
        if cut:
            self._put("cut", SCHEDULE, pair)

    @rule(cause=causes)
    def lift(self, cause: int) -> None:
        """Every link that changes is among those that `lift` returns, each once."""
        before = {pair: self.states.of(pair) for pair in PAIRS}
        concerned = self.states.lift(cause)
        self.force = [entry for entry in self.force if entry[1] != cause]
        assert len(concerned) == len(set(concerned))
        changed = {pair for pair in PAIRS if self.states.of(pair) != before[pair]}
        assert changed <= set(concerned)

    @invariant()
    def state_follows_from_the_causes(self) -> None:
        for pair in PAIRS:
            profile = self.profiles[pair]
            for changes in self._in_force("overlay", pair):
                profile = profile.merged(changes)
            crossings = self._crossings(pair)
            closed = [channel for channel in self._channels(pair) if self._in_force("close", channel)]
            state = self.states.of(pair)
            assert state.profile == profile
            assert state.crossings == crossings
            assert state.cut == bool(self._in_force("cut", pair) or closed)


TestCauses: Any = Causes.TestCase
TestCauses.settings = settings(max_examples=60, stateful_step_count=40)
