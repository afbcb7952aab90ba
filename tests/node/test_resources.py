from __future__ import annotations

import os

import pytest

from node import resources


def test_memory_of_this_process() -> None:
    resident, proportional = resources.resident_bytes(), resources.proportional_bytes()
    assert 10 << 20 < resident < 10 << 30
    assert proportional is None or 1 << 20 < proportional <= 1.1 * resources.resident_bytes()


@pytest.mark.parametrize("variable", [resources.OF_JOB, resources.OF_POD])
def test_processors_are_those_of_the_job_or_the_pod(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4, 5, 6})
    for written, found in (("", 3), ("2", 2), ("8", 3)):
        monkeypatch.setenv(variable, written)
        assert resources.processors() == found
