from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import RecordError
from orchestrator.record.damage import using_record
from orchestrator.record.directory import RunDirectory
from orchestrator.record.rows import ProbeResult
from orchestrator.record.schema import SCHEMA_VERSION
from orchestrator.record.writer import Record
from orchestrator.results.history import History
from orchestrator.results.question import question
from tests.orchestrator.example_run import ROUND, SETUP, Example, plan_of


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> History:
    return History.open(Example().build(tmp_path_factory.mktemp("runs") / "run"))


def begin(directory: Path, **changes: Any) -> Record:
    """A record of a run of a cloud, an edge and two devices."""
    plan = plan_of(Example(edges=1, devices_per_edge=2, with_faults=False)) | changes
    return Record.create(directory, json.dumps(plan), {})


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"holds no run.*`ps`"):
        History.open(tmp_path)


def test_not_a_database(tmp_path: Path) -> None:
    (tmp_path / "run.db").write_text("this is no database at all, only a text that is long enough")
    with pytest.raises(RecordError, match="not a database"):
        History.open(tmp_path)


def test_a_run_that_was_killed_before_its_record_had_tables(tmp_path: Path) -> None:
    (tmp_path / "run.db").touch()
    with pytest.raises(RecordError, match="killed before it started"):
        History.open(tmp_path)


def test_a_database_of_another_program(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "run.db").execute("CREATE TABLE cake (layers)").connection.close()
    with pytest.raises(RecordError, match="another program"):
        History.open(tmp_path)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (SCHEMA_VERSION + 1, r"7, this version reads 6\): upgrade"),
        (2, r"\(it has schema 2, .*\)"),
    ],
)
def test_a_record_of_another_version(schema: int, message: str, tmp_path: Path) -> None:
    record = begin(tmp_path)
    record._connection.execute(f"PRAGMA user_version = {schema}")
    record.close()
    with pytest.raises(RecordError, match=message):
        History.open(tmp_path)


def test_probes_of_a_record_without_the_later_columns(tmp_path: Path) -> None:
    """The columns came later, at the end of the table. A resumed run adds them."""
    probe = ProbeResult(1.0, "edge-0", "cloud", "edge-cloud", "rtt", 0.08, 0.093, 0.09, 0.1, "pass", "", "emulated")
    record = begin(tmp_path)
    record.probe(probe)
    record.close()
    with closing(sqlite3.connect(tmp_path / "run.db")) as database:
        for column in ("measured_in", "saturated", "busy", "expected"):
            database.execute(f"ALTER TABLE probe DROP COLUMN {column}")
        database.commit()
    assert History.open(tmp_path).probes() == [probe]
    resumed = Record.resume(tmp_path, 2.0, "failed", 1)
    later = probe._replace(expected=0.092, busy=0.5, saturated=False)
    resumed.probe(later)
    resumed.close()
    assert History.open(tmp_path).probes() == [probe, later]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        (
            "DROP TABLE metric; CREATE VIEW metric AS WITH RECURSIVE r(t) AS (SELECT 1 UNION ALL SELECT t + 1 FROM r)"
            " SELECT t, 'cloud' AS node, 1 AS round, 'global' AS scope, 'accuracy' AS name, 0.5 AS value FROM r",
            "view metric",
        ),
        (
            "DROP TABLE event; CREATE VIRTUAL TABLE event USING fts5(t, node, name, round, edge_round, data)",
            "table event",
        ),
        ("CREATE TRIGGER later BEFORE DELETE ON outcome BEGIN SELECT 1; END", "trigger later"),
    ],
)
def test_what_stands_in_the_place_of_a_table_is_not_read(tmp_path: Path, changes: str, found: str) -> None:
    begin(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "run.db")) as database:
        database.executescript(changes)
    with pytest.raises(RecordError, match=f"{found}, which no run makes"):
        History.open(tmp_path)


def test_a_schema_that_is_no_text(tmp_path: Path) -> None:
    begin(tmp_path).close()
    path = tmp_path / "run.db"
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE event", b"CREATE TABLE \xf2vent"))
    with pytest.raises(RecordError, match="cannot be read"):
        History.open(tmp_path)


def test_what_was_read_of_a_damaged_record_is_used_with_care(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"cannot be read \(KeyError: 'verdict'"), using_record(tmp_path):
        _ = dict[str, str]()["verdict"]


