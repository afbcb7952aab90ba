"""Profiles over time, each state worked out by hand."""

from __future__ import annotations

import itertools
import json

import pytest

from netem.errors import ProfileError, ScheduleError
from netem.profile import GilbertElliott, LinkProfile
from netem.schedules.schedule import Change, Step, Steps, until
from tests.texts import containing

BASE = LinkProfile(latency=0.02, rate=10e6)


def states(steps: Steps, horizon: float, base: LinkProfile = BASE) -> list[tuple[float, LinkProfile, bool]]:
    return [(change.at, change.profile, change.cut) for change in until(steps, base, horizon)]


def test_steps_add_up_in_order_of_time() -> None:
    steps = Steps((Step(at=20.0, settings={"loss": "5%"}), Step(at=10.0, settings={"rate": "5mbit"})))
    assert states(steps, 100.0) == [
        (10.0, LinkProfile(latency=0.02, rate=5e6), False),
        (20.0, LinkProfile(latency=0.02, rate=5e6, loss=0.05), False),
    ]
    assert states(steps, 10.0)[-1][0] == 10.0  # the horizon belongs to it
    assert states(steps, 9.9) == []


def test_a_ramp_goes_in_equal_steps_and_ends_exactly() -> None:
    # From 10 to 2 mbit in 1 s, every 250 ms: 8 mbit at a quarter of the way, and so on.
    steps = Steps((Step(at=1.0, over=1.0, pace=0.25, settings={"rate": "2mbit", "latency": "60ms"}),))
    ramp = [(1.25, 8e6, 0.03), (1.5, 6e6, 0.04), (1.75, 4e6, 0.05), (2.0, 2e6, 0.06)]
    assert [(t, profile.rate, profile.latency) for t, profile, _ in states(steps, 9.0)] == ramp


def test_a_ramp_may_start_elsewhere_and_its_length_be_no_multiple_of_its_pace() -> None:
    steps = Steps((Step(at=0.0, over=0.5, pace=0.2, start={"rate": "50mbit"}, settings={"rate": "40mbit"}),))
    ramp = [(0.0, 50e6), (0.2, 46e6), (0.4, 42e6), (0.5, 40e6)]
    assert [(t, profile.rate) for t, profile, _ in states(steps, 9.0)] == ramp


def test_a_later_step_wins_over_a_ramp_that_continues() -> None:
    ramp = Step(at=0.0, over=2.0, pace=1.0, settings={"rate": "2mbit", "latency": "60ms"})
    found = states(Steps((ramp, Step(at=1.0, settings={"rate": "1mbit"}))), 9.0)
    assert [(t, profile.rate, profile.latency) for t, profile, _ in found] == [(1.0, 1e6, 0.04), (2.0, 1e6, 0.06)]


def test_a_handover_cuts_and_then_has_the_new_profile() -> None:
    steps = Steps((Step(at=15.0, interruption=0.3, settings={"latency": "5ms"}),))
    near = LinkProfile(latency=0.005, rate=10e6)
    assert states(steps, 60.0) == [(15.0, near, True), (15.3, near, False)]


def test_what_repeats_restarts_from_the_base() -> None:
    steps = Steps((Step(at=1.0, settings={"rate": "5mbit"}), Step(at=2.0, interruption=0.5)), repeat=3.0)
    slow = BASE.merged(rate=5e6)
    once = [(1.0, slow, False), (2.0, slow, True), (2.5, slow, False)]
    again = [(3.0, BASE, False), (4.0, slow, False), (5.0, slow, True), (5.5, slow, False)]
    assert states(steps, 5.9) == [*once, *again]
    far = next(change for change in steps.changes(BASE) if change.at >= 3000.0)
    assert far == Change(3000.0, BASE)


def test_changes_come_in_order_and_are_the_same_each_time() -> None:
    steps = Steps(
        (Step(at=0.1, over=0.7, settings={"loss": "10%"}), Step(at=0.3, interruption=0.2, settings={"rate": None})),
        repeat=0.8,
    )
    one, other = (list(itertools.islice(steps.changes(BASE), 1000)) for _ in range(2))
    assert one == other
    assert [change.at for change in one] == sorted(change.at for change in one)


def test_extremes_are_what_is_valid_between_changes() -> None:
    steps = Steps((Step(at=1.0, over=5.0, settings={"rate": "1mbit"}), Step(at=9.0, settings={"loss": "50%"})))
    assert steps.extremes(BASE) == [BASE, BASE.merged(rate=1e6), BASE.merged(rate=1e6, loss=0.5)]


def test_what_does_not_go_with_the_base_is_found_beforehand() -> None:
    chain = GilbertElliott(p=0.01, r=0.3)
    with pytest.raises(ProfileError, match=r"rate: a ramp needs.*\{rate"):
        Steps((Step(at=1.0, over=1.0, settings={"rate": "5mbit"}),)).extremes(LinkProfile())
    with pytest.raises(ProfileError, match="loss: a ramp takes plain fractions"):
        Steps((Step(at=1.0, over=1.0, settings={"loss": "5%"}),)).extremes(LinkProfile(loss=chain))
    with pytest.raises(ProfileError, match="buffer: needs a rate"):
        Steps((Step(at=1.0, settings={"buffer": "5ms"}),)).extremes(LinkProfile())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Steps(()), containing("schedule without a change")),
        (lambda: Step(at=-1.0), containing("0 s or more, not -1.0")),
        (lambda: Step(at=0.0, over=float("nan")), containing("over: must be 0 s", "more")),
        (lambda: Step(at=0.0, over=1.0, pace=0.0), containing("step: must", "1ms, not 0.0 s")),
        (
            lambda: Steps((Step(at=10.0, interruption=2.0),), repeat=11.0),
            containing("repeat: 11s is over"),
        ),
    ],
)
def test_schedules_that_make_no_sense(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ScheduleError) as caught:
        make()
    assert str(caught.value) == message


def test_it_is_written_and_reported_in_few_words() -> None:
    steps = Steps(
        (
            Step(at=10.0, settings={"rate": "5mbit"}),
            Step(at=20.0, over=5.0, start={"rate": "50mbit"}, settings={"rate": None, "loss": "1%"}),
            Step(at=30.0, interruption=0.3),
        ),
        repeat=60.0,
    )
    assert json.loads(json.dumps(steps.to_mapping())) == {
        "steps": [{"at": "10s", "rate": "5mbit"}],
        "ramp": [{"at": "20s", "over": "5s", "from": {"rate": "50mbit"}, "to": {"rate": None, "loss": "1%"}}],
        "handover": [{"at": "30s", "interruption": "300ms"}],
        "repeat": "1min",
    }
    assert steps.describe() == (
        "at 10s rate 5mbit; at 20s over 5s from rate 50mbit to rate unlimited, loss 1%; at 30s cut for 300ms, then as "
        "before; again every 1min"
    )
