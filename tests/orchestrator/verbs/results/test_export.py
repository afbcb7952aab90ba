"""The verb `export`, on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas
import pytest
from click.testing import CliRunner, Result

from orchestrator.cli.main import cli
from orchestrator.errors import PlaceError, RecordError, RunError
from tests.orchestrator.example_run import Example

FIRST, SECOND = "good-20260101-120000-0000", "good-20260102-120000-0000"


def export(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["export", *map(str, words)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, and a sweep of two runs, one of which failed before it began."""
    folder = tmp_path_factory.mktemp("exported") / "runs"
    for path in (folder / FIRST, folder / SECOND, folder / "mine" / "a-1", folder / "mine" / "old"):
        Example(rounds=1).build(path)
    cases = [{"runs": [{"run": "elsewhere/mine/a-1"}, {"run": None}]}]
    (folder / "mine" / "sweep.json").write_text(json.dumps({"cases": cases}))
    (folder / "broken").mkdir()
    (folder / "broken" / "sweep.json").write_text("{}")
    return folder


def test_by_default_the_latest_run(runs: Path, tmp_path: Path) -> None:
    done = export("--to", "csv", tmp_path, "--runs", runs)
    assert (done.exit_code, done.stdout) == (0, f"{SECOND}: written to {tmp_path / SECOND}\n")
    rounds = pandas.read_csv(tmp_path / SECOND / "rounds.csv")
    assert sorted(rounds.node) == ["cloud", "edge-0", "edge-1", "edge-2"]


def test_several_runs_by_id_and_by_directory_each_once(runs: Path, tmp_path: Path) -> None:
    done = export(
        *(tmp_path, "--to", "parquet", "-r", FIRST, "-r", runs / SECOND, "-r", FIRST, "--runs", runs, "--json")
    )
    assert json.loads(done.stdout) == {
        "exported": [{"run": run, "place": str(tmp_path / run)} for run in (FIRST, SECOND)]
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == [FIRST, SECOND]


def test_a_sweep_stands_for_the_runs_in_its_table(runs: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("mine", str(runs / "mine"))):
        export(tmp_path / str(number), "--run", name, "--to", "csv", "--runs", runs)
        assert [path.name for path in (tmp_path / str(number)).iterdir()] == ["a-1"]


def test_if_one_run_is_there_nothing_is_written(runs: Path, tmp_path: Path) -> None:
    export(tmp_path, "-r", SECOND, "--to", "csv", "--runs", runs)
    again = export(tmp_path, "-r", FIRST, "-r", SECOND, "--to", "csv", "--runs", runs)
    assert isinstance(again.exception, PlaceError)
    assert str(again.exception).startswith(f"{SECOND} is already in {tmp_path / SECOND}: remove")
    assert [path.name for path in tmp_path.iterdir()] == [SECOND]


def test_what_there_is_not(runs: Path, tmp_path: Path) -> None:
    for name, kind, told in (
        ("absent", RunError, "there is no run 'absent'"),
        ("x" * 300, RunError, "there is no run 'xxx"),  # no file can have that name
        ("broken", RecordError, "sweep.json"),
    ):
        done = export(tmp_path / "out", "-r", name, "--to", "csv", "--runs", runs)
        assert isinstance(done.exception, kind)
        assert told in str(done.exception)
    assert not (tmp_path / "out").exists()
    assert export(tmp_path, "-r", FIRST, "--to", "xlsx", "--runs", runs).exit_code == 2


ARFF = """\
import edgebed


def arff(rows, folder):
    (folder / "rounds.arff").write_text(str(len(rows("rounds"))))


def half(rows, folder):
    (folder / "half.txt").write_text("half")
    raise ValueError("no more")


PLUGIN = edgebed.Plugin(exporters={"arff": arff, "half": half})
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that advertises a plug-in with exporters, and one that cannot be used."""
    monkeypatch.syspath_prepend(tmp_path)
    for name, code in (("exportlab", ARFF), ("brokenlab", "raise SystemExit(1)")):
        monkeypatch.delitem(sys.modules, name, raising=False)  # of an earlier test, from a folder that is gone
        (tmp_path / f"{name}.py").write_text(code)
        about = tmp_path / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[edgebed]\n{name} = {name}\n")


@pytest.mark.usefixtures("plugin")
def test_the_exporter_of_an_installed_plug_in(runs: Path, tmp_path: Path) -> None:
    """It fills a folder for each run. The example has a round of four nodes."""
    place = tmp_path / "out"
    done = export("--to", "arff", place, "--runs", runs)
    assert (done.exit_code, done.stdout) == (0, f"{SECOND}: written to {place / SECOND}\n")
    assert [file.name for file in (place / SECOND).iterdir()] == ["rounds.arff"]
    assert (place / SECOND / "rounds.arff").read_text() == "4"
    again = export("--to", "arff", place, "-r", FIRST, "-r", SECOND, "--runs", runs)
    assert isinstance(again.exception, PlaceError)
    assert not (place / FIRST).exists()


@pytest.mark.usefixtures("plugin")
def test_an_exporter_that_fails_leaves_no_folder_and_its_line(runs: Path, tmp_path: Path) -> None:
    done = export("--to", "half", tmp_path / "out", "--runs", runs)
    assert isinstance(done.exception, RunError)
    assert str(done.exception) == "exportlab:10: ValueError: no more"
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.usefixtures("plugin")
def test_an_unknown_format_lists_those_of_plug_ins(runs: Path, tmp_path: Path) -> None:
    done = export("--to", "word", tmp_path, "--runs", runs)
    assert done.exit_code == 2
    for name in ("'arff'", "'csv'", "'half'", "'pdf'"):
        assert name in done.output
