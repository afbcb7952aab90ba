"""README and docs/guides/scenario.md stay true: what they show is valid, and they describe each key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from node.algorithms.registry import ALGORITHMS
from node.catalogue.datasets import DATASETS
from node.catalogue.models import MODELS
from node.catalogue.partitions import PARTITIONS
from orchestrator.planning.making import make_plan
from orchestrator.scenario.reading import parse
from orchestrator.scenario.schema import Scenario

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
WORDS = 900


def test_the_first_scenario_can_be_planned() -> None:
    (scenario,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    plan = make_plan(parse(scenario, "mine.yaml"), None)
    assert (plan.name, len(plan.nodes), len(plan.faults)) == ("mine", 7, 1)


def test_a_fresh_machine_has_the_packages_that_the_readme_names() -> None:
    (named,) = re.findall(r"^    sudo apt-get install (.*)", README, re.MULTILINE)
    assert f"PACKAGES={','.join(named.split())}\n" in (ROOT / ".ci" / "fresh-machine").read_text()


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= WORDS


@pytest.mark.parametrize("name", [*Scenario.model_fields, *ALGORITHMS, *DATASETS, *MODELS, *PARTITIONS])
def test_every_name_of_a_scenario_is_described(name: str) -> None:
    assert f"`{name}" in (ROOT / "docs/guides/scenario.md").read_text()
