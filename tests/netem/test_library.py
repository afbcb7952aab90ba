"""The named profiles are complete, usable and in a sensible order."""

from __future__ import annotations

import pytest

from netem.impair import Impairment
from netem.library import PROFILES
from netem.profile import FULL_FRAME, LinkProfile


def test_names() -> None:
    usual = {"lan", "wifi", "3g", "lte", "5g", "dsl", "starlink", "satellite", "wan-eu", "wan-us-eu", "lora-gateway"}
    assert set(PROFILES) >= usual | {"fast-ethernet", "wifi-5ghz"}


@pytest.mark.parametrize("name", PROFILES)
def test_each_profile_can_be_written_read_and_used(name: str) -> None:
    profile = PROFILES[name]
    assert LinkProfile.from_mapping(profile.to_mapping()) == profile
    assert profile.rate is not None
    ((at, corrupt),) = Impairment(profile, seed=1).offer(0.0, FULL_FRAME)
    assert at >= FULL_FRAME * 8 / profile.rate
    assert not corrupt


@pytest.mark.parametrize("name", [name for name in PROFILES if name.endswith("-up")])
def test_an_uplink_is_the_slower_direction_of_the_same_link(name: str) -> None:
    up, down = PROFILES[name], PROFILES[name.removesuffix("-up")]
    assert up.merged(rate=down.rate) == down
    assert (up.rate or 0) < (down.rate or 0)


def test_a_full_frame_takes_longer_the_farther_and_slower_the_link() -> None:
    def fastest(name: str) -> float:
        profile = PROFILES[name].merged(jitter=0.0)
        return Impairment(profile, seed=1).offer(0.0, FULL_FRAME)[0][0]

    order = ["lan", "5g", "wan-eu", "dsl", "starlink", "3g", "wan-us-eu", "satellite", "lora-gateway"]
    assert sorted(order, key=fastest) == order
