from __future__ import annotations

from pathlib import Path

import pytest

from tests.tries import MOST, NOTES, summary, tries


def test_the_last_try_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "lane.tries"
    monkeypatch.setenv(NOTES, str(notes))
    for number in tries(6):
        if number == 3:
            break
    for _ in tries(2):
        pass
    name = "tests/test_tries.py::test_the_last_try_is_noted"
    assert notes.read_text().splitlines() == [f"3 {name}", f"2 {name}"]


def test_tries_are_averaged() -> None:
    average, repeated = summary(["1 a", "3 b", "1 c", "1 d"])
    assert (average, repeated) == (1.5, ["3 b"])
    assert average > MOST
    assert summary([]) == (1, [])
