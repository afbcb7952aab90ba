"""Claims that are checked by runs under `sim`, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.claims.evaluation import evaluate
from orchestrator.claims.rows import comparable
from orchestrator.cli.main import cli
from orchestrator.errors import RunError
from orchestrator.scenario.reading import parse
from orchestrator.sweep.quantities import REACHED
from orchestrator.sweep.quantities import Result as SweepResult
from orchestrator.sweep.reading import Combination
from tests.orchestrator.claims.test_reading import HEAD, claim
from tests.texts import containing

SCENARIO = """\
# Does a small hierarchy learn the digits?
algorithm: {name: hierfavg, rounds: 1, kappa1: 2, kappa2: 1, learning_rate: 0.2}
data: {dataset: digits, partition: iid, evaluate_samples: 100}
model: mlp
topology: {edges: 1, devices_per_edge: 1}
"""
SWEEP = """\
scenario: small.yaml
cases:
  small: {}
  wide: {model: {name: mlp, hidden: 512}}
  unused: {algorithm.rounds: 2}
vary: {algorithm.epochs: [1]}
seeds: [1, 2]
"""
CLAIMS = """\
  mine-bytes:
    place: Table 1
    says: A wide model takes more bytes.
    sweep: ../mine.yaml
    metric: message_bytes.model
    unit: kB
    figures:
      small: {case: small, paper: 1, ours: 10.5 ± 0.1}
      wide: {case: wide, paper: 2, ours: 20.5}
    holds: [wide > small, wide >= 1.5 * small]
    recorded: {minutes: 0.1}
  mine-cost:
    place: Table 2
    says: It costs nothing.
    state: not tried
    note: no board
    cost: a week
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "claims").mkdir()
    (tmp_path / "small.yaml").write_text(SCENARIO.replace("kappa1: 2, ", ""))
    (tmp_path / "mine.yaml").write_text(SWEEP)
    (tmp_path / "claims/mine.yaml").write_text(HEAD + CLAIMS)
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, ["reproduce", "--claims", "claims", *words])


@pytest.mark.slow
def test_a_claim_runs_its_cases_and_is_compared_with_what_was_recorded(folder: Path) -> None:
    done = call("--cheap", "--json")
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)["claims"]
    assert (row["state"], row["seeds"], row["driver"]) == ("in direction", "2 of 2", "sim")
    assert set(row["holds"].values()) == {True}
    wide = row["figures"]["wide"]
    assert wide["paper"] == 2
    assert wide["by_seed"]["1"] == wide["by_seed"]["2"] > 10
    assert len(list((folder / "runs/mine").glob("small-*"))) == 4
    assert not (folder / "runs/mine/sweep.md").exists()

    (folder / "claims/mine.yaml").write_text(HEAD + CLAIMS.replace("ours: 20.5", "ours: 9.5"))
    again = call("mine-bytes")
    assert again.exit_code == 3
    assert "run before" in again.stdout
    assert "direction (recorded: contradicted at this size)" in again.stdout

    (folder / "claims/mine.yaml").write_text(HEAD + CLAIMS.replace("message_bytes.model", "message_bytes.modl"))
    unknown = call("mine-bytes")
    assert str(unknown.exception).startswith("small: 'message_bytes.modl' is no figure of")


def test_what_cannot_be_checked(folder: Path) -> None:
    assert str(call("mine-cost").exception) == containing("no sweep checks mine-cost")
    for words in ([], ["--list", "--cheap"], ["mine-bytes", "--page", "page.md"]):
        assert "--cheap, --list and --page FILE" in call(*words).output
    refused = call("mine-bytes", "--driver", "docker", "--workers", "2")
    assert "workers: only for the driver sim" in str(refused.exception)
    assert str(call("mine-byte").exception) == (
        "'mine-byte' is no claim; did you mean 'mine-bytes'? (known: mine-bytes, mine-cost)"
    )
    (folder / "claims/mine.yaml").write_text(HEAD + CLAIMS.replace("case: wide", "case: wid"))
    where = "claims/mine.yaml:13: claims.mine-bytes.figures.wide.case: "
    assert str(call("mine-bytes").exception) == (
        f"{where}'wid' is no case of the sweep (known: small, algorithm.epochs=1, wide, algorithm.epochs=1, unused, "
        "algorithm.epochs=1)"
    )
    (folder / "claims/mine.yaml").write_text(HEAD + CLAIMS)
    (folder / "mine.yaml").write_text(SWEEP.replace("[1]", "[1, 2]"))
    assert str(call("mine-bytes").exception) == (
        containing("claims/mine.yaml:12: claims.mine-bytes.figures.small.case: means several cases")
    )
    (folder / "mine.yaml").write_text(SWEEP.replace("seeds", "seds"))
    assert str(call("mine-bytes").exception).startswith("mine.yaml:7: seds: unknown key; did you mean 'seeds'?")


def test_the_list_and_the_page(folder: Path) -> None:
    listed = call("--list")
    assert [line.split()[0] for line in listed.stdout.splitlines()[2:]] == ["mine-bytes", "mine-cost"]
    rows = json.loads(call("--list", "--json").stdout)["claims"]
    assert [(each["state"], each["command"]) for each in rows] == [
        ("in direction", "edgebed reproduce mine-bytes"),
        ("not tried", ""),
    ]
    assert json.loads(call("--page", "page.md", "--json").stdout) == {"file": "page.md"}
    page = (folder / "page.md").read_text()
    assert "| Mine | 2 | 0 | 1 | 0 | 0 | 1 |" in page
    assert "small 10.5 ± 0.1, wide 20.5 (kB)" in page


def timed(case: str, rounds: float, *, reached: bool) -> SweepResult:
    combination = Combination(case, 1, (), parse("algorithm: {name: hierfavg}", "base.yaml"), None)
    return SweepResult(combination, Path(case), "pass", None, {"to_target.rounds": rounds, REACHED: float(reached)})


def test_times_are_cut_by_the_runs_that_they_are_compared_with() -> None:
    of = claim(["a >= 2 * b"], metric="to_target.rounds", unit="rounds")
    runs = [timed("a", 38, reached=True), timed("b", 6, reached=True), timed("c", 5, reached=False)]
    figures = comparable(of, {"a": "a", "b": "b"}, runs)
    assert (figures["a"].mean, figures["b"].mean) == (38, 6)
    assert evaluate(of, lambda _: figures).state == "in direction"


def test_times_that_did_not_reach_the_target_are_not_compared() -> None:
    runs = [timed("a", 10, reached=False), timed("b", 5, reached=False)]
    with pytest.raises(RunError, match="no run of a, b reached"):
        comparable(claim(["a <= 2 * b"], metric="to_target.rounds", unit="rounds"), {"a": "a", "b": "b"}, runs)
