"""The tables of a run: every kind of row, with the summary's numbers."""

from __future__ import annotations

from pathlib import Path

from orchestrator.results.history import History
from orchestrator.results.summary import summary
from orchestrator.results.tables import TABLES
from orchestrator.verbs.python_interface import Run
from tests.orchestrator.example_run import Example


def test_the_tables_are_those_of_a_run(tmp_path: Path) -> None:
    run = Run(Example(rounds=3).build(tmp_path / "run"))
    with run.history() as history:
        found = {name: table.read(history) for name, table in TABLES.items()}
        said = summary(history)
    for name in ("events", "faults", "links", "metrics", "probes", "resources", "rounds", "states", "traffic"):
        assert [row._asdict() for row in found[name]] == run.rows(name)
    assert [row._asdict() for row in found["checks"]] == said["checks"]
    assert [row._asdict()["name"] for row in found["nodes"]] == [node["name"] for node in run_plan(run)]
    last = [row._asdict() for row in found["accuracy"] if row._asdict()["scope"] == "global"][-1]
    assert (last["round"], last["node"], last["value"]) == (3, "cloud", said["accuracy"]["global"])


def run_plan(run: Run) -> list[dict[str, str]]:
    with run.history() as history:
        nodes: list[dict[str, str]] = history.plan["nodes"]
        return nodes


def test_a_run_without_anything(tmp_path: Path) -> None:
    Example(rounds_made=0, ending=None, with_faults=False).build(tmp_path / "run")
    with History.open(tmp_path / "run") as history:
        assert TABLES["accuracy"].read(history) == []
        assert len(TABLES["nodes"].read(history)) == 16
