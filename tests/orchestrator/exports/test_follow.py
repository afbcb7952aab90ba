"""Following a run: what is recorded is written as it comes, each value once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from orchestrator.errors import RecordError
from orchestrator.exports.base import AlreadyThereError
from orchestrator.exports.follow import follow
from orchestrator.exports.scalars import Scalar
from orchestrator.record.writer import Record
from orchestrator.results.history import History


class Journal:
    """A store, and its tracker, that keep what they are told."""

    def __init__(self, there: bool = False) -> None:
        self.said: list[str | list[Scalar]] = []
        self._there = there

    def find(self, history: History) -> str | None:
        return "here" if self._there else None

    def write(self, history: History) -> str:
        raise NotImplementedError

    def begin(self, history: History) -> Journal:
        if self._there:
            raise AlreadyThereError(history.run, "here")
        self.said.append("begin")
        return self

    def add(self, scalars: Iterable[Scalar]) -> None:
        self.said.append(list(scalars))

    def finish(self, history: History) -> None:
        self.said.append("finish")


def by_steps(*steps: Callable[[], object]) -> Callable[[float], bool]:
    """Carry out a step whenever the run is waited for. It has ended after the last step."""
    left = list(steps)

    def ended(seconds: float) -> bool:
        left.pop(0)()
        return not left

    return ended


def test_what_is_recorded_is_written_as_it_comes(tmp_path: Path) -> None:
    record, journal = Record.create(tmp_path / "run", "{}", {}), Journal()

    def report(round: int) -> None:
        record.metric(float(round), "cloud", round, "global", "accuracy", 0.1 * round)
        record.flush()

    def end() -> None:
        report(3)
        record.outcome(4.0, {"ended": "rounds", "error": None})
        record.close()

    steps = by_steps(
        lambda: None, lambda: record.state(0.5, "cloud", "starting"), lambda: report(1), lambda: report(2), end
    )
    follow(tmp_path / "run", journal, steps)
    accuracies = [Scalar("accuracy/global/cloud", round, float(round), 0.1 * round) for round in (1, 2, 3)]
    *said, last, finish = journal.said
    assert said == ["begin", [], accuracies[:1], accuracies[1:2]]
    assert (last[0], finish) == (accuracies[2], "finish")
    assert {scalar.tag for scalar in last[1:] if isinstance(scalar, Scalar)} == {
        "run/rounds",
        "run/seconds",
        "run/overruns",
    }


def test_a_run_without_a_started_node_is_not_written(tmp_path: Path) -> None:
    journal = Journal()
    Record.create(tmp_path / "run", "{}", {}).close()
    follow(tmp_path / "run", journal, by_steps(lambda: None, lambda: None))
    follow(tmp_path / "removed", journal, by_steps(lambda: None))
    assert journal.said == []


def test_a_run_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    record, journal = Record.create(tmp_path / "run", "{}", {}), Journal(there=True)
    record.state(0.5, "cloud", "starting")
    follow(tmp_path / "run", journal, by_steps(lambda: None, lambda: None))
    assert journal.said == []
    record.close()


def test_a_record_that_disappears(tmp_path: Path) -> None:
    record, journal = Record.create(tmp_path / "run", "{}", {}), Journal()
    record.state(0.5, "cloud", "starting")
    record.close()
    with pytest.raises(RecordError, match="holds no run"):
        follow(tmp_path / "run", journal, by_steps(lambda: None, (tmp_path / "run" / "run.db").unlink))
