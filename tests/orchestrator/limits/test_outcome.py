"""How a run failed, from records with known rounds and traffic."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.limits.outcome import Judgement, Unimpaired, facts, judge
from orchestrator.limits.reading import Survives
from orchestrator.record.schema import COUNTERS
from orchestrator.results.history import History
from tests.orchestrator.results.checks.test_registry import Run

SCALE = Unimpaired(seconds=4.0, rounds=4, accuracy=None, bytes=4000.0, wall=5.0, by_time=False)
"""Rounds of a second with 1,000 bytes."""
NOTHING = {10.0: 1000}
POLLING = {10.0: 1000, 20.0: 9000}


def judged(run: Run, allowed: float = 20.0) -> Judgement:
    """The judgement of a run that was stopped by its time, 20 s after the start of its training at 1 s."""
    run.states().ended("after").record.close()
    with History.open(run.directory) as history:
        return judge(facts(history), history, Survives(), SCALE, allowed)


def with_round(folder: Path, seconds: float) -> Run:
    """A run with one round, which started with the training."""
    run = Run(folder)
    run.record.event(1.0, "cloud", "round", 1, {"phase": "start"})
    run.record.event(1.0 + seconds, "cloud", "round", 1, {"phase": "end"})
    return run


@pytest.mark.parametrize(
    ("seconds", "delivered", "kind"),
    [
        (2.0, NOTHING, "hang"),
        (2.0, POLLING, "hang"),  # 18 s without a round, although the only one took 2 s
        (12.0, POLLING, "slow"),  # 8 s are less than two rounds of 12 s
        (12.0, NOTHING, "hang"),
        (18.0, NOTHING, "slow"),  # 2 s are less than three unimpaired rounds
    ],
)
def test_a_run_without_a_round_for_long_hangs(
    tmp_path: Path,
    seconds: float,
    delivered: dict[float, int],
    kind: str,
) -> None:
    run = with_round(tmp_path, seconds)
    for t, total in delivered.items():
        row = dict.fromkeys(COUNTERS, 0) | {"source": "device-0-0", "target": "edge-0", "link_class": "device-edge"}
        run.record.counters(t, [row | {"delivered_bytes": total}])
    assert judged(run).kind == kind


def test_a_hang_lasts_until_the_run_is_stopped(tmp_path: Path) -> None:
    assert judged(with_round(tmp_path, 2.0)).why == "no round ended in the last 18 s, after 1 round"
