"""YAML with places, and overrides on top."""

from __future__ import annotations

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.scenario.language.document import Document, override, read
from tests.texts import containing

TEXT = """\
name: demo
links: &both
  edge-cloud: wifi
  device-edge: {latency: 5ms,
                loss: 1%}
faults:
  - at: 3s
  - {at: 4s}
more:
  <<: *both
  edge-cloud: lan
"""


def document() -> Document:
    return read(TEXT, "demo.yaml")


def refused(text: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        read(text, "demo.yaml")
    return str(caught.value).splitlines()


def test_every_value_has_the_line_of_its_key() -> None:
    places = {
        ("name",): 1,
        ("links", "edge-cloud"): 3,
        ("links", "device-edge"): 4,
        ("links", "device-edge", "loss"): 5,
        ("faults", 1, "at"): 8,
    }
    for path, line in places.items():
        assert document().place(path) == f"demo.yaml:{line}"


def test_what_was_not_written_has_the_place_of_what_is_above_it() -> None:
    assert document().place(("links", "device-edge", "rate")) == "demo.yaml:4"
    assert document().place(("seed",)) == "demo.yaml"


def test_anchors_and_merge_keys_are_plain_data() -> None:
    assert document().data["more"] == {"edge-cloud": "lan", "device-edge": {"latency": "5ms", "loss": "1%"}}


@pytest.mark.parametrize(("text", "found"), [("", "nothing"), ("# no more\n", "nothing"), ("- a\n", "a list")])
def test_what_is_no_mapping_is_no_scenario(text: str, found: str) -> None:
    assert refused(text) == [containing("demo.yaml: a scenario", "mapping")]


def test_overrides_set_values_read_as_yaml() -> None:
    changed = override(document(), ["faults.1.at=9s", "name=other", "new.deep={a: [1, 2%]}"], lambda path: None)
    assert changed.data["faults"] == [{"at": "3s"}, {"at": "9s"}]
    assert changed.data["name"] == "other"
    assert changed.data["new"] == {"deep": {"a": [1, "2%"]}}
    assert changed.place(("faults", 1, "at")) == "--set faults.1.at=9s"
    assert changed.place(("new", "deep", "a")) == "--set new.deep={a: [1, 2%]}"
    assert document().data["name"] == "demo"


def test_what_an_override_makes_on_its_way_has_its_place() -> None:
    changed = override(document(), ["hardware.device.speed=2", "links.device-edge.rate=1"], lambda path: None)
    assert changed.place(("hardware",)) == changed.place(("hardware", "device")) == "--set hardware.device.speed=2"
    assert changed.place(("links", "device-edge")) == "demo.yaml:4"


def test_an_override_reaches_below_a_short_form() -> None:
    changed = override(
        document(),
        ["links.edge-cloud.latency=9ms"],
        lambda path: "profile" if path[:1] == ("links",) and len(path) == 2 else None,
    )
    assert changed.data["links"]["edge-cloud"] == {"profile": "wifi", "latency": "9ms"}


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("name", containing("--set", "path=value, e.g. --set algorithm.rounds=3")),
        ("a..b=1", containing("--set a..b=1", "path=value, e.g. --set algorithm.rounds=3")),
        ("name.x=1", containing("--set name.x=1: name.x: 'name'", "'demo'")),
        ("faults.2.at=1", containing("--set faults.2.at=1: faults.2.at: 'faults'")),
        (
            f"faults.{'9' * 5000}=1",
            containing(f"--set faults.{'9' * 5000}=1: faults.{'9' * 5000}: 'faults'"),
        ),
        ("faults.x=1", containing("--set faults.x=1: faults.x: 'faults'")),
    ],
)
def test_an_override_that_leads_nowhere_is_refused(assignment: str, expected: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        override(document(), [assignment], lambda path: None)
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("[", "expected the node content, but found '<stream end>'"),
        ("{a: !!bool x}", "a: 'x' is no truth value"),
        ("&a [*a]", "0: an anchor contains itself"),
        ("007", "007 may be read as octal"),
    ],
)
def test_an_override_with_broken_yaml_is_refused(value: str, reason: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        override(document(), [f"name={value}"], lambda path: None)
    assert str(caught.value) == containing(f"--set name={value}: name", f"YAML: {reason}")
