"""The scenario of the baselines: planned, and simulated with each of them."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from edgebed.baselines import hierarchical
from edgebed.baselines.sdfeel import Clusters
from orchestrator.errors import PlanError
from orchestrator.planning.making import make_plan
from orchestrator.scenario.reading import parse
from tests.orchestrator.drivers.sim.harness import simulate
from tests.texts import containing

SCENARIO = Path(__file__).parents[3] / "scenarios" / "heterogeneous.yaml"
NAMES = ["fedproto", "lgfedavg", "fml", "feddistill", "fedkd", "fedgh", "fedtgp"]
FEW = ("data.dataset=digits", "data.samples_per_client=100", "data.evaluate_samples=100", "algorithm.rounds=4")


@pytest.mark.parametrize("name", ["fedproto", "lgfedavg", "fedgh", "fedtgp"])
def test_features_of_one_size_are_asked_for(name: str) -> None:
    text = SCENARIO.read_text().replace("name: fedproto,", f"name: {name},")
    assert make_plan(parse(text, "mine.yaml"), None).node("edge-1").model_params["features"] == 64
    with pytest.raises(PlanError) as caught:
        make_plan(parse(text.replace("model: {name: small, features: 64}", "model: small"), "mine.yaml"), None)
    assert str(caught.value) == containing("model", "32, 48, 64, 84, 200 features")


def test_the_scenario_of_the_page_and_its_parameters() -> None:
    """The page names each baseline, its parameters and their defaults."""
    page = (SCENARIO.parents[1] / "docs/papers/baselines.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert [len(make_plan(parse(each, "mine.yaml"), None).nodes) for each in blocks] == [6, 16]
    algorithms = parse(SCENARIO.read_text(), "mine.yaml").catalogue.algorithms
    own = {entry.name for entry in fields(Clusters)}
    declared = [*(algorithms[name] for name in NAMES), *hierarchical.PLUGIN.algorithms]
    for name, params in ((each.name, each.params) for each in declared):
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` | ")][:1]
        for entry in fields(params):
            if entry.name not in own:
                default = f"`{entry.default}`" if isinstance(entry.default, str) else f"{entry.default:g}"
                assert f"`{entry.name}` {default}" in row


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES[1:])
def test_each_baseline_is_simulated(tmp_path: Path, name: str) -> None:
    result = simulate(tmp_path, SCENARIO, *(f"--set={each}" for each in (*FEW, f"algorithm.name={name}")))
    assert result.code == 0, result.errors
    assert result.summary["rounds"] == 4
    assert result.summary["accuracy"]["global"] > 0.1
