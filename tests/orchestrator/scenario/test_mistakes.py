"""Mistakes of a scenario that show only with its data: told like every other one, with exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.cli import main as cli

SCENARIO = """\
algorithm: fedavg
topology: {devices: 2}
data:
  dataset: npz:mine.npz
  partition: iid
"""


def told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr("sys.argv", ["edgebed", *arguments])
    return cli.carry_out(), capsys.readouterr().err


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEBED_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine.yaml").write_text(SCENARIO)
    return tmp_path


@pytest.mark.parametrize("verb", [["validate"], ["plan"], ["plan", "--json"], ["up", "--driver", "sim"]])
def test_a_missing_data_set_has_its_line_and_path(
    verb: list[str], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = told(capsys, monkeypatch, *verb, "mine.yaml")
    assert text == f"error: mine.yaml:4: data.dataset: data set npz:mine.npz: no file at {folder}/mine.npz\n"
    assert code == 2
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("data.partition={iid: {min_samples: 5000}}", "data.partition: 1437 samples"),
        ("data.partition=by-subject", "data.partition: by-subject needs a data set"),
    ],
)
def test_what_the_data_does_not_give_has_its_place(
    override: str, expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = told(capsys, monkeypatch, "validate", "mine.yaml", "--set", "data.dataset=digits", "--set", override)
    assert text.startswith(f"error: --set {override}: {expected}")
    assert code == 2


def test_what_a_default_asks_too_much_of_names_the_file(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mine.yaml").write_text("algorithm: fedavg\ntopology: {devices: 2000}\n")
    code, text = told(capsys, monkeypatch, "plan", "mine.yaml")
    assert text.startswith("error: mine.yaml: data.partition: 1437 samples do")
    assert code == 2
