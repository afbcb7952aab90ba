"""Settings of channels and of cross traffic."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from netem.errors import ProfileError
from netem.media.profile import ChannelProfile, CrossTraffic

TRACE = CrossTraffic("trace", rows=((0.0, 1e6), (10.0, 3e6)))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rate": 0.0}, "rate"),
        ({"rate": float("nan")}, "rate"),
        ({"rate": 1e6, "share": "lifo"}, r"'lifo'.*fifo, fair, airtime, frames"),
        ({"rate": 1e6, "buffer": -1.0}, "buffer"),
        ({"rate": 1e6, "share": "frames", "rates": {"a": 0.0}}, "rate"),
    ],
)
def test_impossible_channels(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        ChannelProfile(**values)


@pytest.mark.parametrize(
    "settings", [ChannelProfile(54e6, "frames", 0.2, {"a": 6e6}), TRACE, CrossTraffic("on-off", 1e6, 0.5, 2.0)]
)
def test_plain_data_and_back(settings: Any) -> None:
    assert type(settings).from_mapping(json.loads(json.dumps(settings.to_mapping()))) == settings


def test_a_buffer_with_a_size_holds_as_many_bytes_at_any_rate() -> None:
    channel = ChannelProfile(20e6, size=64_000)
    assert (channel.buffer, channel.buffer_bytes) == (0.0256, 64_000)
    slower = replace(channel, rate=2e6)
    assert (slower.buffer, slower.buffer_bytes) == (0.256, 64_000)
    assert ChannelProfile.from_mapping(json.loads(json.dumps(slower.to_mapping()))) == slower


def test_a_trace_continues_where_it_was() -> None:
    trace = CrossTraffic("trace", rows=((0.0, 1e6), (50.0, 15e6), (70.0, 2e6)))
    assert trace.since(60.0).rows == ((0.0, 15e6), (10.0, 2e6))
    assert CrossTraffic("poisson", 1e6).since(60.0) == CrossTraffic("poisson", 1e6)


def test_mean_rates() -> None:
    assert CrossTraffic("poisson", 5e6).mean_rate() == 5e6
    assert CrossTraffic("on-off", 5e6, on=1.0, off=4.0).mean_rate() == 1e6
    assert (TRACE.mean_rate(5.0), TRACE.mean_rate(20.0), TRACE.mean_rate()) == (1e6, 2e6, 3e6)
