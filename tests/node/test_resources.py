from __future__ import annotations

import os

import pytest

from node import resources


def test_memory_of_this_process() -> None:
    resident, proportional = resources.resident_bytes(), resources.proportional_bytes()
    assert 10 << 20 < resident < 10 << 30
    assert proportional is None or 1 << 20 < proportional <= 1.1 * resources.resident_bytes()


def test_a_measurement_takes_at_most_its_share_of_the_time() -> None:
    """One of 9.5 ms may be repeated after 9.5 s, and so is at the tenth beat of 1 s."""
    now = 0.0

    def slow() -> str:
        nonlocal now
        now += 0.0095
        return "measured"

    pace = resources.Pace(0.001, lambda: now)
    measured_at = []
    while now < 60.0:
        at = now
        if pace.measured(slow) is not None:
            measured_at.append(at)
        now += 1.0
    assert measured_at == pytest.approx([0.0, 10.0095, 20.019, 30.0285, 40.038, 50.0475])


@pytest.mark.parametrize("variable", [resources.OF_JOB, resources.OF_POD])
def test_processors_are_those_of_the_job_or_the_pod(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4, 5, 6})
    for written, found in (("", 3), ("2", 2), ("8", 3)):
        monkeypatch.setenv(variable, written)
        assert resources.processors() == found
