"""A simulation that somebody watches and touches: its pace changes nothing, a manual fault happens where it stands."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import MistakeError, RunError
from orchestrator.record.directory import RunDirectory
from orchestrator.record.rows import FaultSpan
from orchestrator.results.history import History
from orchestrator.verbs.live.inject import command, running
from orchestrator.verbs.results.faults import as_rules
from tests.e2e.harness import SMALL, wait_for
from tests.orchestrator.drivers.sim.harness import Simulated, simulate

SCENARIO = SMALL.replace("name: small", "name: touched").replace("rounds: 3", "rounds: 6")
Act = Callable[[RunDirectory], Any]


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulate(tmp_path_factory.mktemp("free"), SCENARIO)


def while_it_runs(tmp_path: Path, act: Act, *arguments: str) -> Simulated:
    """Run the scenario, and act from a thread as soon as it takes commands."""
    failed: list[BaseException] = []

    def beside() -> None:
        def listening() -> RunDirectory | None:
            found = running(tmp_path / "runs")
            return next((each for each in found if each.commands.exists()), None)

        try:
            directory = wait_for(listening, "a run that takes commands", 30.0)
            wait_for(lambda: begun(directory), "the training", 30.0)
            act(directory)
        except BaseException as error:
            failed.append(error)
            with contextlib.suppress(RunError):
                pace(directory, "free")

    thread = threading.Thread(target=beside)
    thread.start()
    done = simulate(tmp_path, SCENARIO, *arguments)
    thread.join()
    if failed:
        raise failed[0]
    return done


def begun(directory: RunDirectory) -> bool | None:
    """Whether it trains, and so stands still."""
    with History.open(directory.path) as history:
        return bool(history.events("training")) or None


def pace(directory: RunDirectory, to: str) -> dict[str, Any]:
    return command(directory, "pace", {"to": to})


def inject(directory: RunDirectory, **fault: Any) -> dict[str, Any]:
    return command(directory, "inject", {"fault": fault, "via": "a test"})


@pytest.mark.slow
def test_the_pace_changes_no_bit(tmp_path: Path, free: Simulated) -> None:
    rounds = []

    def watch(run: RunDirectory) -> None:
        rounds.append(pace(run, "step")["round"])
        pace(run, "2x")
        pace(run, "pause")
        for _ in range(50):  # many wakings while the clock waits for one timer
            pace(run, "7x")
        rounds.append(pace(run, "step")["round"])
        with pytest.raises(MistakeError, match="'fast' is no pace"):
            pace(run, "fast")
        pace(run, "free")

    watched = while_it_runs(tmp_path, watch, "--pace", "pause")
    assert rounds[0] == 1
    assert rounds[1] > 1
    assert watched.record() == free.record()


@pytest.mark.slow
def test_what_was_done_manually_happens_again(tmp_path: Path) -> None:
    replies = []

    def touch(run: RunDirectory) -> None:
        pace(run, "step")
        for word in ("nobody", "device-0-0"):
            try:
                replies.append(inject(run, action="crash", node=word, **{"for": "80ms"}))
            except MistakeError as error:
                replies.append({"refused": str(error)})
        replies.append(inject(run, action="pause", node="device-0-0"))
        pace(run, "step")
        replies.append(inject(run, action="partition", between=["edge-1", "cloud"], **{"for": "50ms"}))
        replies.append(inject(run, action="degrade", node="edge-0", profile="lte", **{"for": "1s"}))
        pace(run, "free")

    touched = while_it_runs(tmp_path, touch, "--pace", "pause")
    unknown, crash, twice, partition, degrade = replies
    assert unknown["refused"].startswith("node: there is no node 'nobody'")
    assert crash["faults"][0]["round"] == 1
    assert twice["faults"] == []
    assert twice["refused"][0]["reason"] == "device-0-0 is not running but crashed"
    assert partition["faults"][0]["round"] == 2
    assert degrade["notes"] == []
    with touched.history() as history:
        made = history.faults()
        assert [(span.action, span.by != "", span.skipped) for span in made] == [
            ("crash", True, None),
            ("partition", True, None),
            ("degrade", True, None),
        ]
        assert [note for note in history.events("note") if "its seed alone" in note.data["text"]]
        assert [event.data["via"] for event in history.events("injected")] == ["a test"] * 3
        rules = as_rules(history)
        by_round = as_rules(history, by_round=True)
    assert "pause" not in rules
    assert "{round: 2, between: [edge-1, cloud], action: partition, for: 50ms}" in by_round
    once, again = (simulate(tmp_path / name, SCENARIO + rules) for name in made_folders(tmp_path))
    assert once.record() == again.record()
    with once.history() as history:
        assert courses(history.faults()) == pytest.approx(courses(made), abs=2e-6)
        assert all(not span.by for span in history.faults())


def made_folders(tmp_path: Path) -> list[str]:
    for name in ("once", "again"):
        (tmp_path / name).mkdir()
    return ["once", "again"]


def courses(spans: list[FaultSpan]) -> list[float]:
    return [t for span in spans for t in (span.start, span.end) if t is not None]


def test_a_run_that_is_over_takes_no_command(free: Simulated) -> None:
    directory = RunDirectory(free.directory)
    assert not directory.commands.exists()
    with pytest.raises(RunError, match="takes no commands now"):
        pace(directory, "pause")
