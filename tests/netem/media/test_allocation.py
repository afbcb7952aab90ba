from __future__ import annotations

import math
from random import Random

import pytest

from netem.media.allocation import Transfer, Use, allocate, use_of
from netem.media.formulas import shares
from netem.media.profile import ChannelProfile, Rule


def over(*channels: str, most: float = math.inf, weight: float = 1.0) -> Transfer:
    """A transfer over channels of 1 bit/s."""
    return Transfer({channel: Use(1.0, weight) for channel in channels}, most)


@pytest.mark.parametrize("rule", ["fifo", "fair", "airtime", "frames"])
def test_equal_members_of_one_channel_get_what_the_rule_promises(rule: Rule) -> None:
    rates = {"slow": 6e6} if rule in ("airtime", "frames") else {}
    channel = ChannelProfile(54e6, rule, rates=rates)
    members = ["one", "two", "slow"]
    got = allocate({each: Transfer({"ap": use_of(channel, each)}) for each in members}, {"ap": 1.0})
    assert got == pytest.approx(shares(channel, members))


def test_a_transfer_at_its_maximum_leaves_the_rest_to_the_others() -> None:
    got = allocate({"slow": over("a", most=0.1), "one": over("a"), "two": over("a")}, {"a": 1.0})
    assert got == pytest.approx({"slow": 0.1, "one": 0.45, "two": 0.45})


def test_the_textbook_example_of_a_parking_lot() -> None:
    """One transfer over both channels, one over the first, two over the second."""
    transfers = {"long": over("a", "b"), "a": over("a"), "b1": over("b"), "b2": over("b")}
    got = allocate(transfers, {"a": 1.0, "b": 1.0})
    assert got == pytest.approx({"long": 1 / 3, "a": 2 / 3, "b1": 1 / 3, "b2": 1 / 3})


def test_weights_divide_a_channel_in_proportion() -> None:
    got = allocate({"heavy": over("a", weight=3.0), "light": over("a")}, {"a": 1.0})
    assert got == pytest.approx({"heavy": 0.75, "light": 0.25})


def test_a_rule_counts_only_in_its_own_channel() -> None:
    """Equal airtime offers 27 and 3 Mbit/s; the fair backhaul of 10 Mbit/s has 5 for each, and 7 for the fast one."""
    ap, backhaul = ChannelProfile(54e6, "airtime", rates={"slow": 6e6}), ChannelProfile(10e6, "fair")
    transfers = {
        each: Transfer({"ap": use_of(ap, each), "backhaul": use_of(backhaul, each)}) for each in ("fast", "slow")
    }
    got = allocate(transfers, {"ap": 1.0, "backhaul": 1.0})
    assert got == pytest.approx({"fast": 7e6, "slow": 3e6})


def test_what_a_channel_is_occupied_by_others_is_not_allocated() -> None:
    assert allocate({"one": over("a"), "two": over("a")}, {"a": 0.7}) == pytest.approx({"one": 0.35, "two": 0.35})
    assert allocate({"one": over("a")}, {"a": 0.0}) == {"one": 0.0}


def test_a_transfer_without_channels_gets_its_maximum() -> None:
    assert allocate({"one": over(most=5.0), "two": over()}, {}) == {"one": 5.0, "two": math.inf}


@pytest.mark.parametrize("seed", range(20))
def test_no_channel_is_overfull_and_every_transfer_is_held_back_somewhere(seed: int) -> None:
    random = Random(seed)
    free = {f"c{number}": random.uniform(0.3, 1.0) for number in range(4)}
    transfers = {
        number: Transfer(
            {each: Use(1 / random.uniform(1, 50), 1.0) for each in random.sample(sorted(free), random.randint(1, 3))},
            random.choice([math.inf, random.uniform(0.1, 5)]),
        )
        for number in range(12)
    }
    rates = allocate(transfers, free)
    used = {
        channel: sum(rates[n] * t.uses[channel].seconds for n, t in transfers.items() if channel in t.uses)
        for channel in free
    }
    assert all(used[channel] <= free[channel] * (1 + 1e-9) for channel in free)
    for number, transfer in transfers.items():
        full = [channel for channel in transfer.uses if used[channel] >= free[channel] * (1 - 1e-9)]
        most = [
            channel
            for channel in full
            if all(rates[number] >= rates[n] * (1 - 1e-9) for n, t in transfers.items() if channel in t.uses)
        ]
        assert rates[number] == transfer.most or most, "neither at its maximum nor the fastest in a full channel"
