"""The verbs that look after runs, in odd conditions: one clear line, the right exit code, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli import cli
from orchestrator.drivers.swarm import leftovers
from orchestrator.errors import RecordError, RunError
from orchestrator.host.directory import RunDirectory
from orchestrator.run import down
from orchestrator.run.down import Removed
from orchestrator.verbs import ps
from tests.orchestrator.example_run import Example

OTHERS: dict[str, RunDirectory | None] = {"other-20260101-120000-aaaa": None}


def verb(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, list(map(str, words)))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A complete run, and after it one whose record is damaged."""
    folder = tmp_path / "runs"
    Example().build(folder / "good-20260101-120000-0000")
    damaged = folder / "damaged-20260102-120000-0000"
    (damaged / "logs").mkdir(parents=True)
    (damaged / "run.db").write_text("garbage" * 100)
    (damaged / "logs" / "cloud.log").write_text("ready\n")
    (folder / "a file").touch()
    (folder / "no run").mkdir()
    return folder


@pytest.fixture
def quiet_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host on which nothing of any run is alive, whatever else it does."""
    monkeypatch.setattr(down, "traces", lambda runs: {})


def test_the_help_says_in_a_whole_sentence_what_each_command_does() -> None:
    commands = " ".join(verb("--help").output.partition("Commands:")[2].split())
    assert "..." not in commands
    assert "validate Check SCENARIO, with its data and its partition; touches nothing." in commands
    for name in cli.commands:
        assert f" {name} " in f" {commands}"


@pytest.mark.parametrize("words", [("logs", "edge-0"), ("report",), ("resume",), ("down",)])
@pytest.mark.usefixtures("quiet_host")
def test_without_any_run(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = verb(*words, "--runs", tmp_path / "none")
    assert isinstance(result.exception, RunError)
    assert "start one with `up SCENARIO`" in str(result.exception)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "words", [("logs", "edge-0", "--run", "x"), ("report", "x"), ("down", "x"), ("compare", "x", "y"), ("resume", "x")]
)
@pytest.mark.usefixtures("quiet_host")
def test_a_run_that_does_not_exist(runs: Path, words: tuple[str, ...]) -> None:
    result = verb(*words, "--runs", runs)
    assert isinstance(result.exception, RunError)
    assert "good-20260101-120000-0000, damaged-20260102-120000-0000" in str(result.exception)


@pytest.mark.parametrize("words", [("report",), ("resume",), ("compare", "damaged-20260102-120000-0000", "x")])
def test_a_damaged_record_is_named(runs: Path, words: tuple[str, ...]) -> None:
    result = verb(*words, "--runs", runs)
    assert isinstance(result.exception, RecordError)
    assert "damaged-20260102-120000-0000/run.db cannot be read" in str(result.exception)


def test_what_a_node_printed_can_be_read_without_a_record(runs: Path) -> None:
    result = verb("logs", "cloud", "--runs", runs)
    assert (result.exit_code, result.output) == (0, "ready\n")
    assert json.loads(verb("logs", "cloud", "--runs", runs, "--json").output)["lines"] == ["ready"]


def test_logs_of_a_simulated_node_are_in_the_record(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.results.history.History.driver", "sim")
    result = verb("logs", "edge-0", "--run", "good-20260101-120000-0000", "--runs", runs)
    assert result.exit_code == 0
    assert "s] round 1: round (phase start" in result.output


def test_what_the_record_holds_of_a_node_can_be_read_under_every_driver(runs: Path) -> None:
    result = verb("logs", "edge-0", "--record", "--run", "good-20260101-120000-0000", "--runs", runs)
    assert result.exit_code == 0
    assert "s] round 1: round (phase start" in result.output
    damaged = verb("logs", "cloud", "--record", "--runs", runs)
    assert isinstance(damaged.exception, RecordError)


def test_down_tells_of_other_runs(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(down, "traces", lambda runs: OTHERS)
    result = verb("down", "good-20260101-120000-0000", "--runs", runs)
    assert result.exit_code == 0
    assert "good-20260101-120000-0000: nothing of it is left on this host" in result.output
    assert "other runs are still here: other-20260101-120000-aaaa" in result.output
    nowhere = verb("down", "--runs", runs / "elsewhere")
    assert "on this host are: other-20260101-120000-aaaa" in str(nowhere.exception)
    monkeypatch.setattr(down, "traces", lambda runs: {})
    unknown = verb("down", "nobody", "--runs", runs)
    assert "there is no run 'nobody'" in str(unknown.exception)
    assert str(unknown.exception).endswith("; on this host is none")


def test_ps_says_what_to_do_about_a_run_whose_orchestrator_was_killed(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "good-20260101-120000-0000"
    monkeypatch.setattr(ps, "traces", lambda _: {name: RunDirectory(runs / name)})
    said = verb("ps", "--runs", runs).output
    assert f"{name}: orphaned" in said
    assert f"`resume {name}` goes on with it, `down {name}` removes what is left" in said
    monkeypatch.setattr(ps, "traces", lambda _: {name: None})
    said = verb("ps", "--runs", runs).output
    assert "resume" not in said
    assert f"`down {name}` removes what is left" in said


def test_down_removes_what_a_sweep_has_left_on_hosts_that_were_away(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[tuple[str, list[str]]] = []

    def sweep(run: str, directory: Path, hosts: list[str]) -> dict[str, str]:
        swept.append((run, hosts))
        return {"b": "down"}

    monkeypatch.setattr(down, "traces", lambda runs: {})
    monkeypatch.setattr(leftovers, "hosts", lambda: ["a", "b"])
    monkeypatch.setattr(leftovers, "sweep", sweep)
    result = verb("down", "mine-20260101-120000-aaaa", "--runs", runs)
    assert (result.exit_code, swept) == (1, [("mine-20260101-120000-aaaa", ["a", "b"])])
    assert "could not remove what it may have left on the host b (down)" in result.output
    assert "there is no run 'mine'" in str(verb("down", "mine", "--runs", runs).exception)
    monkeypatch.setattr(leftovers, "hosts", list)
    assert "there is no run" in str(verb("down", "mine-20260101-120000-aaaa", "--runs", runs).exception)
    assert len(swept) == 1


def test_what_was_removed_is_counted_in_words() -> None:
    assert Removed("a", processes=["hub (7)"], cgroups=["x", "y"]).told() == (
        "a: ended 1 process, removed 2 cgroups; nothing of it is left on this host"
    )
    assert "removed 1 container, ended 2 processes;" in Removed("a", containers=["c"], processes=["p", "q"]).told()
