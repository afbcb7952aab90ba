"""Whole sweeps under the `sim` driver, through the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.errors import MistakeError, RunError
from orchestrator.exports.base import AlreadyThereError
from orchestrator.record.directory import RunDirectory, known_runs
from orchestrator.results.history import History
from orchestrator.sweep.quantities import Result
from orchestrator.sweep.sweeper import Sweeper
from tests.e2e.harness import ROOT, command, wait_for
from tests.texts import containing

SCENARIO = """\
# Does a small hierarchy learn the digits?
name: small
driver: sim
algorithm: {name: hierfavg, rounds: 2, kappa1: 4, kappa2: 1, learning_rate: 0.2}
data: {dataset: digits, partition: iid, evaluate_samples: 100}
model: mlp
topology: {edges: 2, devices_per_edge: 1}
"""
SWEEP = """\
scenario: small.yaml
cases:
  small: {}
  islands: {algorithm: {name: onlyedge, rounds: 2, learning_rate: 0.2}}
seeds: [1, 2]
target: {accuracy: 20%}
"""


def table(swept: Swept) -> list[Any]:
    """The figures of each case, except that of the host's own clock."""
    return [
        (case["case"], {name: spread for name, spread in case["figures"].items() if name != "wall_seconds"})
        for case in swept.result["cases"]
    ]


@dataclass(frozen=True)
class Swept:
    code: int
    result: dict[str, Any]
    lines: list[str]

    @property
    def runs(self) -> list[str]:
        return [run["run"] for case in self.result["cases"] for run in case["runs"]]


def swept(tmp_path: Path, text: str = SWEEP, *arguments: str) -> Swept:
    (tmp_path / "small.yaml").write_text(SCENARIO)
    (tmp_path / "mine.yaml").write_text(text)
    words = ["sweep", str(tmp_path / "mine.yaml"), "--runs", str(tmp_path / "runs"), "--json", *arguments]
    done = CliRunner().invoke(cli, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Swept(done.exit_code, json.loads(done.stdout), done.stderr.splitlines())


def test_a_run_that_is_interrupted_has_not_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(sweeper: Sweeper, number: int) -> Result:
        sweeper.interrupted = True
        return Result(sweeper.sweep.combinations[number], tmp_path, None, "interrupted", {})

    monkeypatch.setattr(Sweeper, "run", run)
    done = swept(tmp_path)
    assert (done.code, done.runs) == (130, [])
    assert json.loads((tmp_path / "runs/mine/sweep.json").read_text())["cases"] == done.result["cases"]


@pytest.mark.slow
def test_every_combination_is_run_once(tmp_path: Path) -> None:
    first = swept(tmp_path)
    assert first.code == 0
    assert len(set(first.runs)) == 4
    told = [line.partition(",")[0] for line in first.lines if line.startswith("[")]
    assert told == ["[1/4] small", "[2/4] small", "[3/4] islands", "[4/4] islands"]
    directory = tmp_path / "runs" / "mine"
    assert json.loads((directory / "sweep.json").read_text()) == first.result
    assert "| islands |" in (directory / "sweep.md").read_text()
    for case in first.result["cases"]:
        assert {"final.global", "final.clients", "final.edges", "best.global", "rounds"} <= case["figures"].keys()
        assert case["figures"]["final.global"]["count"] == 2
        assert [run["verdict"] for run in case["runs"]] == ["pass", "pass"]
    with History.open(Path(first.runs[3])) as history:
        assert history.meta["overrides"][-1] == "seed=2"
        assert (history.meta["sweep"], history.meta["case"]) == ("mine", "islands")

    again = swept(tmp_path)
    assert again.runs == first.runs
    assert all("run before" in line for line in again.lines)

    more = swept(tmp_path, SWEEP.replace("[1, 2]", "[2, 3]").replace("0.2}}", "0.3}}"))
    assert [run in first.runs for run in more.runs] == [True, False, False, False]

    anew = swept(tmp_path, SWEEP, "--again")
    assert not set(anew.runs) & set(first.runs)


def test_what_was_cut_short_is_run_again(tmp_path: Path) -> None:
    first = swept(tmp_path, SWEEP.replace("[1, 2]", "[1]"))
    page = tmp_path / "runs" / "mine" / "sweep.html"
    assert "2 of 2 runs complete" in page.read_text()
    (Path(first.runs[0]) / "run.db").unlink()
    of_another = tmp_path / "of another"
    of_another.write_text("whole")

    drawn = swept(tmp_path, SWEEP.replace("[1, 2]", "[1]"), "--collect")
    assert (drawn.code, drawn.runs) == (1, first.runs[1:])
    assert drawn.lines[0] == "[1/2] small, seed 1: missing: no run; `--task 0` executes it"
    assert "1 of 2 runs complete" in page.read_text()
    assert json.loads((page.parent / "sweep.json").read_text()) == drawn.result

    for name in ("sweep.json", "sweep.md", "sweep.html"):
        (page.parent / name).unlink()
        (page.parent / name).symlink_to(of_another)
    again = swept(tmp_path, SWEEP.replace("[1, 2]", "[1]"))
    assert of_another.read_text() == "whole"
    assert "small" in (page.parent / "sweep.md").read_text()
    assert [one == other for one, other in zip(first.runs, again.runs, strict=True)] == [False, True]
    assert len(known_runs(tmp_path / "runs" / "mine")) == 2


def test_a_failure_does_not_end_the_sweep(tmp_path: Path) -> None:
    # 1437 training digits do not reach for 3000 devices
    text = "scenario: small.yaml\ncases: {many: {topology.devices_per_edge: 1500}, small: {}}"
    result = swept(tmp_path, text)
    assert result.code == 1
    many, small = result.result["cases"]
    assert many["runs"][0]["run"] is None
    assert "data.partition" in many["runs"][0]["error"]
    assert small["runs"][0]["verdict"] == "pass"
    assert "[1/2] many, seed 1: failed: " in result.lines[0]
    assert "figure:\n\n- many, seed 1" in (tmp_path / "runs/mine/sweep.md").read_text()


def test_there_is_nothing_to_collect(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="start it without --collect"):
        swept(tmp_path, SWEEP, "--collect")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--collect", "--again"], "--collect runs nothing"),
        (["--count", "--task", "1"], "--count, --task, --collect, --on and --parallel"),
        (["--on", "slurm", "--image", "mine"], "--image is for tasks in containers: --on swarm or --on kubernetes"),
        (["--image", "mine"], "--image is for tasks in containers: --on swarm or --on kubernetes"),
    ],
)
def test_options_that_exclude_each_other(tmp_path: Path, words: list[str], error: str) -> None:
    (tmp_path / "mine.yaml").touch()
    done = CliRunner().invoke(cli, ["sweep", str(tmp_path / "mine.yaml"), *words])
    assert done.exit_code == 2
    assert error in done.output


