"""The typed keys are those of the schema."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.scenario import schema, typed
from orchestrator.scenario.language.strict import Strict
from orchestrator.scenario.media import section as media
from orchestrator.scenario.sections import faults, links


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        (typed.Scenario, schema.Scenario),
        (typed.Link, links.LinkSpec),
        (typed.Fault, faults.FaultSpec),
        (typed.Medium, media.MediumSpec),
        (typed.CrossTraffic, media.CrossTrafficSpec),
    ],
)
def test_the_keys(kind: Any, model: type[Strict]) -> None:
    assert kind.__annotations__.keys() == model.key_types().keys()
    assert kind.__doc__
