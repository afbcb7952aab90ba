from __future__ import annotations

import pytest

from netem.impair import Impairment
from netem.measurement.losses import AskedLosses, Losses
from netem.profile import GilbertElliott, LinkProfile


def test_each_packet_counts_under_its_own_profile() -> None:
    asked = AskedLosses(LinkProfile(loss=0.1))
    asked.change(100, LinkProfile())
    asked.change(250, LinkProfile(loss=0.5))
    # 100 at 10 %, 150 at nothing, 20 at 50 %: 10 + 10; 100 x 0.1 x 0.9 + 20 x 0.5 x 0.5.
    assert asked.of(270) == pytest.approx((20.0, 14.0))
    assert asked.of(250) == pytest.approx((10.0, 9.0))


def test_bursts_scatter_by_their_design_effect() -> None:
    chain = GilbertElliott(p=0.02, r=0.3)
    # 2 / 32 are lost; (1 + 0.68) / (1 - 0.68) = 5.25 times the binomial variance.
    asked = AskedLosses(LinkProfile(loss=chain)).of(1000)
    assert asked == pytest.approx((62.5, 62.5 * (1 - 0.0625) * 5.25))


def losses(packets: int, lost: int, *profiles: tuple[int, LinkProfile]) -> Losses:
    asked = AskedLosses(LinkProfile())
    for begin, profile in profiles:
        asked.change(begin, profile)
    return Losses(packets, lost, *asked.of(packets))


def test_a_link_without_loss_may_lose_nothing() -> None:
    assert losses(10, 0).as_asked(1e-5)
    assert not losses(1_000_000, 1).as_asked(1e-5)
    assert losses(10, 0).tells(1e-5)
    assert not losses(0, 0).tells(1e-5)


@pytest.mark.parametrize(("lost", "as_asked"), [(100, True), (70, True), (50, False), (147, True), (152, False)])
def test_counts_of_ten_thousand_at_one_percent(lost: int, as_asked: bool) -> None:
    # Standard deviation 9.95; a chance of 1e-5 in two tails is 4.42 of them, and the distribution leans to the right.
    assert losses(10_000, lost, (0, LinkProfile(loss=0.01))).as_asked(1e-5) is as_asked


def test_few_packets_show_little() -> None:
    few, many = (losses(number, 0, (0, LinkProfile(loss=0.01))) for number in (500, 3000))
    assert few.as_asked(1e-5)  # none lost of five expected
    assert not few.tells(1e-5)
    assert not many.as_asked(1e-5)


def test_what_was_configured_a_moment_ago_is_part_of_it() -> None:
    found = losses(2000, 50, (0, LinkProfile(loss=0.05)), (1000, LinkProfile()))
    assert found.as_asked(1e-5)
    assert not found._replace(lost=0).as_asked(1e-5)


def test_a_class_of_links_is_the_sum_of_them() -> None:
    one = losses(1000, 13, (0, LinkProfile(loss=0.01)))
    together = one.plus(one)
    assert together[:2] == (2000, 26)
    assert together.asked == pytest.approx(20)
    assert together.variance == pytest.approx(2 * one.variance)


@pytest.mark.parametrize("loss", [0.002, 0.05, GilbertElliott(p=0.01, r=0.2)])
def test_links_as_asked_are_seldom_called_astray(loss: float | GilbertElliott) -> None:
    """Of 200 links at a chance of 1 % two are expected; ten or more would come once in 20,000."""
    astray = 0
    for seed in range(200):
        link = Impairment(LinkProfile(loss=loss), seed)
        for number in range(3000):
            link.offer(number * 0.001, 100)
        found = losses(3000, link.counters.lost, (0, LinkProfile(loss=loss)))
        astray += not found.as_asked(0.01)
    assert astray < 10


def test_the_accepted_range_of_losses_that_vary_more_than_independent_ones() -> None:
    """Half of 1,000, with four times the variance of independent losses, 250: as 250 independent packets, of each of
    which four are lost. Of 125 with a standard deviation of 7.91, 4.42 of them leave 1e-5."""
    low, high = Losses(1000, 500, 500.0, 1000.0).accepted(1e-5)
    assert (low, high) == pytest.approx((4 * (125 - 34.9), 4 * (125 + 34.9)), abs=4)
    assert low % 4 == high % 4 == 0


@pytest.mark.parametrize("loss", [0.0, 1.0])
def test_certain_losses_leave_no_choice(loss: float) -> None:
    lost = int(1000 * loss)
    found = losses(1000, lost, (0, LinkProfile(loss=loss)))
    assert found.accepted(1e-5) == (lost, lost)
    assert found.as_asked(1e-5)
    assert found.tells(1e-5)
    assert not found._replace(lost=abs(lost - 1)).as_asked(1e-5)


def test_without_packets_none_may_be_lost() -> None:
    nothing = losses(0, 0, (0, LinkProfile(loss=0.5)))
    assert nothing.accepted(1e-5) == (0, 0)
    assert nothing.as_asked(1e-5)
    assert not nothing.tells(1e-5)


def test_a_count_within_three_standard_deviations_is_accepted_at_any_chance() -> None:
    """Of 100 at one half, 25 is the variance: 15 to either side."""
    for lost, accepted in ((65, True), (35, True), (66, False), (34, False)):
        assert losses(100, lost, (0, LinkProfile(loss=0.5))).as_asked(0.5) is accepted