@pytest.mark.parametrize("option", ["--on=slurm", "--parallel=2"])
def test_tasks_cannot_share_standard_input(option: str) -> None:
    done = CliRunner().invoke(cli, ["sweep", "-", option], input=SCENARIO)
    assert done.exit_code == 2
    assert "each task reads the sweep: write" in done.output


def test_a_sweep_has_one_task_for_each_case_and_seed(tmp_path: Path) -> None:
    assert swept(tmp_path, SWEEP, "--count").result == {"count": 4}
    assert not (tmp_path / "runs").exists()
    with pytest.raises(RunError, match="is no task 4"):
        swept(tmp_path, SWEEP, "--task", "4")


def test_the_description_of_a_job_as_json(tmp_path: Path) -> None:
    file = tmp_path / "runs" / "mine" / "sweep.sbatch"
    described = swept(tmp_path, SWEEP, "--on", "slurm", "--print").result
    assert described == {"file": str(file), "text": file.read_text()}


@pytest.mark.slow
def test_tasks_in_any_order_in_three_processes_give_the_table_of_one(tmp_path: Path) -> None:
    whole = swept(tmp_path, SWEEP)
    words = command("sweep", tmp_path / "mine.yaml", "--runs", tmp_path / "tasks")

    def executed(tasks: Sequence[int]) -> list[str]:
        done = [
            subprocess.run([*words, "--task", str(task)], capture_output=True, text=True, cwd=ROOT, check=True)
            for task in tasks
        ]
        return [each.stdout for each in done]

    with ThreadPoolExecutor(3) as processes:
        said = list(processes.map(executed, ([3, 0], [2], [1])))
    assert "[4/4] islands, seed 2: done" in said[0][0]
    collected = swept(tmp_path, SWEEP, "--collect", "--runs", str(tmp_path / "tasks"))
    assert (collected.code, table(collected)) == (0, table(whole))
    once = SWEEP.replace("[1, 2]", "[1]")
    parallel = swept(tmp_path, once, "--parallel", "2", "--runs", str(tmp_path / "parallel"))
    assert (parallel.code, table(parallel)) == (0, table(swept(tmp_path, once)))
    assert sum("done" in line for line in parallel.lines) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("options", "number"), [([], signal.SIGTERM), (["--parallel", "2"], signal.SIGINT)])
