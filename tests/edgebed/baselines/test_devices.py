"""Every baseline trains on the device that its nodes are given, and there to the bit as on the processor. The device is
`tests.toy_device`, which refuses what was left behind on the processor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edgebed.testing import Federation, federation, hierarchy, star
from tests.toy_device import TOY, models_in_steps_only

FEATURES = {"features": 8}
MODULES = Path(__file__).parents[3] / "edgebed" / "baselines"

Case = tuple[str, Mapping[str, str | None], str, Mapping[str, Any], Mapping[str, Any]]
CASES: dict[str, Case] = {  # module, tree, model, parameters of the model and of the algorithm
    "top-k-fedavg": ("compressed", star(2), "mlp", {}, {}),
    "fedala": ("fedala", star(2), "mlp", {}, {}),
    "fedasync": ("fedasync", star(2), "mlp", {}, {}),
    "fedbuff": ("fedbuff", star(2), "mlp", {}, {}),
    "feddistill": ("feddistill", star(2), "small", FEATURES, {}),
    "fedgen": ("fedgen", star(2), "mlp", {}, {"generator_steps": 3}),
    "fedgh": ("fedgh", star(2), "small", FEATURES, {}),
    "fedkd": ("fedkd", star(2), "small", FEATURES, {}),
    "fedyogi": ("fedopt", star(2), "cnn", {}, {}),
    "fedproto": ("fedproto", star(2), "small", FEATURES, {}),
    "fedtgp": ("fedtgp", star(2), "small", FEATURES, {"server_epochs": 2}),
    "fml": ("fml", star(2), "small", FEATURES, {}),
    "fedprox-h": ("hierarchical", hierarchy([1, 1], cloud=True), "mlp", {}, {}),
    "hpfl": ("hierarchical", hierarchy([1, 1], cloud=True), "mlp", {}, {}),
    "esperhfl": ("hierarchical", hierarchy([1, 1], cloud=True), "mlp", {}, {}),
    "lgfedavg": ("lgfedavg", star(2), "mlp", {}, {}),
    "masked-sum": ("masked_sum", star(2), "mlp", {}, {}),
    "scaffold": ("scaffold", star(2), "cnn", {}, {}),
    "sdfeel": ("sdfeel", hierarchy([1, 1], cloud=False), "mlp", {}, {}),
}


def test_no_module_is_left_out() -> None:
    shared = {"__init__", "personal"}
    assert {module for module, *_ in CASES.values()} == {each.stem for each in MODULES.glob("*.py")} - shared


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_baseline_follows_its_device(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models_in_steps_only(monkeypatch)
    module, tree, model, model_params, params = CASES[name]

    def run(device: str) -> Federation:
        given = {"learning_rate": 0.05, "evaluate_samples": 40, **params}
        more: dict[str, Any] = {"rounds": 2, "model": model, "model_params": model_params, "device": device}
        folder = tmp_path / device
        folder.mkdir()
        return federation(folder, f"edgebed.baselines.{module}", name, tree, params=given, **more).run()

    on_processor, on_toy = run("cpu"), run(TOY)
    for node in tree:
        assert on_toy.roles[node].learner.device.type == TOY
        assert on_toy.journals[node].metrics == on_processor.journals[node].metrics
    assert any(on_toy.journals[node].metrics for node in tree)
