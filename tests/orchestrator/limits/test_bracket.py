"""The search for a limit where the same value has always the same outcome."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.limits.bracket import next_in_bracket
from orchestrator.limits.scale import Scale
from orchestrator.limits.verdict import Limit, Tried

LATENCY = Scale(0.01, 30.0, "duration")


def searched(
    scale: Scale,
    survives: Callable[[float, int], bool | None],
    repeat: int = 1,
    required: float | None = None,
) -> tuple[Limit, list[float]]:
    """The limit, and the values that were tried. ``survives``: of a value, and of how often it was tried before."""
    tried: list[Tried] = []
    values: list[float] = []
    for _ in range(100):
        answer = next_in_bracket(scale, tried, repeat, required)
        if isinstance(answer, Limit):
            return answer, values
        value = scale.value(answer.position)
        tried.append(Tried(answer.position, survives(value, values.count(value))))
        values.append(value)
    raise AssertionError(f"no limit after {len(values)} runs")


@pytest.mark.parametrize("limit", [0.0123, 0.3, 3.0, 28.0])
def test_a_limit_is_found_within_5_percent_in_ten_runs(limit: float) -> None:
    result, values = searched(LATENCY, lambda value, _: value <= limit)
    assert result.kind == "between"
    assert result.low is not None
    assert result.high is not None
    low = LATENCY.value(result.low)
    high = LATENCY.value(result.high)
    assert low <= limit < high
    middle = (low * high) ** 0.5
    assert middle == pytest.approx(limit, rel=0.05)
    assert len(values) <= 10  # and two unimpaired runs: at most twelve


def test_the_most_severe_values_come_last() -> None:
    """A run that fails takes all the time that is allowed, and a link of 30 s a minute to measure."""
    _, values = searched(LATENCY, lambda value, _: value <= 0.5)
    assert values[:3] == [0.01, 0.144, 2.08]
    assert values[-1] == 30.0
    assert max(values[3:-1]) < 2.08


def test_a_rate_falls_from_mild_to_severe() -> None:
    scale = Scale(100e6, 10e3, "rate")
    result, values = searched(scale, lambda value, _: value >= 250e3)
    assert values[0] == 100e6
    assert scale.value(result.low or 0) >= 250e3 > scale.value(result.high or 0)


def test_both_ends_survive_or_fail() -> None:
    assert searched(LATENCY, lambda *_: True)[0].kind == "none"
    assert searched(LATENCY, lambda *_: False)[0].kind == "all"


def test_a_value_that_must_survive_is_tried() -> None:
    _, values = searched(LATENCY, lambda value, _: value <= 3, required=LATENCY.position(2.0))
    assert 2.0 in values


def test_both_ends_are_confirmed() -> None:
    result, values = searched(LATENCY, lambda value, _: value <= 3, repeat=3)
    low = LATENCY.value(result.low or 0)
    high = LATENCY.value(result.high or 0)
    assert (values.count(low), values.count(high)) == (3, 3)


def test_an_outcome_that_is_not_confirmed_moves_the_limit() -> None:
    def survives(value: float, before: int) -> bool:
        by_luck = value == 2.9 and before == 0
        return value < 2.5 or by_luck

    result, _ = searched(LATENCY, survives, repeat=3)
    assert LATENCY.value(result.high or 0) <= 2.9


def test_survival_above_a_failure_twice_is_no_limit() -> None:
    """As with a loss that is noticed after 8 s: an outage of 7.75 s stops a run, one of a minute does not."""
    outage = Scale(1.0, 60.0, "duration")
    result, values = searched(outage, lambda value, _: value < 5 or value > 20)
    assert result.kind == "not monotone"
    failed = outage.value(result.low or 0)
    survived = outage.value(result.high or 0)
    assert 5 <= failed <= 20 < survived
    assert (values.count(failed), values.count(survived)) == (2, 2)


def test_survival_above_a_failure_by_accident_is_tried_again() -> None:
    def survives(value: float, before: int) -> bool:
        accident = value < 1 and before == 0
        return value <= 3 and not accident

    result, _ = searched(LATENCY, survives)
    assert result.kind == "between"
    assert LATENCY.value(result.low or 0) <= 3 < LATENCY.value(result.high or 0)


def test_runs_that_do_not_count_widen_the_interval() -> None:
    result, values = searched(LATENCY, lambda value, _: None if 2.2 < value < 7 else value <= 3)
    assert result.kind == "between"
    assert result.unknown == 3
    assert len(values) < 12


def test_nothing_counts() -> None:
    assert searched(LATENCY, lambda *_: None)[0].kind == "unknown"


def test_devices_are_counted() -> None:
    devices = Scale(0, 9, "clients")
    result, values = searched(devices, lambda value, _: value <= 5)
    assert (devices.value(result.low or 0), devices.value(result.high or 0)) == (5, 6)
    assert all(value == int(value) for value in values)
