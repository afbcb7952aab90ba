"""docs/reference/record.md stays true: it has every table and column of the record, and its queries work."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.fidelity import loss_audit
from orchestrator.record.directory import RunDirectory
from orchestrator.record.kept_files import FOLDER
from orchestrator.record.schema import APPLICATION_ID, COUNTERS, DATABASE, SCHEMA_VERSION
from orchestrator.record.writer import Record
from orchestrator.results.evaluation.targets import reached
from orchestrator.results.history import History
from orchestrator.results.summary import summary
from orchestrator.results.traffic import volumes
from orchestrator.run.nodes.messages import _EVENTS, ORCHESTRATORS
from orchestrator.verbs.python_interface import up
from tests.orchestrator.example_run import Example

PAGE = (Path(__file__).parents[1] / "docs/reference/record.md").read_text()
TABLES, VIEWS, QUERIES = (
    PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0] for title in ("Tables", "Views", "Queries")
)
SQL = dict(re.findall(r"^### (.+?)\n.*?^```sql\n(.*?)^```", QUERIES, re.MULTILINE | re.DOTALL))

SCENARIO: dict[str, Any] = {
    "algorithm": {"name": "hierfavg", "rounds": 3, "learning_rate": 0.1},
    "data": {"dataset": "digits", "samples_per_client": 40},
    "model": "mlp",
    "topology": {"edges": 2, "devices_per_edge": 2},
    "links": {"device-edge": {"latency": "5ms", "loss": "1%", "rate": "5mbit"}},
    "faults": [{"round": 2, "node": "device-0-1", "action": "crash", "for": "1s"}],
    "driver": "sim",
}
NOT_SIMULATED = {
    *("Configured and counted losses", "Links that differ from their profile", "Disturbances"),
    "Sensors of the hosts",
    "Late answers",  # nobody is, in three rounds
}
NOT_IN_THE_EXAMPLE = {"The slowest devices of a round"}  # its devices report nothing


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as of the driver namespaces: with late answers, overruns, and an audit of losses as the monitor writes."""
    run = Example(overruns=2, sensors=True).build(tmp_path_factory.mktemp("runs") / "dropout-20261122-154058-1ef8")
    with History.open(run) as history:
        rows = [
            {**link._asdict(), "drawn": link.offered, "asked_lost": 0.002 * link.offered}
            for link in volumes.link_counters(history)
        ]
        found = loss_audit.look(rows, history.link_classes)
    with contextlib.closing(sqlite3.connect(run / DATABASE)) as database:
        look = (40.0, None, found.NAME, 10, None, json.dumps(found.to_json()))
        database.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?)", look)
        database.commit()
    return run


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run, of the driver sim."""
    return up(SCENARIO, runs=tmp_path_factory.mktemp("simulated"), workers=1).path


def opened(run: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{(run / DATABASE).as_uri()}?mode=ro", uri=True)


def asked(run: Path, title: str) -> list[dict[str, Any]]:
    """The rows that a query of the page gives."""
    with contextlib.closing(opened(run)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(SQL[title])]


def columns_of(text: str) -> list[tuple[str, bool]]:
    """The columns that a section names first, and whether they may be NULL."""
    table = text.partition("| column |")[2].partition("\n\n")[0]
    cells = [re.split(r"(?<!\\)\|", line) for line in table.splitlines()[2:]]
    return [(row[1].strip().strip("`"), row[3].strip() != "never") for row in cells]


def test_every_table_and_column_is_explained_in_order(example: Path) -> None:
    told = {section.split("`", 2)[1]: columns_of(section) for section in TABLES.split("\n### ")[1:]}
    with contextlib.closing(opened(example)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {
            table: [
                (name, not (notnull or key))
                for _, name, _, notnull, _, key in database.execute(f"PRAGMA table_info({table})")
            ]
            for table in tables
        }
    assert told == found
    assert list(told) == tables


def test_every_view_is_explained(example: Path) -> None:
    with contextlib.closing(opened(example)) as database:
        views = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'view'")]
        assert views == re.findall(r"^\| `(\w+)` \|", VIEWS, re.MULTILINE)
        for view in views:
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({view})")]
            (told,) = re.findall(rf"^\| `{view}` \| (.*) \|$", VIEWS, re.MULTILINE)
            named = told.replace("the counts of `link_growth`", ", ".join(f"`{each}`" for each in COUNTERS))
            assert columns == re.findall(r"`(\w+)`", named)


def test_the_versions() -> None:
    assert f"`PRAGMA application_id` is {APPLICATION_ID} " in PAGE
    assert f"This page describes version {SCHEMA_VERSION}." in PAGE


@pytest.mark.parametrize("name", sorted({*_EVENTS, *ORCHESTRATORS, "failed"}))
def test_every_event_is_explained(name: str) -> None:
    rows = TABLES.partition("| event | noted by |")[2].partition("\n\n")[0]
    assert f"`{name}`" in "".join(row.split("|")[1] for row in rows.splitlines()[2:])


def test_what_a_simulation_fills(simulated: Path) -> None:
    with History.open(simulated) as history:
        assert {f"`{key}`" for key in history.meta} <= set(re.findall(r"`\w+`", TABLES.partition("\n### `event`")[0]))
        used = history.resources()
        assert sorted({row[1] for row in used}) == sorted(history.nodes)
        assert {row[2:] for row in used} == {(0.0, 0, None)}
    empty = set()
    for section in TABLES.split("\n### ")[1:]:
        table = section.split("`", 2)[1]
        with contextlib.closing(opened(simulated)) as database:
            if not database.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]:
                empty.add(table)
                assert table == "channel" or re.search("Written by `namespaces`(,| and) `docker`", section)
    assert empty == {"probe", "sensor", "channel"}  # the scenario has no `shared`


@pytest.mark.parametrize("title", SQL)
def test_a_query_gives_rows(title: str, example: Path, simulated: Path) -> None:
    assert len(SQL[title].splitlines()) <= 12
    in_example, in_simulation = asked(example, title), asked(simulated, title)
    assert bool(in_example) == (title not in NOT_IN_THE_EXAMPLE)
    assert bool(in_simulation) == (title not in NOT_SIMULATED)


def test_queries_and_the_summary_agree(example: Path, simulated: Path) -> None:
    for run in (example, simulated):
        with History.open(run) as history:
            series = history.global_series("accuracy")
            found = summary(history)
        assert [(row["round"], row["accuracy"]) for row in asked(run, "Accuracy by round")] == [
            (metric.round, metric.value) for metric in series
        ]
        assert {row["link_class"]: row["bytes"] for row in asked(run, "Bytes by class of links")} == found["bytes"]
        kinds = asked(run, "Messages and bytes by kind")
        assert {row["kind"]: row["messages"] for row in kinds} == found["messages"]


def test_the_query_for_a_target_agrees_with_sweeps(example: Path) -> None:
    (row,) = asked(example, "Seconds until 80 %")
    with History.open(example) as history:
        target = reached(history, history.global_series("accuracy"), 0.8)
    assert target is not None
    assert (row["seconds"], row["round"]) == (pytest.approx(target.seconds), target.round)


def test_what_the_example_is_known_to_hold(example: Path) -> None:
    late = asked(example, "Late answers")
    with History.open(example) as history:
        assert sum(row["late"] for row in late) == len(history.events("late"))
    (overruns,) = asked(example, "Disturbances")
    assert overruns["longest"] == pytest.approx(2 * 0.8)  # the second is 0.8 s longer than the first
    longest = asked(example, "The longest rounds")
    assert longest[0]["seconds"] == pytest.approx(3.9)  # of 4 s, ended 0.1 s before the next
    assert [row["seconds"] for row in asked(example, "The longest gaps")] == pytest.approx([4.0] * 10)
    assert {row["action"] for row in asked(example, "What a fault cost")} == {
        "crash",
        "slow",
        "partition",
        "disconnect",
    }


def test_the_program_of_the_page(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(example, tmp_path / "runs" / example.name)
    monkeypatch.chdir(tmp_path)
    exec(PAGE.partition("```python\n")[2].partition("```")[0], {})
    assert "{'phase': 'end', 'gatherings': 1, 'abandoned': 0}" in capsys.readouterr().out


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """A run whose record is still being written."""
    with contextlib.closing(Record.create(tmp_path / "run", "{}", {})) as record:
        record.state(1.0, "cloud", "running")
        yield record.directory


@pytest.mark.programs("sqlite3")
def test_the_command_of_the_page_reads_a_running_run(running: Path) -> None:
    (line,) = re.findall(r"^    (sqlite3 .*)$", PAGE, re.MULTILINE)
    words = [str(running / DATABASE) if word.endswith(DATABASE) else word for word in shlex.split(line)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1].split() == ["running", "1"]
    assert {path.name for path in running.glob(f"{DATABASE}-*")} == {"run.db-wal", "run.db-shm"}


def test_the_directory(simulated: Path) -> None:
    listed = PAGE.partition("| file or folder |")[2].partition("\n\n")[0]
    told = {name.rstrip("/") for row in listed.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    assert {path.name for path in simulated.iterdir()} <= told
    directory = RunDirectory(simulated)
    paths = (getattr(directory, name) for name in vars(RunDirectory) if not name.startswith("_"))
    named = {path.relative_to(simulated).parts[0] for path in paths if isinstance(path, Path)}
    assert told == named | {"effective.json", "plan.json", "token", DATABASE, FOLDER}
