"""The verbs that look after runs, in odd conditions: one clear line, the right exit code, never a traceback."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import sys
from collections import Counter
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import orchestrator.cli
from orchestrator.cli.catalogue import SHELLS
from orchestrator.cli.main import GROUPS, carry_out, cli
from orchestrator.drivers.swarm import leftovers
from orchestrator.errors import RecordError, RunError
from orchestrator.record.directory import RunDirectory
from orchestrator.run import down
from orchestrator.run.down import Removed
from orchestrator.verbs.live import ps
from tests.orchestrator.example_run import Example
from tests.texts import containing

OTHERS: dict[str, RunDirectory | None] = {"other-20260101-120000-aaaa": None}


SCENARIO = """
name: mine
topology: {devices: 2}
data: {dataset: digits}
model: mlp
algorithm: {name: fedavg, rounds: 1}
"""


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


COMMANDS: dict[str, click.Command] = {
    **cli.commands,
    **{
        f"{name} {sub}": each
        for name, group in cli.commands.items()
        if isinstance(group, click.Group)
        for sub, each in group.commands.items()
    },
}


def test_every_command_is_in_exactly_one_group() -> None:
    grouped = [command for commands in GROUPS.values() for command in commands]
    made = [
        value
        for module in pkgutil.iter_modules(orchestrator.cli.__path__)
        if module.name != "main"
        for value in vars(importlib.import_module(f"orchestrator.cli.{module.name}")).values()
        if isinstance(value, click.Command) and value not in list(COMMANDS.values())[len(cli.commands) :]
    ]
    assert Counter(each.name for each in grouped) == Counter(each.name for each in made)
    assert {each.name: each for each in grouped} == cli.commands


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command(name: str) -> None:
    command, shown = COMMANDS[name], " ".join(verb(*name.split(), "--help").output.split())
    summary = command.get_short_help_str(1000)
    assert re.fullmatch(r"[A-Z][^.]*(\.[^ ][^.]*)*\.", summary), "the summary is one whole sentence"
    parent = " ".join(verb(*name.split()[:-1], "--help").output.split())
    assert f" {name.split()[-1]} {summary} " in f"{parent} ", "and is in the list of commands, not cut off"
    assert summary in shown
    interactive = name == "shell"  # it prints nothing itself
    for option in ("-h, --help", *(() if interactive else ("--json", "-q, --quiet", "-v, --verbose"))):
        assert option in shown
    for each in command.params:
        assert isinstance(each, click.Argument) or each.help, f"{each.name} is explained"


def test_alone_it_prints_first_steps_with_commands_that_exist() -> None:
    done = verb()
    assert done.exit_code == 0
    steps = re.findall(r"edgebed (\w+)", done.output)
    assert len(steps) == 3
    assert set(steps) <= cli.commands.keys()


def test_the_help_has_the_exit_codes() -> None:
    assert re.findall(r"^    (\d+) ", verb("--help").output, re.MULTILINE) == ["0", "1", "2", "3", "130"]


def test_the_version_has_what_a_bug_report_needs() -> None:
    lines = verb("--version").output.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["edgebed", "python", "system"]
    assert {"pyzmq", "numpy", "pydantic"} <= {line.split()[0] for line in lines}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("logs", "error: missing argument 'NODE'\nsee edgebed logs --help\n"),
        ("up -x mine.yaml", "error: no such option '-x'\nsee edgebed up --help\n"),
        ("pu", containing("error:", "'pu'", "`edgebed up`", "\nsee edgebed --help\n")),
        ("run", containing("error:", "'run'", "`edgebed up`", "\nsee edgebed --help\n")),
        ("deploy a", containing("error:", "'deploy'", "`edgebed up`", "\nsee edgebed --help\n")),
        ("stop", containing("error:", "'stop'", "`edgebed down`", "\nsee edgebed --help\n")),
        ("destroy", containing("error:", "'destroy'", "`edgebed down`", "\nsee edgebed --help\n")),
        ("xyzzy", "error: there is no command 'xyzzy'\nsee edgebed --help\n"),
        (
            "hosts dwn",
            containing("error:", "'dwn'", "`edgebed hosts down`", "\nsee edgebed hosts --help\n"),
        ),
    ],
)
def test_wrong_usage_is_reported_in_one_style(
    words: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["edgebed", *words.split()])
    assert carry_out() == 2
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_prints_a_script(shell: str) -> None:
    script = verb("completion", shell).output
    assert f"_EDGEBED_COMPLETE={shell}_complete" in script
    assert json.loads(verb("completion", shell, "--json").output) == {"shell": shell, "script": script}


def test_runs_complete_by_name(runs: Path) -> None:
    context = cli.make_context("edgebed", ["report"], resilient_parsing=True)
    report = cli.commands["report"].make_context("report", ["--runs", str(runs)], parent=context)
    (run,) = (each for each in report.command.params if each.name == "run")
    assert [each.value for each in run.shell_complete(report, "go")] == ["good-20260101-120000-0000"]


def test_a_run_is_an_argument_or_an_option(runs: Path) -> None:
    words = ("faults", "--json", "--runs", runs)
    good = "good-20260101-120000-0000"
    assert verb(*words, good).output == verb(*words, "-r", good).output != ""
    twice = verb(*words, good, "--run", "other")
    assert (twice.exit_code, f"name one run: {good} or --run" in twice.output) == (2, True)


def test_compare_names_every_run_that_it_cannot_find(runs: Path) -> None:
    error = str(verb("compare", "x", "good-20260101-120000-0000", "y", "--runs", runs).exception)
    assert error.startswith("there is no run 'x' and")


def test_quiet_and_verbose(tmp_path: Path) -> None:
    scenario = tmp_path / "mine.yaml"
    scenario.write_text(SCENARIO)
    words = ("up", scenario, "--driver", "sim", "--runs", tmp_path / "runs")
    usual, quiet, verbose = (verb(*words, *option) for option in ((), ("-q",), ("-v",)))
    assert "] run mine-" in usual.stdout.splitlines()[0]
    assert "round 1 of 1 starts" in usual.output
    assert "] " not in quiet.output
    assert "pass" in quiet.output
    assert verbose.stderr.startswith(f"planning {scenario}\n")
    assert quiet.stderr == ""
    assert verb("init", tmp_path / "lab", "-q").stderr == ""


def test_the_options_of_a_scenario_override_it_wherever_one_is_read(tmp_path: Path) -> None:
    scenario = tmp_path / "mine.yaml"
    scenario.write_text(SCENARIO)
    words = ("--driver", "sim", "--engine", "userspace", "--set", "seed=7", "--json")
    plan = json.loads(verb("plan", scenario, *words).output)
    assert (plan["driver"], plan["engine"], plan["seed"]) == ("sim", "userspace", 7)
    bad = verb("validate", scenario, "--device", "gpu")
    assert "compute.device" in str(bad.exception)
    for name in ("up", "validate", "plan", "calibrate", "sweep"):
        options = {option for each in cli.commands[name].params for option in each.opts}
        assert {"--set", "--driver", "--engine", "--device"} <= options


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


def test_what_a_node_printed_can_be_read_without_a_record(runs: Path) -> None:
    result = verb("logs", "cloud", "--runs", runs)
    assert (result.exit_code, result.output) == (0, "ready\n")
    assert json.loads(verb("logs", "cloud", "--runs", runs, "--json").output)["lines"] == ["ready"]


def test_what_a_node_printed_moves_no_cursor(runs: Path) -> None:
    log = runs / "good-20260101-120000-0000" / "logs" / "edge-0.log"
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(b"10%\r20%\r\n\x1b[2Jdone\n")
    result = verb("logs", "edge-0", "--run", "good-20260101-120000-0000", "--runs", runs)
    assert result.output == "10%\n20%\n␛[2Jdone\n"


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


def test_down_reports_other_runs(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(down, "traces", lambda runs: OTHERS)
    result = verb("down", "good-20260101-120000-0000", "--runs", runs)
    assert result.exit_code == 0
    assert "good-20260101-120000-0000: nothing of it is left" in result.output
    assert "other runs are still here: other-20260101-120000-aaaa" in result.output
    nowhere = verb("down", "--runs", runs / "elsewhere")
    assert "on this host are: other-20260101-120000-aaaa" in str(nowhere.exception)
    monkeypatch.setattr(down, "traces", lambda runs: {})
    unknown = verb("down", "nobody", "--runs", runs)
    assert "there is no run 'nobody'" in str(unknown.exception)
    assert str(unknown.exception).endswith("; on this host is none")


def test_ps_says_what_to_do_about_a_run_with_a_killed_orchestrator(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "good-20260101-120000-0000"
    monkeypatch.setattr(ps, "traces", lambda _: {name: RunDirectory(runs / name)})
    said = verb("ps", "--runs", runs).output
    assert f"{name}: orphaned" in said
    assert f"`resume {name}` continues it, `down {name}`" in said
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
    assert "left on the host b (down)" in result.output
    assert "there is no run 'mine'" in str(verb("down", "mine", "--runs", runs).exception)
    monkeypatch.setattr(leftovers, "hosts", list)
    assert "there is no run" in str(verb("down", "mine-20260101-120000-aaaa", "--runs", runs).exception)
    assert len(swept) == 1


def test_what_was_removed_is_counted_in_words() -> None:
    assert Removed("a", processes=["hub (7)"], cgroups=["x", "y"]).describe() == (
        containing("a: ended 1 process, removed 2 cgroups")
    )
    assert "removed 1 container, ended 2 processes;" in Removed("a", containers=["c"], processes=["p", "q"]).describe()
