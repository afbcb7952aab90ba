r"""What became of each column of tables, as programs write them: named in the plan, or refused with line and remedy.

The ten files are those of pandas (`to_csv` with its index), R (`write.csv`, `write.csv2`), Excel in a German, an
American and a French locale, PostgreSQL (`\copy … csv header`), SQLite (`.mode csv`, `.headers on`), MySQL's `--batch`
output with `\N`, and UCI's older data sets.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from node.catalogue.datasets import Columns
from node.learning.data.datasets import Prepared, prepare
from node.learning.errors import DataError
from tests.texts import containing

NUMBER = "number"
PRICE = "target: numbers to predict"
KIND = "target: 2 classes: no, yes"
UNNAMED = containing("left out: it has no name")
ROW_NUMBERS = "left out: it numbers the rows"


def opened(content: str | bytes, place: Path, columns: Columns | None = None) -> Prepared:
    (place / "a.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    return prepare("csv:a.csv", place / "cache", [place], download=False, columns=columns)


GERMAN = "Größe;Gewicht;Preis\r\n1,5;70,25;3,9\r\n1,75;80;4,1\r\n1,6;75,5;4,0\r\n1,5;70,5;5,2\r\n1,9;95;6,5\r\n"
GERMAN_INPUTS = [[1.5, 70.25], [1.5, 70.5], [1.6, 75.5], [1.75, 80], [1.9, 95]]
TEN: dict[str, tuple[str | bytes, Columns, dict[str, str] | str]] = {
    "pandas": (
        ",a,b,colour,kind\n0,0.5,1,red,no\n1,-1.25,3,blue,yes\n2,1e-05,2,red,no\n3,2.0,7,red,yes\n4,0.0,9,blue,no\n",
        Columns("kind"),
        {"": UNNAMED, "a": NUMBER, "b": NUMBER, "colour": "category with 2 values: blue, red", "kind": KIND},
    ),
    "R": (
        '"","mpg","am","price"\n"Mazda RX4",21,TRUE,1.5\n"Datsun 710",22.8,FALSE,2.5\n"Valiant",18.1,FALSE,2\n'
        '"Duster",14.3,TRUE,3.5\n"Merc",24.4,FALSE,1.25\n',
        Columns("price"),
        {"": UNNAMED, "mpg": NUMBER, "am": "truth value", "price": PRICE},
    ),
    "R with commas": (
        '"";"mpg";"price"\n"1";21;1,5\n"2";22,8;2,5\n"3";18,1;2\n"4";14,3;3,5\n"5";24,4;1,25\n',
        Columns("price"),
        {"": UNNAMED, "mpg": NUMBER, "price": PRICE},
    ),
    "Excel, German": (
        b"\xef\xbb\xbf" + GERMAN.encode(),
        Columns("Preis"),
        {"Größe": NUMBER, "Gewicht": NUMBER, "Preis": PRICE},
    ),
    "Excel, American": (
        'id,income,share,kind\r\n1,"1,200",5%,no\r\n2,"950",7%,yes\r\n3,"2,500",9%,no\r\n4,"1,750",5%,yes\r\n',
        Columns("kind"),
        r"row 1 \(line 2\).*'income'.*'1,200'",
    ),
    "Excel, French": (
        "sep=;\r\ntaille;prix\r\n1,5;1\u202f200,50\r\n1,75;950,00\r\n1,6;2\u202f500,25\r\n1,9;1\u202f750,00\r\n",
        Columns("prix"),
        r"row 1 \(line 3\).*'prix'.*'1\\u202f200,50'",
    ),
    "PostgreSQL": (
        "id,created,amount,ok\n1,2026-01-01 10:00:00+01,12.50,t\n2,2026-01-02 11:30:00+01,8.00,f\n"
        "3,2026-01-03 09:15:00+01,7.25,t\n",
        Columns("ok"),
        r"row 1.*'created' is '2026-01-01 10:00:00\+01'",
    ),
    "SQLite": (
        'rownames,Species,"Sepal Length"\r\n1,setosa,5.1\r\n2,virginica,6.3\r\n3,setosa,4.9\r\n4,virginica,5.8\r\n',
        Columns("Species"),
        {"rownames": ROW_NUMBERS, "Species": "target: 2 classes: setosa, virginica", "Sepal Length": NUMBER},
    ),
    "MySQL": (
        "id\tage\tkind\n1\t30\tno\n2\t\\N\tyes\n3\t41\tno\n",
        Columns("kind"),
        r"a.csv: row 2 \(line 3\).*'age'",
    ),
    "UCI": (
        "age, workclass, income\n39, State-gov, <=50K\n50, Private, >50K\n38, ?, <=50K\n53, Private, >50K\n",
        Columns("income"),
        r"a.csv: row 3 \(line 4\).*'workclass'",
    ),
}


@pytest.mark.parametrize("program", TEN)
def test_tables_as_programs_write_them(program: str, tmp_path: Path) -> None:
    content, columns, expected = TEN[program]
    if isinstance(expected, str):
        with pytest.raises(DataError, match=expected):
            opened(content, tmp_path, columns)
    else:
        found = dict(opened(content, tmp_path, columns).columns)
        assert found == expected
        assert list(found) == list(expected)


def test_decimal_commas_are_numbers(tmp_path: Path) -> None:
    """In UTF-8 with a mark and in UTF-16. Excel's plain CSV has neither, and is refused."""
    for name, content in (("bom", b"\xef\xbb\xbf" + GERMAN.encode()), ("utf-16", GERMAN.encode("utf-16"))):
        (tmp_path / name).mkdir()
        found = opened(content, tmp_path / name, Columns("Preis"))
        x = np.concatenate([found.array("x_train"), found.array("x_test")])
        assert sorted(x.tolist()) == np.array(GERMAN_INPUTS, np.float32).tolist()
    with pytest.raises(DataError, match=r"UTF-8 text \(byte 2, line 1\)"):
        opened(GERMAN.encode("cp1252"), tmp_path, Columns("Preis"))


