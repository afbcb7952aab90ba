"""A run whose directory travels to another place, is carried out there, and comes back."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import RunError
from orchestrator.host.directory import RunDirectory
from orchestrator.planning.plan import Plan
from orchestrator.results.record.history import History
from orchestrator.run.display.single_line import Glimpse
from orchestrator.run.judgement import judge
from orchestrator.run.launch import launch, prepared_plan
from orchestrator.run.options import Origin, RunOptions
from orchestrator.run.remote import begun, carry_out, travelling
from orchestrator.scenario.plugins import use
from orchestrator.scenario.reading import load
from orchestrator.scenario.schema import Scenario

SCENARIO = """\
# Does a plug-in's link reach another host?
name: small
driver: sim
algorithm: {name: fedavg, rounds: 2, learning_rate: 0.2}
data: {dataset: digits, partition: iid, evaluate_samples: 100}
model: mlp
topology: {edges: 0, devices: 2}
plugins: [lib/links.py, some_models]
links: {device-cloud: narrow}
faults: [{round: 1, node: device-0, action: crash, for: 1s}]
restart: on-failure
"""
LINKS = 'import edgebed\nPLUGIN = edgebed.Plugin(profiles={"narrow": {"latency": "5ms", "rate": "5mbit"}})\n'
MODELS = "import edgebed\nPLUGIN = edgebed.Plugin()\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A scenario with a plug-in in a file below its folder, and one in a module."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "links.py").write_text(LINKS)
    (tmp_path / "site" / "some_models").mkdir(parents=True)
    (tmp_path / "site" / "some_models" / "__init__.py").write_text(MODELS)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    (tmp_path / "small.yaml").write_text(SCENARIO)
    yield tmp_path / "small.yaml"
    use(())
    sys.modules.pop("some_models", None)


def planned(file: Path) -> tuple[Scenario, Plan]:
    scenario = load(file, ["seed=3"])
    return scenario, prepared_plan(scenario, file)


def begin(file: Path) -> tuple[RunDirectory, Plan]:
    scenario, plan = planned(file)
    origin = Origin(scenario, file, ["seed=3"], meta={"sweep": "mine", "case": "small"})
    return begun(plan, origin, file.parent / "runs"), plan


def copied(directory: RunDirectory, place: Path) -> RunDirectory:
    for each in travelling(directory):
        copy = place / directory.run / each.relative_to(directory.path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(each, copy)
    return RunDirectory(place / directory.run)


def rows(directory: RunDirectory) -> dict[str, Any]:
    with History.open(directory.path) as history:
        tables = {
            name: [tuple(row) for row in history.rows(f"SELECT * FROM {name} ORDER BY rowid")]
            for name in ("event", "metric", "state", "counters", "traffic", "fault")
        }
        return {**tables, "plan": history.plan, "effective": history.effective}


def test_a_run_that_travels_gives_the_record_of_one_that_stays(file: Path, tmp_path: Path) -> None:
    directory, plan = begin(file)
    assert not directory.nodes.exists()  # no trace for `down`
    there = copied(directory, tmp_path / "there")
    shutil.rmtree(tmp_path / "lib")  # the other place has neither the scenario's folder nor what is installed here
    shutil.rmtree(tmp_path / "site")
    sys.modules.pop("some_models")
    carry_out(there, Path(plan.data_directory), plan.plugins, "pc-2")
    assert [each.name for each in there.path.iterdir() if each.name in ("nodes", "control", "report.html")] == []
    back = copied(there, tmp_path / "back")
    summary = judge(back)
    assert (summary["ended"], summary["run"], summary["rounds"]) == ("rounds", str(back.path), 2)

    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "links.py").write_text(LINKS)
    (tmp_path / "site" / "some_models").mkdir(parents=True)
    (tmp_path / "site" / "some_models" / "__init__.py").write_text(MODELS)
    scenario, plan = planned(file)
    _, stayed = launch(
        plan, Origin(scenario, file, ["seed=3"]), tmp_path / "here", lambda _: Glimpse("here"), RunOptions(1)
    )
    assert rows(back) == rows(stayed)
    with History.open(back.path) as one, History.open(stayed.path) as other:
        assert one.meta.keys() - other.meta.keys() == {"host", "sweep", "case"}
        assert (one.meta["host"], one.meta["folder"]) == ("pc-2", str(tmp_path))
        assert one.meta["command"] == other.meta["command"]


def test_a_run_that_would_be_another_one_elsewhere_is_refused(file: Path, tmp_path: Path) -> None:
    directory, plan = begin(file)
    there = copied(directory, tmp_path / "there")
    recorded = (there.path / "plan.json").read_text()
    (there.path / "plan.json").write_text(recorded.replace('"seed": 3', '"seed": 4', 1))
    with pytest.raises(RunError, match=r"this host makes another plan of its scenario \(seed\)"):
        carry_out(there, Path(plan.data_directory), plan.plugins, "pc-2")


def test_nothing_is_left_of_a_run_that_cannot_begin(file: Path, tmp_path: Path) -> None:
    scenario, plan = planned(file)
    (source,) = [each for each in plan.plugins if each.is_file]
    Path(source.root).write_text(LINKS + "# changed\n")
    with pytest.raises(RunError, match=r"links\.py was changed"):
        begun(replace(plan), Origin(scenario, file), tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []
