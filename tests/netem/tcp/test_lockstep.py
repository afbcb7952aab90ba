"""Flows in lockstep against flows of their own."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netem.profile import LinkProfile
from netem.tcp.flow import Flow
from netem.tcp.lockstep import Flows, LockstepFlow

LINK = LinkProfile(latency=0.02, rate=20e6, buffer=0.02)
OTHER = LinkProfile(latency=0.05, jitter=0.01, loss=0.05, rate=5e6)
METHODS = ("send", "send", "send", "send", "open", "cut", "restore", "reshape")
LINKS = 3


def call(flow: Flow | LockstepFlow, method: str, now: float, size: int) -> float | list[float] | None:
    if method == "send":
        return flow.send(now, size)
    if method == "open":
        return flow.open(now)
    if method == "cut":
        return flow.cut(now)
    return flow.restore(now) if method == "restore" else flow.reshape(now, OTHER, LINK)


subsets = st.sets(st.integers(0, LINKS - 1), min_size=1)
calls = st.tuples(st.floats(0, 1), st.sampled_from(METHODS), st.integers(0, 10**6), subsets)


@settings(deadline=None)  # what is computed, not how fast on a busy host
@given(st.lists(calls, max_size=12))
def test_each_flow_has_the_times_and_counters_of_a_flow_of_its_own(
    steps: list[tuple[float, str, int, set[int]]],
) -> None:
    flows, now = Flows(), 0.0
    together = [flows.flow(LINK, LINK, seed, 0.5, 2.0, beat_seed=9) for seed in range(LINKS)]
    alone = [Flow(LINK, LINK, seed, 0.5, 2.0, beat_seed=9) for seed in range(LINKS)]
    for pause, method, size, links in steps:
        now += pause
        for link in links:
            assert call(together[link], method, now, size) == call(alone[link], method, now, size)
        for one, other in zip(together, alone, strict=True):
            assert isinstance(one, LockstepFlow)
            assert one.flow.counted(now) == other.counted(now)


def test_a_message_to_many_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    send = Flow.send

    def noting(flow: Flow, now: float, size: int) -> float:
        sent.append((now, size))
        return send(flow, now, size)

    monkeypatch.setattr(Flow, "send", noting)
    flows = Flows()
    receivers = [flows.flow(LINK, LINK, seed, math.inf, math.inf, beat_seed=1) for seed in range(101)]
    for now in (0.0, 5.0):
        assert len({flow.send(now, 40_000) for flow in receivers}) == 1
    assert sent == [(0.0, 40_000)] * 2 + [(5.0, 40_000)] * 2  # the first flow is one of its own


@pytest.mark.parametrize("link", [OTHER, LinkProfile(corrupt=0.1), LinkProfile(latency=0.01, jitter=0.001)])
def test_links_with_chance_have_flows_of_their_own(link: LinkProfile) -> None:
    flows = Flows()
    for ways in ((link, LINK), (LINK, link)):
        assert isinstance(flows.flow(*ways, 1, math.inf, math.inf), Flow)