ROWS = 6


def column(values: list[str], delimiter: str = ",") -> str:
    """A table with a column of these values, and a class."""
    assert len(values) == ROWS
    return f"v{delimiter}kind\n" + "".join(
        f"{value}{delimiter}{'no' if row % 2 else 'yes'}\n" for row, value in enumerate(values)
    )


@pytest.mark.parametrize(
    ("values", "delimiter", "message"),
    [
        (["5%", "7 %", "5%", "9%", "1%", "2%"], ",", r"'5%', a number.*percent sign"),
        (["$5", "$7", "$5", "$9", "$1", "$2"], ",", r"'\$5', a number with a currency"),
        (["5 €", "7 €", "5,5 €", "9 €", "1 €", "2 €"], ";", r"'5 €', a number.*currency"),
        (["5 kg", "7 kg", "5 kg", "9 kg", "1 kg", "2 kg"], ",", r"'5 kg', a number.*unit"),
        (["5", "7", "5", "12kg", "1", "2"], ",", r"'12kg', a number.*unit kg"),
        (["5.5", "7", "5", "<0.1", "1", "2"], ",", "'<0.1', a bound, and no number"),
        (["0", "1", "2", "3+", "1", "2"], ",", r"'3\+', a number with a mark"),
        (["5.5", "7", "5", "unknown", "1", "2"], ",", r"row 4 .line 5..*'v'.*'unknown'"),
        (['"5,5"', '"7,25"', '"5,5"', '"9,0"', '"1,5"', '"2,5"'], ",", "'5,5', a number with a comma"),
        (["1.200,5", "7,2", "5,1", "9,0", "1,5", "2,5"], ";", r"'1.200,5', a number with separators.*thousands"),
        (["1.200", "950", "875", "2.500", "1.750", "3.125"], ";", r"'1.200', a number.*comma or point"),
        (
            ["1.5", "7,2", "5,1", "9,0", "1,5", "2,5"],
            ";",
            r"'1.5', a number.*point, and others",
        ),
        (["1,200", "950", "875", "2,500", "1,750", "3,125"], "\t", r"'1,200', a number.*comma or point"),
        (["1'200", "950", "875", "2'500", "1'750", "3'125"], ",", r'"1\'200", a number with separators'),
        (["(5)", "7", "5", "(9)", "1", "2"], ",", r"'\(5\)', a number in brackets"),
        (["3.1.2026", "4.1.2026", "3.1.2026", "5.1.2026", "1.1.2026", "2.1.2026"], ",", "a date or a time"),
        (["01/31/2026 10:15 PM"] * 3 + ["02/01/2026 9:00 AM"] * 3, ",", "a date or a time"),
        (["5", "7", "", "9", "1", "2"], ",", r"row 3 \(line 4\).*no.*'v'"),
        (["5", "7", "?", "9", "1", "2"], ",", r"row 3 \(line 4\).*no.*'v'"),
        (["5", "7", "None", "9", "1", "2"], ",", r"row 3 \(line 4\).*no.*'v'"),
        (
            [f"{1_700_000_000 + row}" for row in (5, 3, 1, 7, 9, 2)],
            ",",
            r"6 different values.*single precision cannot",
        ),
    ],
)
def test_numbers_are_no_categories(values: list[str], delimiter: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        opened(column(values, delimiter), tmp_path, Columns("kind"))


@pytest.mark.parametrize(
    ("values", "delimiter", "expected"),
    [
        (["1,5", "0,25", "3", "-2,5e-3", ",5", "7,0"], ";", [1.5, 0.25, 3, -2.5e-3, 0.5, 7]),
        (["1,5", "0,25", "3", "-2,5e-3", ",5", "7,0"], "\t", [1.5, 0.25, 3, -2.5e-3, 0.5, 7]),
        (["1.5", "0.25", "3", "-2.5E-03", ".5", "+7"], ";", [1.5, 0.25, 3, -2.5e-3, 0.5, 7]),
        (["0.125", "1", "2.250", "4", "5", "7"], ";", [0.125, 1, 2.25, 4, 5, 7]),
        (['"5"', '" 7"', "5 ", "9", "1", "2"], ",", [5, 7, 5, 9, 1, 2]),
    ],
)
def test_numbers_are_read(values: list[str], delimiter: str, expected: list[float], tmp_path: Path) -> None:
    found = opened(column(values, delimiter), tmp_path, Columns("kind"))
    assert dict(found.columns)["v"] == NUMBER
    x = [*found.array("x_train")[:, 0].tolist(), *found.array("x_test")[:, 0].tolist()]
    assert sorted(x) == sorted(np.array(expected, np.float32).tolist())


@pytest.mark.parametrize(
    ("values", "became"),
    [
        (["1st", "2nd", "3rd", "1st", "2nd", "3rd"], "category with 3 values: 1st, 2nd, 3rd"),
        (["18-25", "26-35", "18-25", "36+", "36+", "26-35"], "category with 3 values: 18-25, 26-35, 36+"),
        (["0", "1", "unknown", "0", "0", "1"], "category with 3 values: 0, 1, unknown"),
        (["None", "Brick", "None", "None", "Stone", "Brick"], "category with 3 values: Brick, None, Stone"),
        (["TRUE", "false", "True", "TRUE", "FALSE", "true"], "truth value"),
        (["a", "b", "a", "b", "a", "b"], "category with 2 values: a, b"),
        (["3", "3", "3", "3", "3", "3"], "number; it is the same"),
        (["4", "2", "3", "1", "6", "5"], "number; it is each number"),
    ],
)
def test_what_a_column_became(values: list[str], became: str, tmp_path: Path) -> None:
    found = opened(column(values), tmp_path, Columns("kind"))
    assert dict(found.columns)["v"].startswith(became)


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("", ["9", "3", "5", "1", "0", "7"], "it has no name"),
        ("Unnamed: 0", ["9", "3", "5", "1", "0", "7"], "it has no name"),
        ("...1", ["9", "3", "5", "1", "0", "7"], "it has no name"),
        ("anything", ["0", "1", "2", "3", "4", "5"], "it numbers the rows"),
        ("anything", ["1.0", "2.0", "3.0", "4.0", "5.0", "6.0"], "it numbers the rows"),
        ("user_id", ["9", "3", "5", "1", "0", "7"], "its numbers are all different"),
        ("car", ["a", "b", "c", "d", "e", "f"], "its texts are all different"),
        ("empty", ["", "", "", "NA", "", "NULL"], "it has no values"),
    ],
)
def test_what_is_no_input(name: str, values: list[str], reason: str, tmp_path: Path) -> None:
    lines = [f"{value},{row * row},{row % 2}" for row, value in enumerate(values)]
    found = opened("\n".join([f"{name},x,label", *lines]), tmp_path)
    assert dict(found.columns)[name].startswith(f"left out: {reason}")
    assert found.shape == (1,)


