"""The search for a limit where chance decides."""

from __future__ import annotations

import math
import random

from orchestrator.limits.chance import RUNS, next_by_chance
from orchestrator.limits.scale import Scale
from orchestrator.limits.verdict import Limit, Tried

LOSS = Scale(0.0, 0.8, "fraction")
SEARCHES = 60  # of 1,000, 95.4 % cover the truth, and the median interval has 7.65 points


def searched(random_numbers: random.Random, middle: float, slope: float) -> Limit:
    tried: list[Tried] = []
    while True:
        answer = next_by_chance(LOSS, tried)
        if isinstance(answer, Limit):
            return answer
        loss = LOSS.value(answer.position)
        probability = 1 / (1 + math.exp((loss - middle) / slope))
        tried.append(Tried(answer.position, random_numbers.random() < probability))


def test_the_interval_covers_the_truth_in_95_percent_of_searches() -> None:
    random_numbers = random.Random(1)
    limits = [searched(random_numbers, 0.3, 0.05) for _ in range(SEARCHES)]
    covering = 0
    widths = []
    for limit in limits:
        assert limit.low is not None
        assert limit.high is not None
        covering += limit.low <= LOSS.position(0.3) <= limit.high
        widths.append((limit.high - limit.low) * 80)
    # Of 60 intervals with 95 %, fewer than 53 cover in one of 200 tests (binomial distribution).
    assert covering >= 53
    assert sorted(widths)[SEARCHES // 2] <= 8.0
    assert all(limit.tried == RUNS for limit in limits)


def test_a_sharp_limit_is_found_sharply() -> None:
    limit = searched(random.Random(2), 0.5, 0.001)
    assert limit.low is not None
    assert limit.high is not None
    assert LOSS.value(limit.low) < 0.5 < LOSS.value(limit.high)
    assert limit.high - limit.low < 0.1


def test_everything_survives_or_nothing() -> None:
    for survives, kind in ((True, "none"), (False, "all")):
        tried: list[Tried] = []
        while not isinstance(answer := next_by_chance(LOSS, tried, 5), Limit):
            tried.append(Tried(answer.position, survives))
        assert answer.kind == kind


def test_runs_that_do_not_count_end_the_search() -> None:
    tried = [Tried(0.5, None)] * 5
    assert next_by_chance(LOSS, tried, 5) == Limit("unknown", tried=5, unknown=5)
