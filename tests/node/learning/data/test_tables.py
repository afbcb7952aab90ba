"""The rows of docs/reference/data.md about tables, tried with files as `datasets`, pandas and spreadsheets write them.

The metadata below are those of `datasets` 4.8.5. Where it is installed, files that it has written itself are read too.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, ipc, parquet

from node.catalogue.datasets import Columns
from node.extras import install_command
from node.learning.data.datasets import Prepared, prepare
from node.learning.errors import DataError
from tests.test_data_page import PAGE, plain, saved

Write = Callable[[Path], object]
Case = tuple[Mapping[str, Any], Columns | None, str | Callable[[Prepared], object]]

NAMES = ["cat", "dog"]
X = [[0.5, 1.5], [2.5, 3.5]] * 5
ARRAY = pa.field("m", pa.list_(pa.list_(pa.uint8())), metadata={"ARROW:extension:name": "Array2DExtensionType"})


def rows(first: str) -> list[str]:
    """The first column of the table of the section on tables that has this heading."""
    section = PAGE.partition("\n## Tables: ")[2].partition("\n## ")[0]
    table = section.partition(f"\n| {first} | result |\n")[2].partition("\n\n")[0]
    return [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()][1:]


def table(columns: Mapping[str, Any], classes: Sequence[str] = ()) -> pa.Table:
    """Columns, with the metadata of `datasets` for those of class labels."""
    features = {name: {"names": NAMES, "_type": "ClassLabel"} for name in classes}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.table(columns).replace_schema_metadata(metadata)


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes | str):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    elif path.suffix == ".arrow":
        with ipc.new_stream(path, content.schema) as stream:
            stream.write_table(content)
    elif path.suffix == ".parquet":
        parquet.write_table(content, path)
    else:
        csv.write_csv(content, path)


def opened(files: Mapping[str, Any], columns: Columns | None, place: Path) -> Prepared:
    for name, content in files.items():
        write(place / "set" / name, content)
    form = "csv" if all(name.endswith(".csv") for name in files) else "hf"
    only = f"/{next(iter(files))}" if len(files) == 1 else ""
    return prepare(f"{form}:set{only}", place / "cache", [place], download=False, columns=columns)


def read(prepared: Prepared, name: str) -> list[Any]:
    found: list[Any] = prepared.array(name).tolist()
    return found


def numbered(count: int, start: int = 0) -> pa.Table:
    """Rows whose input is twice their number, with the labels 0 and 1 in turn."""
    return table(
        {"x": pa.array([2.0 * (row + start) for row in range(count)]), "label": [row % 2 for row in range(count)]}
    )


def of(**columns: Any) -> dict[str, pa.Table]:
    """A file of ten rows with the target `label`, unless another is given."""
    return {"a.parquet": table({"label": [0, 1] * 5} | columns)}


def labelled(values: Any, **columns: Any) -> dict[str, pa.Table]:
    return {"a.parquet": table({"x": pa.array([0.5] * len(values)), "t": values} | columns)}


def first(name: str, expected: Any) -> Callable[[Prepared], object]:
    """Whether the first training sample is as expected. Ten rows are divided by the permutation of seed 0, which ends
    with 8 and 1: they are the test part, and rows 0, 2 and 3 are the first training samples."""
    return lambda prepared: prepared.array(name)[0].tolist() == expected


TRAIN, TESTED = numbered(4), numbered(2, 10)
GREY, COLOUR = saved(plain("L", 9)), saved(plain("RGB", (1, 2, 3)))
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def divided(prepared: Prepared) -> bool:
    return read(prepared, "x_train") == [[0], [2], [4], [6]] and read(prepared, "x_test") == [[20], [22]]


FILES: dict[str, Sequence[Case]] = {
    "`train` and `test` in their names, or in those of folders": [
        ({"train/data-00000-of-00001.arrow": TRAIN, "test/data-00000-of-00001.arrow": TESTED}, None, divided),
        (
            {
                "data/train-00000-of-00002.parquet": TRAIN[:3],
                "data/train-00001-of-00002.parquet": TRAIN[3:],
                "data/test-00000-of-00001.parquet": TESTED,
                "README.md": "# About",
            },
            None,
            divided,
        ),
        ({"default/train/0000.parquet": TRAIN, "default/test/0000.parquet": TESTED}, None, divided),
        ({"train.csv": TRAIN, "test.csv": TESTED}, None, divided),
    ],
    "without `test`: `validation`, `valid`, `val` or `dev`": [
        ({"train.parquet": TRAIN, f"{name}.parquet": TESTED}, None, divided)
        for name in ("validation", "valid", "val", "dev")
    ],
    "one table": [
        (
            files,
            None,
            lambda data: (
                read(data, "x_test") == [[2], [16]]
                and read(data, "x_train") == [[0], [4], [6], [8], [10], [12], [14], [18]]
            ),
        )
        for files in (
            {"a.csv": numbered(10)},
            {"a.csv": 'x;"label"\n' + "".join(f"{2 * n};{n % 2}\n" for n in range(10))},
            {"a.csv": "x\tlabel\n" + "".join(f"{2 * n}\t{n % 2}\n" for n in range(10))},
            {"a.arrow": numbered(10)},
            {"train.parquet": numbered(10), "b.json": "{}"},
        )
    ],
    "one table with `split: in-order`": [
        ({"a.csv": numbered(10)}, Columns(split="in-order"), lambda data: read(data, "x_test") == [[16], [18]]),
    ],
    "one table with `split: by-subject`": [
        (
            {"a.parquet": numbered(10).append_column("who", pa.array(list("aabbccddee")))},
            Columns(subject="who", split="by-subject"),
            lambda data: len(set(read(data, "test_subjects"))) == 1 and len(read(data, "x_test")) == 2,
        ),
        ({"train.csv": TRAIN, "test.csv": TESTED}, Columns(split="in-order"), r"has a test part"),
    ],
    "a part that `test` names": [
        ({"train.csv": TRAIN, "test.csv": TRAIN, "validation.csv": TESTED}, Columns(test="validation"), divided),
        ({"train.csv": TRAIN, "test.csv": TRAIN}, Columns(test="dev"), "no files of train and dev"),
        ({"a.csv": TRAIN}, Columns(test="dev"), r"a.csv: is one table.*dev"),
    ],
    "other parts, such as `unsupervised`; `cache-*.arrow`": [
        (
            {"train.arrow": TRAIN, "test.arrow": TESTED, "unsupervised.arrow": TRAIN, "cache-1train.arrow": TRAIN},
            None,
            divided,
        )
    ],
    "files of one part in several folders": [
        ({"de/train.parquet": TRAIN, "en/train.parquet": TRAIN}, None, r"set: has files.*part in several")
    ],
    "several tables without `train` in their names": [
        ({"a.parquet": TRAIN, "test.parquet": TESTED}, None, "set: needs one table, or train"),
        ({"README.md": "# About", "train.json": "{}"}, None, "set: needs one table, or train"),
    ],
    "broken file, other suffix": [
        ({"a.parquet": "no parquet"}, None, "a.parquet: cannot be read as parquet: "),
        ({"a.arrow": b"\xff\xff\xff\xff\x10"}, None, "a.arrow: cannot be read as arrow: "),
        ({"a.csv": "x,label\n1,0\n2\n"}, None, "a.csv: line 3 has 1 value, and the header 2"),
        (
            {"a.csv": "x,label\n\n1,0\n2,1,5,7\n"},
            None,
            "a.csv: line 4 has 4 values, and the header 2, separated by commas",
        ),
        ({"a.csv": "5.1,3\n4.9,2\n"}, None, r"a.csv: line 1.*number 5.1 where"),
        (
            {"a.csv": b"x,label\n1,\xff\n"},
            None,
            r"a.csv: is not UTF-8.*line 2",
        ),
        ({"a.xlsx": "PK"}, None, r"a.xlsx: is no table.*suffix"),
    ],
    "no rows": [
        ({"a.csv": "x,label\n"}, None, r"a.csv: has no rows in train"),
        ({"train.parquet": TRAIN, "test.parquet": TESTED[:0]}, None, "set: has no rows in train"),
    ],
}
INPUTS: dict[str, Sequence[Case]] = {
    "pictures: `Image`, or files in bytes": [
        (
            of(image=pa.array([{"bytes": GREY, "path": None}] * 10, IMAGE), writer=["w"] * 10),
            None,
            lambda data: data.shape == (1, 4, 5) and (data.array("x_train") == 9).all(),
        ),
        (of(image=[COLOUR] * 10), None, lambda data: data.array("x_test")[1, :, 0, 0].tolist() == [1, 2, 3]),
        (of(image=[GREY] * 9 + [b"no picture"]), None, r"column 'image', row 10.*not.*readable"),
    ],
    "lists of one length: `Array2D`, `Array3D`, `Sequence`": [
        (
            {
                "a.arrow": pa.table(
                    [pa.array([[[1, 2], [3, 4]]] * 10, ARRAY.type), pa.array([0, 1] * 5)],
                    pa.schema([ARRAY, ("label", pa.int64())]),
                )
            },
            None,
            first("x_train", [[[1, 2], [3, 4]]]),
        ),
        (of(s=X), None, first("x_train", [0.5, 1.5])),
        (of(s=pa.array(X, pa.list_(pa.float64(), 2))), None, first("x_train", [0.5, 1.5])),
        (of(s=[[3, 1, 2]] * 10), None, lambda data: data.tokens and read(data, "x_train")[0] == [3, 1, 2]),
    ],
    "lists of different lengths": [(of(s=[[1.5]] * 9 + [[1.5, 2.5]]), None, "column 's' has lists of different")],
    "numbers and truth values": [
        (
            of(a=pa.array([1, 2] * 5, pa.int16()), b=[True, False] * 5, c=[0.5] * 10),
            None,
            first("x_train", [1, 1, 0.5]),
        ),
    ],
    "numbers as texts, such as `1.5`, `-2.5E-03`": [
        (of(a=["1.5", "-2.5E-03", "1.5", "7", "7"] * 2), None, first("x_train", [1.5])),
    ],
    "decimal commas between semicolons or tabs": [
        ({"a.csv": "x;label\n" + "1,5;0\n2;1\n" * 5}, None, first("x_train", [1.5])),
        ({"a.csv": "x\tlabel\n" + "1,5\t0\n2\t1\n" * 5}, None, first("x_train", [1.5])),
    ],
    "both decimal points and commas; separators of thousands": [
        ({"a.csv": "x;label\n1,5;0\n2.5;1\n3,5;1\n4;0\n"}, None, r"'2.5', a number.*point, and others"),
        ({"a.csv": "x;y1;label\n1,5;1.200;0\n2;300;1\n"}, None, r"'1.200', a number.*point, and others"),
        ({"a.csv": 'x,label\n"1,200",0\n"2,500",1\n'}, None, "'1,200', a number with a comma"),
    ],
    "percent signs, currencies, units, bounds or other marks at numbers": [
        (of(a=["5%", "7%"] * 5), None, r"a.parquet: row 1.*column 'a'.*'5%'"),
    ],
    "a few texts in a column of numbers": [
        (of(a=["5", "7", "9", "many", "3"] * 2), None, r"row 4.*column 'a' is 'many'"),
    ],
    "numbers that float32 cannot distinguish, such as seconds since 1970": [
        (of(a=[1_700_000_000 + 7 * row for row in range(10)]), None, "column 'a' has 10 different values"),
    ],
    "texts and class labels; numbers in a dictionary of Parquet": [
        (of(a=["b", "a", "c", "a", "a"] * 2, n=[7] * 10), None, first("x_train", [0, 1, 0, 7])),  # a, b, c and n
        (of(a=pa.array(["b", "a"] * 5).dictionary_encode()), None, first("x_train", [0, 1])),
        (of(a=pa.array(["2", "1"] * 5).dictionary_encode()), None, first("x_train", [0, 1])),
        ({"a.parquet": table({"x": [1, 0] * 5, "t": [0.5] * 10}, ["x"])}, Columns("t"), first("x_train", [0, 1])),
    ],
    "over 100 different texts": [
        (
            {"a.parquet": table({"x": [f"kind {row % 101}" for row in range(102)], "label": [0] * 102})},
            None,
            "column 'x' has 101 different values; name others in data.columns.inputs",
        ),
    ],
    r"missing value: empty, `?`, `\N`, NA, NaN or null; among numbers also None or `-`": [
        *(
            (
                {"a.csv": f"age,label\n3,0\n{empty},1\n"},
                None,
                r"a.csv: row 2 \(line 3\).*'age'",
            )
            for empty in ("NA", "NaN", "null", "?", r"\N", "None", "-")
        ),
        (
            {"a.csv": "colour,age,label\nred,3,0\n,4,1\n"},
            None,
            r"a.csv: row 2 \(line 3\).*'colour'",
        ),
        (
            {"train.csv": TRAIN, "test.csv": "x,label\n1,\n"},
            None,
            r"row 1.*\(line 2 of test.csv\).*'label'",
        ),
        ({"train.csv": TRAIN, "test.csv": "label\n1\n"}, None, r"row 1 of test.*no value.*'x'"),
        (of(x=[1.5] * 9 + [float("nan")]), None, r"a.parquet: row 10.*no value.*'x'"),
        (of(s=[[1.5, 2.5]] * 3 + [[1.5, None]] + [[1.5, 2.5]] * 6), None, r"row 4.*no value.*'s'"),
    ],
    "dates and times, also as texts; other types; several columns of lists": [
        (
            {"a.csv": "day,label\n" + "2026-01-01,0\n" * 10},
            None,
            "column 'day' is '2026-01-01', a date",
        ),
        (
            {"a.csv": "at,label\n" + "".join(f"3.{day}.2026 12:00,0\n" for day in range(1, 9))},
            None,
            "'at' is '3.1.2026 12",
        ),
        (of(a=X, b=X), None, r"data.columns.inputs: a, b"),
        (of(a=X, b=[1] * 10), Columns(inputs=["a", "b"]), r"column 'a' is list<.*>, and not"),
    ],
    "column that is missing, or has the name of another": [
        (of(x=[1.5] * 10), Columns(inputs=["y"]), "is no column 'y'"),
        ({"a.csv": "x,x,label\n1,2,0\n"}, None, r"a.csv: the header.*name 'x'"),
    ],
    "column without a name, as an index of pandas or R; `Unnamed: 0`, `__index_level_0__`": [
        (of(x=[1.5] * 10, __index_level_0__=[3] * 10), None, first("x_train", [1.5])),
        (of(__index_level_0__=[3] * 10), Columns(inputs=["__index_level_0__"]), first("x_train", [3])),
    ],
    "0, 1, 2, … or 1, 2, 3, … in order": [
        (of(x=[1.5] * 10, a=list(range(10)), b=list(range(1, 11))), None, first("x_train", [1.5])),
        (of(a=list(range(10))), Columns(inputs=["a"]), first("x_train", [0])),
        (of(a=list(range(10))), None, r"no column is left.*'a'"),
    ],
    "a text or, under a name such as `id`, a whole number that is different in each row": [
        (
            of(x=[1.5] * 10, a=list("abcdefghij"), user_id=[row * row for row in range(10)]),
            None,
            first("x_train", [1.5]),
        ),
    ],
    "no values": [(of(x=[1.5] * 10, a=pa.array([None] * 10, pa.float64())), None, first("x_train", [1.5]))],
}
TARGET: dict[str, Sequence[Case]] = {
    "class labels": [
        ({"a.parquet": table({"x": [0.5] * 10, "kind": [1, 0] * 5, "y": [0] * 10}, ["kind"])}, None,
         lambda data: data.label_names == ("cat", "dog") and read(data, "y_train")[:3] == [1, 1, 0]),
        ({"a.parquet": table({"x": [0.5] * 10, "t": [-1] + [0] * 9}, ["t"])}, None, r"label -1 at y_train\[0\]"),
    ],
    "texts, truth values, whole numbers": [
        (labelled(["no", "yes"] * 5), Columns("t"),
         lambda data: data.label_names == ("no", "yes") and read(data, "y_train")[:3] == [0, 0, 1]),
        (labelled([True, False] * 5), Columns("t"), first("y_train", 1)),
        (labelled([8, 3, 5, 8, 3] * 2), Columns("t"),
         lambda data: data.label_names == ("3", "5", "8") and read(data, "y_train")[:3] == [2, 1, 2]),
    ],
    "numbers with a decimal point, or `task: regression`": [
        ({"a.csv": "x,price\n" + "1,2.0\n" * 10}, Columns("price"), lambda data: data.task == "regression"),
        (labelled([250_000] * 10), Columns("t", task="regression"), first("y_train", [250_000])),
        (labelled([float("nan")] + [1.5] * 9), Columns("t"), r"row 1.*no value.*'t'"),
    ],
    "floats with `task: classification`": [
        (labelled([1.5, 0.5] * 5), Columns("t", task="classification"), first("y_train", 1))
    ],
    "lists of one length": [
        (labelled([[1, 0, 1], [0, 0, 0]] * 5), Columns("t", ["x"]), lambda data: data.task == "multi-label"),
        (labelled(X), Columns("t", ["x"]), first("y_train", [0.5, 1.5])),
    ],
    "over 100 different texts or whole numbers": [
        (labelled(list(range(101))), Columns("t"), "column 't' has 101 different values; set data.columns.task"),
    ],
    "pictures, dates; texts with `task: regression`": [
        (labelled([GREY] * 10), Columns("t", ["x"]), "column 't' is binary, and not"),
        ({"a.csv": "x,t\n" + "1,2026-01-01\n" * 10}, Columns("t"), "column 't' is '2026-01-01', a date"),
        (labelled(["a"] * 10), Columns("t", task="regression"), "column 't' has no numbers"),
    ],
    "no target to be found": [
        (labelled([0] * 10), None, r"data.columns.target: x, t"),
        (of(label2=[0] * 10, Y=[0] * 10), None, r"data.columns.target: label, label2, Y"),
    ],
}  # fmt: skip
CASES = {"files": FILES, "inputs": INPUTS, "target": TARGET}


@pytest.mark.parametrize(("kind", "row"), [(kind, row) for kind in CASES for row in rows(kind)])
def test_tables(kind: str, row: str, tmp_path: Path) -> None:
    for index, (files, columns, check) in enumerate(CASES[kind][row]):
        if isinstance(check, str):
            with pytest.raises(DataError, match=check):
                opened(files, columns, tmp_path / str(index))
        else:
            assert check(opened(files, columns, tmp_path / str(index))), index


def test_every_case_has_its_row() -> None:
    assert {kind: list(cases) for kind, cases in CASES.items()} == {kind: rows(kind) for kind in CASES}


def test_people_have_the_same_numbers_in_both_parts(tmp_path: Path) -> None:
    who = {"train.parquet": (["zoe", "ann", "zoe", "bob"], TRAIN), "test.parquet": (["bob", "ann"], TESTED)}
    files = {name: part.append_column("who", pa.array(names)) for name, (names, part) in who.items()}
    found = opened(files, Columns(subject="who"), tmp_path)
    assert (read(found, "subjects"), read(found, "test_subjects")) == ([2, 0, 2, 1], [1, 0])
    assert divided(found)


def test_other_columns_are_another_data_set(tmp_path: Path) -> None:
    files = of(a=[0.5] * 10, b=[1.5] * 10)
    one, other = (opened(files, Columns(inputs=[name]), tmp_path) for name in "ab")
    assert (read(one, "x_test"), read(other, "x_test")) == ([[0.5]] * 2, [[1.5]] * 2)
    again = opened(files, Columns(inputs=["a"]), tmp_path)
    assert again.directory == one.directory


def test_what_does_not_fit_into_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.learning.data.files.available_bytes", lambda: 100_000)
    with pytest.raises(DataError, match=r"needs .* GB .* 0\.0 GB left"):
        opened({"a.csv": "x,label\n" + "123456789,1\n" * 3000}, None, tmp_path)


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=f"a.csv needs pyarrow: {re.escape(install_command('parquet'))}$"):
        opened({"a.csv": "x,label\n1,0\n"}, None, tmp_path)


def test_files_of_the_library_itself(tmp_path: Path) -> None:
    library = pytest.importorskip("datasets", reason="Hugging Face's datasets is not installed: pip install datasets")
    library.disable_progress_bars()
    features = {"m": library.Array2D((2, 2), "uint8"), "label": library.ClassLabel(names=NAMES)}
    values = {"m": [[[row, 1], [2, 3]] for row in range(4)], "label": [0, 1, 0, 1]}
    made = library.Dataset.from_dict(values, features=library.Features(features))
    library.DatasetDict(train=made, test=made.select([3, 0])).save_to_disk(tmp_path / "set")
    found = prepare("hf:set", tmp_path / "cache", [tmp_path], download=False)
    assert (found.shape, found.label_names) == ((1, 2, 2), ("cat", "dog"))
    assert found.array("x_test")[:, 0, 0, 0].tolist() == [3, 0]
    assert np.array_equal(found.array("y_train"), [0, 1, 0, 1])
