"""A scenario as a program gives it, a file or a mapping, and what it plans. `edgebed` exports `validate` and `plan`."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from orchestrator.errors import InventoryError, MistakeError, Problem, ScenarioError
from orchestrator.planning.hosts.inventory import Inventory
from orchestrator.planning.learning.dataset import looked_up
from orchestrator.planning.learning.shards import PreparedLabels
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.run.preparation import require_room
from orchestrator.scenario import reading
from orchestrator.scenario.language.files import text_of
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.alternatives import one_host
from orchestrator.verbs.examples import chosen
from orchestrator.verbs.plans.plan import plan_json

Given = str | os.PathLike[str] | Mapping[str, Any]
Overrides = Mapping[str, Any] | Sequence[str]

UNNAMED = Path("scenario.yaml")
"""The file name for a scenario that is a mapping. Paths in the scenario are relative to the working directory."""


@dataclass(frozen=True)
class Source:
    """The file of a scenario and its overrides; ``text`` replaces the file's content if the scenario is a mapping."""

    file: Path
    text: str | None
    overrides: list[str]

    @classmethod
    def of(
        cls,
        scenario: Given,
        overrides: Overrides,
        driver: str | None,
    ) -> Source:
        """ScenarioError if YAML has no form for the mapping, or if there is neither a file nor an example."""
        changes = written(overrides, driver)
        if isinstance(scenario, Mapping):
            return cls(UNNAMED, as_yaml(scenario), changes)
        return cls(chosen(os.fspath(scenario)), None, changes)

    def read(self) -> Scenario:
        """The checked scenario. ScenarioError lists every mistake."""
        if self.text is None:
            return reading.load(self.file, self.overrides)
        return reading.parse(self.text, str(self.file), self.overrides)

    def placed(self) -> contextlib.AbstractContextManager[None]:
        """Give errors of planning inside the body their line in the scenario."""
        return reading.placed(self.file, self.overrides, self.text)


def validate(
    scenario: Given,
    overrides: Overrides = (),
    *,
    driver: str | None = None,
) -> None:
    """Check a scenario, its data and its partition, like the command `validate`. Nothing is written or downloaded.

    The arguments are those of `up`. ScenarioError lists every mistake with its place. InventoryError and RunError if
    this host cannot run it.
    """
    source = Source.of(scenario, overrides, driver)
    planned(source)


def plan(
    scenario: Given,
    overrides: Overrides = (),
    *,
    driver: str | None = None,
) -> dict[str, Any]:
    """What `up` would do, as the command `plan --json` prints it: nodes, links, data, faults. Nothing is written.

    The arguments are those of `up`, the errors those of `validate`.
    """
    source = Source.of(scenario, overrides, driver)
    return plan_json(planned(source))


def planned(source: Source, hosts: Path | None = None) -> Plan:
    """The plan of a scenario on the data that this host has, and on the ``hosts`` of a file. Writes nothing."""
    scenario = source.read()
    folder = source.file.parent
    several_hosts = scenario.driver_kind.several_hosts
    if hosts is not None and not several_hosts:
        raise MistakeError(one_host(scenario.driver, "--hosts"))
    inventory = None if hosts is None else read_inventory(hosts)
    with contextlib.ExitStack() as stack:
        stack.enter_context(source.placed())
        labels = None
        if scenario.algorithm is not None:
            shards = stack.enter_context(looked_up(scenario.data, folder, scenario.catalogue.datasets))
            labels = PreparedLabels.read(shards)
        place = str(folder.absolute())
        made_plan = make_plan(scenario, labels, place, inventory)
    if not several_hosts:
        require_room(made_plan)
    return made_plan


def written(overrides: Overrides, driver: str | None) -> list[str]:
    """The overrides, and the driver if one is given, as `--set` takes them: JSON is YAML, too."""
    if isinstance(overrides, Mapping):
        settings = []
        for path, value in overrides.items():
            settings.append(f"{path}={json.dumps(value, ensure_ascii=False)}")
    else:
        settings = list(overrides)
    if driver is not None:
        settings.append(f"driver={driver}")
    return settings


def as_yaml(mapping: Mapping[str, Any]) -> str:
    """The text of a file with this content. ScenarioError if YAML has no form for it."""
    try:
        return yaml.safe_dump(dict(mapping), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        problem = Problem("the mapping", "", f"cannot be written as YAML: {error}")
        raise ScenarioError([problem]) from None


LONGEST = 16_000_000  # characters; the underlay between 300 hosts takes about 10 million


def read_inventory(file: Path) -> Inventory:
    """Read the inventory. Raises InventoryError: what is wrong in which file, where, and what would be right."""
    try:
        content = text_of(file, LONGEST, f"it has more than {LONGEST:,} characters")
        return Inventory.from_json(json.loads(content))
    except InventoryError as error:
        raise InventoryError(f"{file}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InventoryError(f"{file}: cannot be read as the JSON of an inventory: {error}") from None