def test_an_interrupted_sweep_leaves_its_table_and_says_once_how_to_continue(
    tmp_path: Path, options: list[str], number: int
) -> None:
    """Two short runs are complete when the sweep is interrupted in a long one. The other pairs of options and signal
    have tests below and in tests/e2e/test_ends.py."""
    (tmp_path / "small.yaml").write_text(SCENARIO)
    cases = "cases: {short: {}, long: {algorithm.rounds: 9999, stop.rounds: 9999}}"
    (tmp_path / "mine.yaml").write_text(f"scenario: small.yaml\nseeds: [1, 2]\n{cases}\n")
    folder = tmp_path / "runs/mine"

    def short_runs_are_complete() -> bool | None:
        if not (folder / "sweep.json").exists() or held(folder, 1) is None:
            return None
        short, _ = json.loads((folder / "sweep.json").read_text())["cases"]
        return len(short["runs"]) == 2 or None

    words = command("sweep", tmp_path / "mine.yaml", "--runs", tmp_path / "runs", *options)
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        wait_for(short_runs_are_complete, "two complete runs in the tables")
        assert (folder / "sweep.md").exists()
        process.send_signal(number)
        assert process.stdout is not None
        said = process.stdout.read()
    assert process.returncode == 130
    assert said.count("interrupted: 2 of 4 runs complete") == 1
    assert "error" not in said
    assert "2 pass" in said
    assert "2 pass" in (folder / "sweep.md").read_text()
    assert (folder / "sweep.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_the_end_of_a_sweep_ends_its_tasks(tmp_path: Path, number: int, code: int) -> None:
    (tmp_path / "small.yaml").write_text(SCENARIO.replace("rounds: 2", "rounds: 9999"))
    (tmp_path / "mine.yaml").write_text("scenario: small.yaml\nseeds: [1, 2, 3]\n")
    words = command("sweep", tmp_path / "mine.yaml", "--runs", tmp_path / "runs", "--parallel", "2")
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        runs = wait_for(lambda: held(tmp_path / "runs/mine", 2), "two runs")
        if number == signal.SIGKILL:
            os.kill(runs[0].holder() or 0, number)
            assert process.stdout is not None
            assert re.match("task [01] was killed", process.stdout.readline())
        process.send_signal(number)
    assert process.returncode == code
    wait_for(lambda: not held(tmp_path / "runs/mine", 1) or None, "the end of the tasks")


def held(folder: Path, count: int) -> list[RunDirectory] | None:
    """The runs that continue; None if these are fewer than ``count``."""
    found = [run for run in known_runs(folder) if run.holder() is not None]
    return found if len(found) >= count else None


@pytest.mark.slow
def test_a_task_that_was_killed_starts_again_and_gives_the_same_table(tmp_path: Path) -> None:
    text = SWEEP.replace("  islands", "  #").replace("{}", "{algorithm.rounds: 30}").replace("[1, 2]", "[1]")
    whole = swept(tmp_path, text, "--task", "0")
    runs = tmp_path / "killed"
    words = command("sweep", tmp_path / "mine.yaml", "--runs", runs, "--task", "0")
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL) as killed:
        wait_for(lambda: known_runs(runs / "mine") or None, "its run")
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == containing("[1/1] small, seed 1")
            killed.kill()
            assert "done" in other.stdout.read()
    again = swept(tmp_path, text, "--task", "0", "--runs", str(runs))
    assert "run before" in again.lines[0]
    assert len(known_runs(runs / "mine")) == 2
    figures = [{**each.result["figures"], "wall_seconds": 0} for each in (whole, again)]
    assert figures[0] == figures[1]


@pytest.mark.slow
def test_a_sweep_is_followed(tmp_path: Path) -> None:
    text, folder = SWEEP.replace("[1, 2]", "[1]"), tmp_path / "out"
    before = swept(tmp_path, text.replace("  islands: {", "#"))  # a part of the sweep, which is not followed
    done = swept(tmp_path, text, "--track", f"tensorboard:{folder}")
    assert (done.code, done.runs[:1]) == (0, before.runs)  # not repeated, and yet written
    small, islands = (Path(run).name for run in done.runs)
    found = [path.relative_to(folder) for path in folder.rglob("events.*")]
    assert {path.parent for path in found} == {Path("mine/small", small), Path("mine/islands", islands)}
    again = CliRunner().invoke(
        cli, ["export", str(folder), "--run", str(tmp_path / "runs/mine"), "--to", "tensorboard"]
    )
    assert isinstance(again.exception, AlreadyThereError)
    assert len(found) == len(list(folder.rglob("events.*")))


def test_a_mistake_is_reported_before_anything_is_run(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"mine\.yaml:3: cases"):
        swept(tmp_path, "scenario: small.yaml\nseeds: [1]\ncases: 3")
    assert not (tmp_path / "runs").exists()


def test_workers_are_for_simulations(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SCENARIO)
    (tmp_path / "mine.yaml").write_text(SWEEP)
    for option in ("--workers", "--parallel"):
        words = ["sweep", str(tmp_path / "mine.yaml"), "--driver", "namespaces", option, "2"]
        done = CliRunner().invoke(cli, words)
        assert isinstance(done.exception, MistakeError)
        assert str(done.exception).startswith(f"{option.removeprefix('--')}: only for the driver sim")


def test_a_sweep_that_is_complete_needs_no_swarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing")
    one = "scenario: small.yaml\nseeds: [1]\n"
    first = swept(tmp_path, one)
    again = swept(tmp_path, one, "--on", "swarm")
    assert (again.code, again.runs) == (0, first.runs)
    assert "run before" in again.lines[0]
