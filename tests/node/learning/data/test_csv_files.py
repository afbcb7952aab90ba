"""CSV files in further forms, and columns that number the rows in other ways than from 0 or 1."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from node.catalogue.datasets import Columns
from node.learning.data.datasets import prepare
from node.learning.errors import DataError
from tests.node.learning.data.test_columns import ROW_NUMBERS, UNNAMED, opened

ROWS = 12


def with_column(name: str, values: list[str]) -> str:
    """A table of twelve rows with this column, a number and a class."""
    lines = [f"{value},{row * row % 7},{'no' if row % 2 else 'yes'}\n" for row, value in enumerate(values)]
    return f"{name},x,kind\n" + "".join(lines)


def became(name: str, values: list[str], place: Path) -> str:
    return dict(opened(with_column(name, values), place, Columns("kind")).columns)[name]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("n", [str(1001 + row) for row in range(ROWS)], ROW_NUMBERS),
        ("n", [str(ROWS - row) for row in range(ROWS)], ROW_NUMBERS),  # ORDER BY n DESC
        ("n", [f"{row + 7}.0" for row in range(ROWS)], ROW_NUMBERS),
        ("n", [str(3 * row + row % 2) for row in range(ROWS)], "number; it rises in each row"),
        ("n", [str(900 - 10 * row) for row in range(ROWS)], "number; it falls in each row"),
        ("n", [f"{row + 0.5}" for row in range(ROWS)], "number"),
        ("level_0", [str(3 * row + row % 2) for row in range(ROWS)], "left out: its numbers are all"),
        ("Nr.", [str(row * 5 % 13) for row in range(ROWS)], "left out: its numbers are all"),
    ],
)
def test_columns_that_may_number_the_rows(name: str, values: list[str], expected: str, tmp_path: Path) -> None:
    assert became(name, values, tmp_path).startswith(expected)


def test_a_few_rows_in_steps_of_one_are_numbers(tmp_path: Path) -> None:
    """Three temperatures may be 20, 21 and 22."""
    found = opened("t,x,label\n20,5,0\n21,3,1\n22,9,0\n", tmp_path)
    assert dict(found.columns)["t"] == "number"


def test_bars_separate_values(tmp_path: Path) -> None:
    """As SQLite's mode list and psql's unaligned output write them; commas are decimal ones."""
    content = "temp|kind\n" + "".join(f"{row},5|{'no' if row % 2 else 'yes'}\n" for row in (4, 2, 5, 1, 3, 7))
    found = opened(content, tmp_path, Columns("kind"))
    assert sorted([*found.array("x_train")[:, 0], *found.array("x_test")[:, 0]]) == [1.5, 2.5, 3.5, 4.5, 5.5, 7.5]


def test_rows_and_columns_without_any_value_are_left_out(tmp_path: Path) -> None:
    """As Excel writes them where cells were formatted. Lines are counted with them."""
    lines = [f"{row * row % 7},{'no' if row % 2 else 'yes'},,\n" for row in range(6)]
    content = "x,kind,,\n" + "".join(lines[:3]) + ",,,\n" + "".join(lines[3:]) + ",,,\n,,,\n"
    found = opened(content, tmp_path, Columns("kind"))
    assert len(found.train_labels) + len(found.test_labels) == 6
    assert [words for _, words in found.columns] == ["number", "target: 2 classes: no, yes", UNNAMED, UNNAMED]
    missing = content.replace("2,no,,", ",no,,")  # the row with 3 · 3 modulo 7, in line 6
    assert missing != content
    with pytest.raises(DataError, match=r"row 4 \(line 6\).*no.*'x'"):
        opened(missing, tmp_path, Columns("kind"))


def test_row_names_without_a_heading(tmp_path: Path) -> None:
    content = '"x","kind"\n' + "".join(f'"r{row}",{row * row},"{"ab"[row % 2]}"\n' for row in range(6))
    with pytest.raises(DataError, match=r"line 2 has 3 .* header 2, "):
        opened(content, tmp_path, Columns("kind"))
    with pytest.raises(DataError, match=r"line 7 has 3 .* header 2, "):
        opened("x,kind\n" + "1,a\n2,b\n" * 2 + "3,a\n4,5,b\n", tmp_path, Columns("kind"))


def test_two_numbers_that_single_precision_cannot_distinguish(tmp_path: Path) -> None:
    """Between 2^19 and 2^20 single precision has steps of 1/16."""
    values = [f"{1_000_000 + row % 2 / 100:.2f}" for row in range(ROWS)]
    with pytest.raises(DataError, match="column 'n' has 2 different values"):
        opened(with_column("n", values), tmp_path, Columns("kind"))


def test_a_label_of_minus_100_does_not_count(tmp_path: Path) -> None:
    """Rows 3 and 8 are left out; the others keep their classes."""
    labels = [-100 if row in (3, 8) else 10 * (row % 2) for row in range(ROWS)]
    content = "x,label\n" + "".join(f"{row * row},{label}\n" for row, label in enumerate(labels))
    found = opened(content, tmp_path, Columns(split="in-order"))
    assert (found.unlabelled, found.label_names) == (2, ("0", "10"))
    x = [*found.array("x_train")[:, 0], *found.array("x_test")[:, 0]]
    assert x == [row * row for row in range(ROWS) if row not in (3, 8)]


def test_a_test_part_without_labels_names_the_remedy(tmp_path: Path) -> None:
    """Competitions publish the test part with -1 for each label; the part for validation has labels."""
    features = {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    for part, labels in (("train", [0, 1, 0, 1]), ("validation", [1, 0, 1, 0]), ("test", [-1] * 4)):
        table = pa.table({"x": [0.5, 1.0, 2.5, 0.0], "label": labels}).replace_schema_metadata(metadata)
        parquet.write_table(table, tmp_path / f"{part}.parquet")
    with pytest.raises(DataError, match=r"column 'label' .* test part, -1"):
        prepare(f"hf:{tmp_path}", tmp_path / "cache", download=False)
    found = prepare(f"hf:{tmp_path}", tmp_path / "cache", download=False, columns=Columns(test="validation"))
    assert found.test_labels.tolist() == [1, 0, 1, 0]
