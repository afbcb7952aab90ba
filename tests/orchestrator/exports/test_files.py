"""Tables in files: read back by the readers of the formats, they are the rows of the run."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pandas
import pytest

from orchestrator.errors import PlaceError
from orchestrator.exports.base import AlreadyThereError
from orchestrator.exports.files import csv_store, parquet_store
from orchestrator.record.writer import Record
from orchestrator.results.history import History
from orchestrator.results.tables import TABLES
from orchestrator.verbs.python_interface import Run
from tests.orchestrator.example_run import Example

JSON = {"data", "nodes", "planned"}  # columns with JSON text


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(Example(rounds=3).build(tmp_path_factory.mktemp("runs") / "dropout-20260504-093000-abcd"))


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the record as JSON gives it back: tuples are lists."""
    back: dict[str, Any] = json.loads(json.dumps(row))
    return back


def test_csv(run: Run, tmp_path: Path) -> None:
    with run.history() as history:
        place = Path(csv_store(str(tmp_path / "out")).write(history))
    assert place == tmp_path / "out" / run.path.name
    assert sorted(path.name for path in place.iterdir()) == sorted(f"{name}.csv" for name in TABLES)
    for name in ("events", "faults", "links", "probes", "rounds", "states", "traffic"):
        with (place / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            found = list(csv.DictReader(file))
        assert [{key: cell(key, value) for key, value in row.items()} for row in found] == [
            {key: value if key in JSON else "" if value is None else str(value) for key, value in plain(row).items()}
            for row in run.rows(name)
        ]
    accuracy = pandas.read_csv(place / "accuracy.csv")
    assert accuracy[accuracy.scope == "global"].value.iloc[-1] == run.summary["accuracy"]["global"]


def cell(key: str, value: str) -> Any:
    return json.loads(value) if key in JSON else value


def test_parquet(run: Run, tmp_path: Path) -> None:
    with run.history() as history:
        place = Path(parquet_store(str(tmp_path)).write(history))
    assert sorted(path.name for path in place.iterdir()) == sorted(f"{name}.parquet" for name in TABLES)
    for name in ("events", "faults", "links", "metrics", "probes", "resources", "rounds", "states", "traffic"):
        table = pandas.read_parquet(place / f"{name}.parquet", dtype_backend="pyarrow")
        assert "object" not in set(map(str, table.dtypes))
        found = [{key: typed(key, value) for key, value in row.items()} for row in table.to_dict("records")]
        assert found == [plain(row) for row in run.rows(name)]
    links = pandas.read_parquet(place / "links.parquet")
    assert links.groupby("link_class").delivered_bytes.sum().to_dict() == run.summary["bytes"]
    assert list(pandas.read_parquet(place / "checks.parquet").verdict) == [c["verdict"] for c in run.summary["checks"]]


def typed(key: str, value: Any) -> Any:
    if key in JSON:
        return json.loads(value)
    return None if value is pandas.NA else value


def test_a_table_without_rows_keeps_its_columns_and_types(tmp_path: Path) -> None:
    Example(rounds_made=0, ending=None, with_faults=False).build(tmp_path / "run")
    with History.open(tmp_path / "run") as history:
        place = Path(parquet_store(str(tmp_path / "out")).write(history))
    table = pandas.read_parquet(place / "rounds.parquet", dtype_backend="pyarrow")
    assert {name: str(kind) for name, kind in table.dtypes.items()} == {
        "node": "string[pyarrow]",
        "round": "int64[pyarrow]",
        "start": "double[pyarrow]",
        "end": "double[pyarrow]",
        "abandoned": "bool[pyarrow]",
        "edge_round": "int64[pyarrow]",
    }


def test_a_value_that_is_no_number_is_not_a_missing_value(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "run", "{}", {})
    record.metric(1.0, "cloud", None, "train", "loss", math.nan)
    record.metric(2.0, "cloud", 1, "train", "loss", math.inf)
    record.close()
    with History.open(tmp_path / "run") as history:
        place = Path(csv_store(str(tmp_path / "out")).write(history))
    assert (place / "metrics.csv").read_text().splitlines()[1:] == [
        "1.0,cloud,,train,loss,NaN,1",
        "2.0,cloud,1,train,loss,inf,1",
    ]


def test_what_is_there_stays(run: Run, tmp_path: Path) -> None:
    store = csv_store(str(tmp_path))
    with run.history() as history:
        assert store.find(history) is None
        place = store.write(history)
        assert store.find(history) == place
        (Path(place) / "rounds.csv").write_text("mine")
        assert parquet_store(str(tmp_path)).write(history) == place  # another format does not disturb it
        with pytest.raises(AlreadyThereError, match=rf"{run.path.name} is already in {place}: remove"):
            store.write(history)
    assert (Path(place) / "rounds.csv").read_text() == "mine"


def test_a_failed_export_leaves_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(csv, "writer", full)
    with run.history() as history, pytest.raises(PlaceError, match=r"cannot be written \(No space left"):
        csv_store(str(tmp_path / "out")).write(history)
    assert list((tmp_path / "out").iterdir()) == []
