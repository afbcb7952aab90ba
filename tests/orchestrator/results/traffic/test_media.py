"""What channels of shared media carried, from a record with known counters."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from netem.media.profile import ChannelProfile
from orchestrator.record.writer import Record
from orchestrator.report.media import media_figure, media_rows, media_so_far
from orchestrator.results.checks.links import rates_held
from orchestrator.results.history import History
from orchestrator.results.story import Story
from orchestrator.results.traffic import media

RATE = 8e6


def medium(name: str, profile: ChannelProfile) -> dict[str, Any]:
    return {"name": name, "channels": {name: profile.to_mapping()}, "members": ["fast", "slow"]}


PLAN: dict[str, Any] = {
    "name": "cells",
    "driver": "namespaces",
    "nodes": [],
    "links": [],
    "faults": [],
    "media": [
        medium("cell", ChannelProfile(RATE, "airtime", 0.2, {"slow": RATE / 4})),
        medium("idle", ChannelProfile(1e6)),
    ],
}


def row(member: str, packets: int, seconds: float, size: int = 0, queued: int = 0, dropped: int = 0) -> dict[str, Any]:
    return {
        **{"channel": "cell", "member": member, "packets": packets, "bytes": size or 1000 * packets},
        **{"seconds": seconds, "overflowed": dropped, "queued_bytes": queued},
    }


def recorded(path: Path, samples: Iterable[tuple[float, list[dict[str, Any]]]], **plan: Any) -> History:
    with contextlib.closing(Record.create(path, json.dumps(PLAN | plan), {})) as record:
        record.event(10.0, None, "training", None, {})
        for t, rows in samples:
            record.channels(t, rows)
        record.outcome(20.0, {"ended": "rounds"})
    return History.open(path)


BUSY = [
    (11.0, [row("fast", 500, 0.5), row("slow", 125, 0.5, queued=1000)]),
    (12.0, [row("fast", 500, 0.5), row("slow", 250, 1.0, queued=100_000, dropped=3)]),
    (19.0, [row("fast", 500, 0.5), row("slow", 250, 1.0, dropped=3)]),
    (20.0, [row("fast", 1000, 1.0), row("slow", 250, 1.0, dropped=3)]),
]


def test_counters_and_utilisation(tmp_path: Path) -> None:
    with recorded(tmp_path / "run", BUSY) as history:
        assert media.channel_counters(history) == [
            media.ChannelCounters("cell", "fast", 1000, 1_000_000, 1.0, 0),
            media.ChannelCounters("cell", "slow", 250, 250_000, 1.0, 3),
        ]
        of = media.readings(history)["cell"]
        assert [(each.t, each.occupied, each.needed) for each in of] == [
            (11.0, 1, 1),
            (12.0, 0.5, 0.5),
            (20.0, 0.5, 0.5),
        ]
        occupied, times = {each.t: each.occupied for each in of}, [*media.sampled(history), 19.0]
        steps = [(10.0, 1.0), (11.0, 0.5), (12.0, 0.0625), (20.0, 0.0)]
        assert list(media.utilisation(occupied, times[:3], 10.0)) == steps
        steps[2:3] = [(12.0, 0.0), (19.0, 0.5)]  # the counters were read at 19 s, and nothing had been carried
        assert list(media.utilisation(occupied, sorted(times), 10.0)) == steps
        assert media_so_far(Story.of(history)) == media_figure(history)


def test_rows_and_figure_of_the_report(tmp_path: Path) -> None:
    with recorded(tmp_path / "run", BUSY) as history:
        cell, idle = media_rows(history)
        assert cell == {
            **{"channel": "cell", "rule": "airtime", "rate": "8 mbit", "carried": "1.25 MB"},
            **{"mean": "20.0%", "most": "100.0%", "queue": "full", "dropped": "3"},
            "shares": "fast 80.0%, slow 20.0%",
        }
        assert (idle["queue"], idle["mean"], idle["most"], idle["shares"]) == ("0 s", "0.0%", "0.0%", "")
        (line,) = media_figure(history)["marks"]
        assert line["y"] == [1.0, 0.5, 0.0625, 0.0]
    both = [row("fast", 1, 0.1) | {"channel": "idle"}, row("fast", 500, 0.5, queued=100_000)]
    with recorded(tmp_path / "roomy", [(11.0, both)]) as history:
        assert media_rows(history)[0]["queue"] == "100 ms"
        assert [each["name"] for each in media_figure(history)["marks"]] == ["cell", "idle"]


@pytest.mark.parametrize(("load", "verdict"), [(1.0, "pass"), (1.2, "fail")])
def test_no_medium_carries_more_than_its_rate(tmp_path: Path, load: float, verdict: str) -> None:
    def total(t: int, member: str, rate: float) -> dict[str, Any]:  # each member has half of the time
        return row(member, t, 0.5 * t, size=int(load * t * rate / 16))

    samples = [(10.0 + t, [total(t, "fast", RATE), total(t, "slow", RATE / 4)]) for t in range(1, 100)]
    with recorded(tmp_path / "run", samples) as history:
        found = rates_held(history)
        assert found is not None
        assert found[0] == verdict
        assert "cell" in found[1]
    degrade: dict[str, Any] = {
        **{"id": 1, "action": "degrade", "at": 5.0, "round": None, "duration": None, "links": [], "node": None},
        **{"between": None, "medium": "cell", "channels": {"cell": {"rate": 1e6}}},
    }
    with recorded(tmp_path / "degraded", samples, faults=[degrade]) as history:
        assert rates_held(history) is None


def test_a_resumed_run_counts_from_zero_again(tmp_path: Path) -> None:
    recorded(tmp_path / "run", BUSY).close()
    with contextlib.closing(Record.resume(tmp_path / "run", 20.0, "rounds", 1)) as record:
        record.channels(21.0, [row("fast", 500, 0.5)])
    with History.open(tmp_path / "run") as history:
        assert media.channel_counters(history)[0].packets == 1500