def test_a_named_input_is_one_whatever_it_holds(tmp_path: Path) -> None:
    content = "id,x,label\n" + "".join(f"{row},{row * row},{row % 2}\n" for row in range(6))
    found = opened(content, tmp_path, Columns("label", ["id"]))
    assert dict(found.columns)["x"] == containing("left out: data.columns.inputs does not")
    assert sorted(found.array("x_train")[:, 0].tolist() + found.array("x_test")[:, 0].tolist()) == [0, 1, 2, 3, 4, 5]


def test_rows_are_numbered_over_files_or_in_each(tmp_path: Path) -> None:
    for place, first in (("each", 0), ("over", 4)):
        folder = tmp_path / place
        folder.mkdir()
        for part, start, rows in (("train", 0, 4), ("test", first, 3)):
            lines = [f"{start + row},{row * row},{row % 2}\n" for row in range(rows)]
            (folder / f"{part}.csv").write_text("n,x,label\n" + "".join(lines))
        found = prepare(f"csv:{folder}", tmp_path / "cache", download=False)
        assert dict(found.columns)["n"] == ROW_NUMBERS


def test_columns_of_parquet_follow_the_same_rules(tmp_path: Path) -> None:
    """Numbers as texts are numbers, also those of databases. Dictionaries are categories, also of numbers as texts."""
    table = pa.table(
        {
            "id": pa.array(range(6)),
            "text": ["1.5", "2", "3", "1.5", "2", "3"],
            "money": pa.array(["1.50", "2.00", "3.00", "1.50", "2.00", "3.00"]).cast(pa.decimal128(10, 2)),
            "code": pa.array(["10", "20", "10", "20", "20", "10"]).dictionary_encode(),
            "label": [0, 1, 0, 1, 0, 1],
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    found = prepare("hf:a.parquet", tmp_path / "cache", [tmp_path], download=False)
    assert dict(found.columns) == {
        "id": ROW_NUMBERS,
        "text": NUMBER,
        "money": NUMBER,
        "code": "category with 2 values: 10, 20",
        "label": "target: 2 classes: 0, 1",
    }
    parquet.write_table(table.set_column(1, "text", [["5%", "2%", "3%", "5%", "2%", "3%"]]), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"row 1.*column 'text' is '5%'"):
        prepare("hf:b.parquet", tmp_path / "cache", [tmp_path], download=False)


def test_a_target_in_another_unit_is_named(tmp_path: Path) -> None:
    lines = [f"{row % 3},{1.5 * row},{3.0 * row + 1}\n" for row in (4, 2, 5, 1, 3, 7)]
    found = opened("a,euro,dollar\n" + "".join(lines), tmp_path, Columns("euro"))
    assert dict(found.columns) == {"a": NUMBER, "euro": PRICE, "dollar": containing("number", "target in another unit")}


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    """A quoted text of two lines, and an empty line."""
    content = 'note,x,label\n"two\nlines",1,0\n\n"one",,1\n"one",3,1\n'
    with pytest.raises(DataError, match=r"row 2 \(line 5\).*no.*'x'"):
        opened(content, tmp_path)


def test_splits_of_one_table(tmp_path: Path) -> None:
    """The last two of ten rows, or all rows of one person in five."""
    content = "who,x,label\n" + "".join(f"p{row % 5},{row * row},{row % 2}\n" for row in range(10))
    in_order = opened(content, tmp_path, Columns("label", ["x"], split="in-order"))
    assert in_order.array("x_test").tolist() == [[64], [81]]
    apart = opened(content, tmp_path, Columns("label", ["x"], "who", split="by-subject"))
    assert apart.subjects is not None
    assert apart.test_subjects is not None
    assert len(set(apart.test_subjects.tolist())) == 1
    assert not {*apart.subjects.tolist()} & {*apart.test_subjects.tolist()}
    assert (len(apart.subjects), len(apart.test_subjects)) == (8, 2)
    with pytest.raises(DataError, match=r"split: by-subject needs the column.*people"):
        opened(content, tmp_path, Columns("label", ["x"], split="by-subject"))


def test_the_test_part_may_be_chosen(tmp_path: Path) -> None:
    for name, first in (("train", 0), ("test", 20), ("validation", 40)):
        (tmp_path / f"{name}.csv").write_text("x,label\n" + f"{first + 5},0\n{first + 1},1\n")
    for part, first in ((None, 25), ("test", 25), ("validation", 45)):
        found = prepare(f"csv:{tmp_path}", tmp_path / "cache", download=False, columns=Columns(test=part))
        assert found.array("x_test")[0, 0] == first
    with pytest.raises(DataError, match="no files of train and dev"):
        prepare(f"csv:{tmp_path}", tmp_path / "cache", download=False, columns=Columns(test="dev"))
