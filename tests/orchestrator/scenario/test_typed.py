"""The typed keys are those of the schema."""

from __future__ import annotations

import pytest

from orchestrator.scenario import schema, typed
from orchestrator.scenario.language.strict import Strict
from orchestrator.scenario.sections import faults, links


@pytest.mark.parametrize(
    ("kind", "model"),
    [(typed.Scenario, schema.Scenario), (typed.Link, links.LinkSpec), (typed.Fault, faults.FaultSpec)],
)
def test_the_keys(kind: type[typed.Scenario | typed.Link | typed.Fault], model: type[Strict]) -> None:
    assert kind.__annotations__.keys() == model.key_types().keys()
    assert kind.__doc__
