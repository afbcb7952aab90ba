"""YAML to plain data with places: what is refused, and that nothing is made before it was counted."""

from __future__ import annotations

import tracemalloc

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.scenario.language.syntax import MAX_CHARACTERS, MAX_VALUES, read_yaml
from tests.texts import containing


def refused(text: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        read_yaml(text, "f.yaml")
    return str(caught.value).splitlines()


UNREADABLE = {
    "a: 1\nb: [": "2: not readable as YAML: expected",
    "a: *x": "1: not readable as YAML: found",
    "a:\n\tb: 1": "2: not readable as YAML: a",
    "a: 1\n---\nb: 2": "2: not readable as YAML: a",
    "a: 1\nb: \x00": "2: not readable as YAML: it",
    'a: "\\UFFFFFFFF"': "1: not readable as YAML: an",
    'a: ["\\ud800"]': "1: a.0: has half of a",
    "a: &x [*x]": "1: a.0: an anchor contains itself",
    "a: &x\n  <<: *x": "1: a.<<: an anchor contains itself",
    "a: &x\n  ? *x\n  : 1": "1: a.?: an anchor contains itself",
    "[" * 5000: "1: nested too deeply: a scenario",
    "a: 1\nb: " + "[" * 50 + "]" * 50: f"2: b{'.0' * 49}: nested too deeply: a",
    "a: {<<: 5}": "1: not readable as YAML: expected",
    "a: !set {}": "1: a: the tag !set is",
    "a: !x b": "1: a: the tag !x is",
    "a: !!set {x}": "1: a: the tag !!set is",
    "a: !!binary aGk=": "1: a: the tag !!binary is",
    "a: !!map x": "1: a: the tag !!map is",
    "a: !!python/object/apply:os.getcwd []": "1: a: the tag !!python/object/apply:os.getcwd is",
    "a: [1, !!bool x]": "1: a.1: 'x' is no truth",
    "a: !!timestamp x": "1: a: 'x' is no date",
    "a: 2026-13-01": "1: a: '2026-13-01' is no date",
    "a: !!int x": "1: a: 'x' is no whole",
    'a: !!int ""': "1: a: '' is no whole number",
    "a: !!float x": "1: a: 'x' is no number",
    "a: 010": "1: a: 010 may be read",
    "a: " + "9" * 19: f"1: a: {'9' * 19} is too large",
    "a: 0x" + "f" * 200: f"1: a: 0x{'f' * 55}... is too large",
    "a: " + "9" * 10_000: f"1: a: {'9' * 57}... is too large",
    "a:\n  ? [1, 2]\n  : 3": "2: a: a key is a",
}


@pytest.mark.parametrize("text", UNREADABLE, ids=range(len(UNREADABLE)))
def test_what_cannot_be_read_is_reported_with_its_line_and_path(text: str) -> None:
    (message,) = refused(text)
    assert message.startswith(f"f.yaml:{UNREADABLE[text]}")


def test_keys_that_are_given_twice_or_are_no_texts_are_all_reported() -> None:
    assert refused("a: {b: 1,\n b: 2}\na: 3\n1: 5\n") == [
        containing("f.yaml:3: a: the key", "f.yaml:1"),
        containing("f.yaml:2: a.b: the key", "f.yaml:1"),
        containing("f.yaml:4: the key '1'", "YAML"),
    ]


def test_a_key_that_is_a_truth_value_in_yaml_1_1_is_a_text() -> None:
    assert read_yaml("on: 1\na: {off: on, yes: no}\n", "f.yaml")[0] == {"on": 1, "a": {"off": True, "yes": False}}


def test_what_merges_may_be_used_again() -> None:
    data, _ = read_yaml("a: &a {x: 1, y: 1}\nb: &b {<<: *a, x: 2}\nc: *b\nd: {<<: [*b, *a]}\n", "f.yaml")
    assert data["c"] == data["d"] == {"x": 2, "y": 1}


def test_what_yaml_reads_as_sixties_stays_a_text() -> None:
    data, _ = read_yaml("a: 1:30\nb: 1:30.5\nc: 0\nd: 0x10\ne: 0.5\nf: 1_000\n", "f.yaml")
    assert data == {"a": "1:30", "b": "1:30.5", "c": 0, "d": 16, "e": 0.5, "f": 1000}


def test_numbers_with_an_exponent_are_numbers() -> None:
    data, _ = read_yaml("a: 1e-3\nb: 2E5\nc: '1e-3'\nd: 1e3x\ne: -1.5e+2\n", "f.yaml")
    assert data == {"a": 0.001, "b": 2e5, "c": "1e-3", "d": "1e3x", "e": -150.0}


TEN = ", ".join(["%s"] * 10)
BOMBS = {  # with the line and the place where the values become more than 100,000
    "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"a{n}: &a{n} [{TEN % ((f'*a{n - 1}',) * 10)}]\n" for n in range(1, 8)): ("5", "a4.9"),
    "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{TEN % ((f'*a{n - 1}',) * 10)}]}}\n" for n in range(1, 30)): (
        "6",
        "a5.<<.4",
    ),
    "? &a0 [x, x, x, x, x, x, x, x, x, x]\n: 1\n"
    + "".join(f"? &a{n} [{TEN % ((f'*a{n - 1}',) * 10)}]\n: 1\n" for n in range(1, 8)): ("9", "?.9"),
}


@pytest.mark.parametrize("text", BOMBS, ids=["anchors", "merges", "keys"])
def test_anchors_are_counted_before_they_are_written_out(text: str) -> None:
    line, path = BOMBS[text]
    tracemalloc.start()
    (message,) = refused(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert message == containing(f"f.yaml:{line}: {path}", "more than 100,000 values")
    assert peak < 10e6


@pytest.mark.slow
def test_too_many_values_are_refused_where_they_become_too_many() -> None:
    text = "a:\n" + "- 1\n" * (MAX_VALUES + 5)
    assert refused(text)[0].startswith(f"f.yaml:{MAX_VALUES + 1}: a.{MAX_VALUES - 1}: with this it has")


def test_a_long_text_is_refused_unread() -> None:
    assert refused("[" * (MAX_CHARACTERS + 1)) == [containing("f.yaml: is larger than 1 MB", "every_round")]
