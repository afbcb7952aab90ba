"""The typed keys are those of the schema."""

from __future__ import annotations

import pytest

from orchestrator.scenario import faults, links, schema, typed
from orchestrator.scenario.strict import Strict


@pytest.mark.parametrize(
    ("kind", "model"),
    [(typed.Scenario, schema.Scenario), (typed.Link, links.LinkSpec), (typed.Fault, faults.FaultSpec)],
)
def test_the_keys(kind: type[typed.Scenario | typed.Link | typed.Fault], model: type[Strict]) -> None:
    assert kind.__annotations__.keys() == model.key_types().keys()
    assert kind.__doc__