def test_a_damaged_plan(tmp_path: Path) -> None:
    begin(tmp_path).close()
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(RecordError, match=r"plan\.json cannot be read"):
        _ = History.open(tmp_path).plan


def test_status(tmp_path: Path) -> None:
    record = begin(tmp_path)
    history = History.open(tmp_path)
    with RunDirectory(tmp_path).held():
        seen = [history.status]
    seen.append(history.status)
    assert seen == ["running", "crashed"]
    record.close()


def test_a_run_that_ends_while_its_status_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = begin(tmp_path)

    def ending(_: RunDirectory) -> None:
        record.outcome(5.0, {"ended": "rounds", "error": None})

    monkeypatch.setattr(RunDirectory, "holder", ending)
    assert History.open(tmp_path).status == "finished"
    record.close()


def test_question_is_the_scenarios_first_comment(tmp_path: Path) -> None:
    begin(tmp_path).close()
    (tmp_path / "scenario.yaml").write_text("\n# Does it keep\n# its accuracy?\nname: x\n# not this\n")
    assert question(History.open(tmp_path)) == "Does it keep its accuracy?"


def test_no_question(tmp_path: Path) -> None:
    begin(tmp_path).close()
    assert question(History.open(tmp_path)) == ""
    (tmp_path / "scenario.yaml").write_text("name: x\n# later\n")
    assert question(History.open(tmp_path)) == ""


def test_rounds_of_the_example(finished: History) -> None:
    cloud = [each for each in finished.rounds() if each.node == "cloud"]
    assert [each.round for each in cloud] == list(range(1, 11))
    assert cloud[0].start == SETUP
    assert cloud[0].end == pytest.approx(SETUP + ROUND - 0.1)
    assert finished.rounds_done() == finished.rounds_planned == 10
    assert finished.training_began == SETUP
    assert finished.training_ended == pytest.approx(SETUP + 10 * ROUND - 0.1)


def test_rounds_that_are_abandoned_unfinished_or_restarted(tmp_path: Path) -> None:
    record = begin(tmp_path)
    phases = [(1, "start"), (1, None), (1, "end"), (2, "start"), (2, "start"), (2, "end"), (3, "start")]
    for t, (round, phase) in enumerate(phases):
        name, data = ("round", {"phase": phase}) if phase else ("round_abandoned", {"answered": 0})
        record.event(float(t), "cloud", name, round, data)
    record.flush()
    history = History.open(tmp_path)
    told = [(each.round, each.start, each.end, each.abandoned) for each in history.rounds()]
    assert told == [(1, 0.0, 2.0, True), (2, 3.0, None, False), (2, 4.0, 5.0, False), (3, 6.0, None, False)]
    assert history.rounds_done() == 2
    assert history.training_began == 0.0
    record.close()


