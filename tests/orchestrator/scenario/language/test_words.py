"""What a scenario may be called, and what is told of another name."""

from __future__ import annotations

import pytest

from orchestrator.errors import ScenarioError
from orchestrator.scenario.language.words import name_from
from orchestrator.scenario.reading import parse
from tests.texts import containing


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("My_Study", "my-study"),
        ("..", "my-study"),
        ("-a", "a"),
        ("wifi loss 5%", "wifi-loss-5"),
        ("Straße/é", "strae-e"),
        ("аbc", "bc"),  # the first letter is Cyrillic
        ("", "my-study"),
        ("a\\n", "a-n"),
        (f"{'x' * 39}_y", "x" * 39),
        ("x" * 300, "x" * 40),
    ],
)
def test_what_cannot_be_a_name_is_reported_in_words_with_one_that_can(name: str, suggested: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse(f"algorithm: hierfavg\nname: '{name}'\n", "f.yaml")
    shown = name if len(name) <= 60 else f"{name[:57]}..."
    assert str(caught.value) == containing(f"f.yaml:2: name: '{shown}' cannot", "most 40")
    assert parse(f"algorithm: hierfavg\nname: '{suggested}'\n", "f.yaml").name == suggested


def test_a_line_end_is_no_part_of_a_name() -> None:
    with pytest.raises(ScenarioError, match="cannot be a name"):
        parse('algorithm: hierfavg\nname: "a\\n"\n', "f.yaml")


@pytest.mark.parametrize(("file", "name"), [("My Study.yaml", "my-study"), ("x" * 300, "x" * 40), ("…", "scenario")])
def test_the_file_gives_its_name(file: str, name: str) -> None:
    assert parse("algorithm: hierfavg\n", file).name == name
    assert name_from(file.removesuffix(".yaml"), "scenario") == name
