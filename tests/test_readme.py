"""The README stays true: its scenario is valid, and it names every verb, scenario key, algorithm and data set."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from node.algorithms.registry import ALGORITHMS
from node.catalogue.datasets import DATASETS
from node.catalogue.models import MODELS
from node.catalogue.partitions import PARTITIONS
from orchestrator.cli import cli
from orchestrator.planning.making import make_plan
from orchestrator.scenario.reading import load, parse
from orchestrator.scenario.schema import Scenario

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def first_scenario() -> str:
    blocks = re.findall(r"(?:^    .*\n)+", README, re.MULTILINE)
    (scenario,) = [block for block in blocks if "\n    name: mine\n" in block]
    return textwrap.dedent(scenario)


def test_the_first_scenario_can_be_planned() -> None:
    plan = make_plan(parse(first_scenario(), "mine.yaml"), None)
    assert (plan.name, len(plan.nodes), len(plan.faults)) == ("mine", 7, 1)


@pytest.mark.parametrize("verb", sorted(cli.commands))
def test_every_verb_is_there_and_has_help(verb: str) -> None:
    assert re.search(rf"(orchestrator|edgebed) {verb}\b", README + (ROOT / "docs/command-line.md").read_text())
    assert cli.commands[verb].help


@pytest.mark.parametrize("name", [*Scenario.model_fields, *ALGORITHMS, *DATASETS, *MODELS, *PARTITIONS])
def test_every_name_of_a_scenario_is_there(name: str) -> None:
    assert f"`{name}" in README


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_scenarios_are_valid_and_begin_with_their_question(path: Path) -> None:
    load(path)
    first = path.read_text().splitlines()[0]
    assert first.startswith("# ")
    assert first.endswith("?") or "? " in first