def test_edge_rounds_stand_next_to_the_rounds_that_they_belong_to(tmp_path: Path) -> None:
    record = begin(tmp_path)
    for edge_round in (1, 2, 3, 4):  # two in each round; the third is abandoned
        data = {"edge_round": edge_round}
        for t, (name, phase) in enumerate((("round", "start"), ("round_abandoned", ""), ("round", "end"))):
            if name == "round" or edge_round == 3:
                record.event(edge_round + t / 10, "edge-0", name, (edge_round + 1) // 2, data | {"phase": phase})
    record.flush()
    rounds = History.open(tmp_path).rounds()
    assert [(each.round, each.edge_round, each.abandoned) for each in rounds] == [
        (1, 1, False),
        (1, 2, False),
        (2, 3, True),
        (2, 4, False),
    ]
    assert all(each.end is not None for each in rounds)
    assert str(rounds[2]) == "2 (edge round 3)"
    record.close()


def test_rounds_that_only_a_leaders_checkpoint_knows_are_done(tmp_path: Path) -> None:
    record = begin(tmp_path)
    for node in ("edge-0", "edge-1"):
        record.event(0.0, node, "round", 1, {"phase": "start"})
    record.close()  # as it was killed: what happened since is lost
    nodes = json.loads((tmp_path / "plan.json").read_text())["nodes"]
    plan = {"nodes": [node | {"name": f"edge-{index}", "leads": index < 2} for index, node in enumerate(nodes)]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    again = Record.resume(tmp_path, 1.0, "killed", 0)  # edge-1 had no checkpoint
    again.event(1.0, "edge-0", "resumed", 2, {})
    for round in (1, 2):
        for phase in ("start", "end"):
            again.event(2.0, "edge-1", "round", round, {"phase": phase})
    again.flush()
    assert History.open(tmp_path).rounds_done() == 2
    again.close()


def test_global_accuracy_is_the_leaders(finished: History) -> None:
    rows = finished.global_series("accuracy")
    assert [row.round for row in rows] == list(range(1, 11))
    assert {row.node for row in rows} == {"cloud"}
    assert set(finished.edge_series("accuracy")) == {"edge-0", "edge-1", "edge-2"}


def test_global_accuracy_of_several_leaders_is_their_mean(tmp_path: Path) -> None:
    plan = plan_of(Example(edges=2, devices_per_edge=1, with_faults=False))
    for node in plan["nodes"]:
        node["leads"] = node["tier"] == "edge"
    record = Record.create(tmp_path, json.dumps(plan), {})
    record.metric(4.0, "edge-0", 1, "global", "accuracy", 0.25)
    record.metric(5.0, "edge-1", 1, "global", "accuracy", 0.75)
    record.metric(5.0, "edge-1", 1, "own", "accuracy", 0.9)
    record.flush()
    history = History.open(tmp_path)
    assert [(row.t, row.round, row.value) for row in history.global_series("accuracy")] == [(5.0, 1, 0.5)]
    assert history.edge_series("accuracy")["edge-1"][0].value == 0.75  # the common test set comes first
    record.close()


def test_faults_of_the_example(finished: History) -> None:
    crash, slow, partition, *disconnects = finished.faults()
    assert (crash.action, crash.target, crash.start, crash.end) == ("crash", "device-1-2", SETUP + 9, SETUP + 16)
    assert slow.nodes == ("device-2-3",)
    assert partition.nodes == ("cloud", "edge-0")
    assert len(disconnects) == 18
    assert all(span.start is not None and span.round == span.planned["round"] for span in disconnects)


def test_a_manual_fault_comes_after_the_planned_ones(tmp_path: Path) -> None:
    history = History.open(Example(by_hand=True).build(tmp_path / "run"))
    *planned, made = history.faults()
    assert {span.by for span in planned} == {""}
    assert (made.id, made.by, made.action, made.nodes) == (22, "ada", "crash", ("device-0-0",))
    assert (made.start, made.end, made.planned["duration"]) == (SETUP + 12, SETUP + 15, 3.0)


def test_a_fault_that_was_not_reached_and_one_that_was_skipped(tmp_path: Path) -> None:
    blank: dict[str, Any] = {"between": None, "at": None, "round": None, "links": []}
    faults = [
        {"id": 1, "action": "pause", "node": "edge-0", **blank},
        {"id": 2, "action": "crash", "node": "edge-0", **blank},
    ]
    record = begin(tmp_path, faults=faults)
    record.fault(4.0, 1, "pause", "edge-0", "skipped", 2, "edge-0 is not running but crashed")
    record.flush()
    skipped, later = History.open(tmp_path).faults()
    assert (skipped.start, skipped.skipped, skipped.round) == (None, 4.0, 2)
    assert skipped.detail == "edge-0 is not running but crashed"
    assert (later.start, later.skipped, later.target) == (None, None, "edge-0")
    record.close()


def test_faults_are_read_again_only_if_the_record_has_changed(tmp_path: Path) -> None:
    record = Record.create(tmp_path, json.dumps(plan_of(Example())), {})
    with History.open(tmp_path) as history:
        first, again = history.faults()[0], history.faults()[0]
        assert first is again
        record.fault(3.0, first.id, first.action, first.target, "start", None, "")
        record.flush()
        assert history.faults()[0].start == 3.0
    record.close()


def test_current_states(tmp_path: Path) -> None:
    record = begin(tmp_path)
    record.state(1.0, "edge-0", "starting")
    record.state(2.0, "edge-0", "crashed", "signal 9")
    states = History.open(tmp_path).current_states()
    assert (states["edge-0"].state, states["edge-0"].detail) == ("crashed", "signal 9")
    assert states["device-0-1"].state == "planned"
    record.close()


def test_seconds_is_the_latest_moment_of_anything(tmp_path: Path) -> None:
    record = begin(tmp_path)
    assert History.open(tmp_path).seconds == 0.0
    record.event(3.0, None, "note", None, {})
    record.resources(4.5, "edge-0", 1.0, 1000)
    record.flush()
    history = History.open(tmp_path)
    assert history.seconds == 4.5
    assert history.resources()[0].pss is None
    record.close()
