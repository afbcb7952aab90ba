"""The check of rates, with the counters that the engines' own code makes under a full load."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from netem.impair import Impairment
from netem.library import PROFILES
from netem.profile import FULL_FRAME, LinkProfile
from netem.tcp.flow import Flow
from netem.userspace.segments import segments_together
from orchestrator.record.schema import COUNTERS
from orchestrator.record.writer import Record
from orchestrator.results.checks.links import Busiest, busiest
from orchestrator.results.history import History
from tests.orchestrator.example_run import Example, plan_of

pytestmark = pytest.mark.slow

RATES = [1e3, 10e3, 100e3, 1e6, 5e6, 100e6, 1e9]
LINKS = {
    **{name: profile for name, profile in PROFILES.items() if profile.rate},
    **{f"{rate:g}": LinkProfile(latency=0.02, rate=rate) for rate in RATES},
    **{f"{rate:g} with 2 s of buffer": LinkProfile(rate=rate, buffer=2.0) for rate in RATES[:-1]},
    **{f"{rate:g} without a buffer": LinkProfile(rate=rate, buffer_bytes=0) for rate in RATES[:-1]},
    "5 mbit with 400 ms": LinkProfile(latency=0.4, rate=5e6),
    "1 mbit with much jitter": LinkProfile(latency=2, jitter=1, distribution="uniform", rate=1e6),
}


def seconds_of(profile: LinkProfile) -> int:
    rate = profile.rate or 0.0
    return 700 if rate < 10e3 else 90 if rate <= 5e6 else 10


def by_packets(profile: LinkProfile, size: int) -> Callable[[float], dict[str, int]]:
    """A sender that keeps the buffer full, or offers a frame each time the link is idle if it has none."""
    impairment, now = Impairment(profile, seed=1), 0.0
    many = (segments_together(profile) or 1) if size == FULL_FRAME else 1
    step = max(size * many * 8 / (profile.rate or 1.0), 0.0005 if size == FULL_FRAME else 0.01)

    def counted(until: float) -> dict[str, int]:
        nonlocal now
        while now < until:
            while impairment.offer(now, size * many, many) and impairment.backlog(now) < (profile.buffer_limit or 0):
                pass
            now += step
        return asdict(impairment.counted(until))

    return counted


def by_model(profile: LinkProfile, size: int) -> Callable[[float], dict[str, int]]:
    """A sender that sends the next message when the one before it has arrived."""
    flow, now = Flow(profile, profile, seed=1), 0.0

    def counted(until: float) -> dict[str, int]:
        nonlocal now
        while now < until:
            now = flow.send(now, size)
        return asdict(flow.counted(until))

    return counted


def judged(
    directory: Path,
    links: dict[str, tuple[LinkProfile, Callable[[float], dict[str, int]]]],
    link_class: str | None = None,
) -> dict[str, Busiest]:
    """The busiest link of each class. Without a ``link_class`` for all, every link has one of its own."""
    plan: dict[str, Any] = plan_of(Example(edges=1, devices_per_edge=2, rounds=2, with_faults=False))
    plan["links"] = [
        {"source": name, "target": "cloud", "link_class": link_class or name, "profile": profile.to_mapping()}
        for name, (profile, _) in links.items()
    ]
    record, random = Record.create(directory, json.dumps(plan), {"engine": "userspace"}), Random(1)
    for name, (profile, counted) in links.items():
        row = dict.fromkeys(COUNTERS, 0) | {"source": name, "target": "cloud", "link_class": link_class or name}
        for second in range(seconds_of(profile)):
            t = second + random.random() / 5  # a busy host reads late
            record.counters(t, [row | counted(t)])
    record.close()
    with History.open(directory) as history:
        return {each.link_class: each for each in busiest(history)}


@pytest.mark.parametrize("size", [200, FULL_FRAME])
def test_a_full_link_carries_no_more_than_its_rate(tmp_path: Path, size: int) -> None:
    small = {name: each for name, each in LINKS.items() if (each.rate or 0.0) <= 5e6 or size == FULL_FRAME}
    found = judged(tmp_path, {name: (each, by_packets(each, size)) for name, each in small.items()})
    assert [each for each in found.values() if each.too_fast] == []
    if size == FULL_FRAME:
        assert all(each.window.rate > 0.5 * each.asked for each in found.values())
        assert found.keys() == small.keys()


@pytest.mark.parametrize("size", [50_000, 5_000_000])
def test_a_modelled_link_carries_no_more_than_its_rate(tmp_path: Path, size: int) -> None:
    found = judged(tmp_path, {name: (each, by_model(each, size)) for name, each in LINKS.items()})
    assert [each for each in found.values() if each.too_fast] == []
    assert len(found) > len(LINKS) / 2


def test_a_link_that_carries_a_tenth_too_much_fails(tmp_path: Path) -> None:
    steady = {name: each for name, each in LINKS.items() if seconds_of(each) >= 90 and not each.jitter}
    wrong = {
        name: (each, by_packets(each.merged(rate=1.1 * (each.rate or 0.0)), FULL_FRAME))
        for name, each in steady.items()
    }
    found = judged(tmp_path, wrong)
    assert all(each.too_fast for each in found.values())
    assert found.keys() == steady.keys()


@pytest.mark.parametrize("order", [("full", "idle"), ("idle", "full")])
def test_the_busiest_link_stands_for_its_class(tmp_path: Path, order: tuple[str, ...]) -> None:
    profile = LinkProfile(latency=0.02, rate=1e6)
    senders = {
        "full": by_packets(profile, FULL_FRAME),
        "idle": by_packets(profile.merged(rate=0.3e6), FULL_FRAME),
    }
    links = {name: (profile, senders[name]) for name in order}
    (busiest_link,) = judged(tmp_path, links, link_class="device-cloud").values()
    assert busiest_link.link == "full → cloud"
    assert 0.9 < busiest_link.use < 1.1
