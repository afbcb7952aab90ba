from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from edgebed.baselines.hierarchical import HPFL, meta_train, next_mixing, similarity
from edgebed.testing import Federation, federation, hierarchy
from node.assignment import Gathering
from node.testing import same

LOCAL: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 16, "steps": 2, "evaluate_samples": 60}


def run(folder: Path, name: str, groups: tuple[int, ...] = (2, 1), **params: Any) -> Federation:
    folder.mkdir(exist_ok=True)
    tree = hierarchy(list(groups), cloud=True)
    return federation(folder, "edgebed.baselines.hierarchical", name, tree, params=LOCAL | params, rounds=2).run()


def test_without_the_proximal_term_it_is_hierfavg(tmp_path: Path) -> None:
    near = run(tmp_path / "near", "fedprox-h", mu=0.0)
    assert same(near.state("cloud"), run(tmp_path / "tree", "hierfavg", kappa2=2).state("cloud"))


def test_the_proximal_term_keeps_devices_near_the_edges_model(tmp_path: Path) -> None:
    def change(mu: float) -> float:
        done = run(tmp_path / f"{mu:g}", "fedprox-h", mu=mu)
        start, end = done.roles["cloud"].learner.initial(), done.state("cloud")
        return float(sum(np.sum((end[name] - start[name]) ** 2) for name in start))

    assert change(5.0) < change(0.0)


def test_without_adaptation_hpfl_is_hierfavg_on_the_next_mini_batches(tmp_path: Path) -> None:
    """With all of a device's samples in one mini-batch, the next one is the same."""
    all_samples: dict[str, Any] = {"steps": None, "epochs": 1, "batch_size": 1000}
    meta = run(tmp_path / "meta", "hpfl", adaptation_rate=0.0, **all_samples).state("cloud")
    for name, values in run(tmp_path / "tree", "hierfavg", kappa2=2, **all_samples).state("cloud").items():
        np.testing.assert_allclose(meta[name], values, atol=1e-5)


def test_a_device_of_hpfl_steps_by_the_gradient_after_adaptation(tmp_path: Path) -> None:
    learner = run(tmp_path, "hpfl").roles["device-0-0"].learner
    p = HPFL(learning_rate=0.1, batch_size=1000, epochs=1, adaptation_rate=0.05)
    w = learner.initial()
    found, _ = meta_train(learner, w, p, 1)
    x, y = learner.train_data

    def gradient(at: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        leaves = {name: each.clone().requires_grad_() for name, each in at.items()}
        loss = cross_entropy(torch.func.functional_call(learner.model, leaves, learner.normalise(x)), y)
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))

    start = {name: torch.from_numpy(w[name].copy()) for name in learner.trained}
    adapted = {name: each - 0.05 * gradient(start)[name] for name, each in start.items()}
    for name, g in gradient(adapted).items():
        np.testing.assert_allclose(found[name], (start[name] - 0.1 * g).numpy(), atol=1e-5)


def test_similarity_of_models() -> None:
    """⟨a, b⟩ = 1, ‖a‖² = 1, ‖b‖² = 2: T = 1 / (1 + 2 - 1)."""
    a, b = {"w": np.array([1.0, 0.0])}, {"w": np.array([1.0, 1.0])}
    assert [similarity(a, each) for each in (a, b, {"w": -a["w"]})] == pytest.approx([1.0, 0.5, 0.0])


def test_the_mixing_parameter_follows_the_training() -> None:
    """The devices moved p = (1, 0) to (2, 0) = y, so λ rises: 0.5 + 0.1 · ⟨(1, 0), (2, 0)⟩. To g = (0, 0), it falls."""
    y, g = ({"w": np.array(each)} for each in ([2.0, 0.0], [0.0, 0.0]))
    assert next_mixing(0.5, 0.1, y, g, y) == pytest.approx(0.7)
    assert next_mixing(0.5, 0.1, y, g, g) == pytest.approx(0.3)
    assert next_mixing(0.5, 10.0, y, g, y) == 1.0


def test_esperhfl_with_one_edge_is_hierfavg(tmp_path: Path) -> None:
    mixed = run(tmp_path / "mixed", "esperhfl", (2,)).state("cloud")
    tree = run(tmp_path / "tree", "hierfavg", (2,), kappa2=2).state("cloud")
    for name, values in tree.items():
        np.testing.assert_allclose(mixed[f"edge-0/{name}"], values, atol=1e-6)


def test_a_round_of_esperhfl_without_updates_changes_no_accuracy(tmp_path: Path) -> None:
    """No edge is reached from 0.3 s to 3 s, so at least one round is abandoned."""
    cuts = {("cloud", f"edge-{k}"): (0.3, 3.0) for k in range(2)}
    more: dict[str, Any] = {"cuts": cuts, "gathering": Gathering(quorum=0.5, deadline=1), "rounds": 6}
    tree, name = hierarchy([1, 1], cloud=True), "edgebed.baselines.hierarchical"
    cloud = federation(tmp_path, name, "esperhfl", tree, params=LOCAL, **more).run().journals["cloud"]
    abandoned, accuracy = [t for t in cloud.rounds("round_abandoned") if t], cloud.series("global")
    assert min(abandoned) > 1
    assert [accuracy[t] for t in abandoned] == [accuracy[t - 1] for t in abandoned]


def test_edges_of_esperhfl_have_models_of_their_own(tmp_path: Path) -> None:
    done = run(tmp_path, "esperhfl", (1, 1, 1))
    models = [{n: v for n, v in done.state("cloud").items() if n.startswith(f"edge-{k}/")} for k in range(3)]
    assert not any(np.array_equal(a, b) for a, b in zip(models[0].values(), models[1].values(), strict=True))
    mixing = [data["mixing"] for _, data in done.journals["edge-0"].metrics if "mixing" in data]
    assert mixing[0] == 0.5  # in round 1 both models are the first one
    assert 0 <= mixing[1] <= 1
    assert mixing[1] != 0.5
