"""The training loss that clients report is that of the task in every algorithm.

At a learning rate at which weights hardly move, it is the cross-entropy of the initial model on the client's samples in
every round. What an algorithm adds to it is in the metric ``objective``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from edgebed.testing import Federation, federation, hierarchy, star
from node.learning.metrics import cross_entropy

SLOW = {"learning_rate": 1e-6, "batch_size": 30, "evaluate_samples": 20}  # two mini-batches of equal size
TERMS: dict[str, dict[str, Any]] = {
    "scaffold": {},
    "fedgen": {},
    "feddistill": {},
    "fedproto": {},
    "fedtgp": {},
    "fml": {},
    "fedkd": {},
    "fedasync": {"proximal": 0.5},
}
PLAIN: dict[str, dict[str, Any]] = {
    "lgfedavg": {},
    "fedgh": {"header_learning_rate": 1e-6},
    "fedala": {},
    "masked_sum": {},
}
TREES = {"fedprox-h": "hierarchical", "hpfl": "hierarchical", "esperhfl": "hierarchical", "sdfeel": "sdfeel"}


def of_initial_model(done: Federation, node: str) -> float:
    """The cross-entropy of the client's initial model on its samples, computed here."""
    learner = done.roles[node].learner
    _, logits, labels = learner.outputs(learner.initial())
    return float(cross_entropy(logits, torch.as_tensor(labels)))


def train_losses(done: Federation, node: str) -> dict[int, float]:
    return {
        round: values["loss"]
        for round, values in done.journals[node].metrics
        if values["scope"] == "train" and "loss" in values
    }


def check(done: Federation, objective: bool) -> None:
    for node in done.samples:
        losses = train_losses(done, node)
        assert len(losses) >= 2
        assert [*losses.values()] == pytest.approx([of_initial_model(done, node)] * len(losses), abs=1e-3)
        assert any("objective" in values for _, values in done.journals[node].metrics) == objective


def run(folder: Path, module: str, algorithm: str, tree: Mapping[str, str | None], **params: Any) -> Federation:
    plugin = f"edgebed.baselines.{module}"
    rounds = 12 if algorithm == "fedasync" else 3  # each update makes a version
    return federation(folder, plugin, algorithm, tree, params=SLOW | params, rounds=rounds).run()


@pytest.mark.parametrize("name", TERMS)
def test_terms_of_an_algorithm_are_its_objective(name: str, tmp_path: Path) -> None:
    check(run(tmp_path, name, name, star(3), **TERMS[name]), objective=True)


@pytest.mark.parametrize("name", PLAIN)
def test_an_algorithm_without_terms_has_no_objective(name: str, tmp_path: Path) -> None:
    check(run(tmp_path, name, name.replace("_", "-"), star(3), **PLAIN[name]), objective=False)


@pytest.mark.parametrize("name", TREES)
def test_devices_below_edges(name: str, tmp_path: Path) -> None:
    tree = hierarchy([1, 2], cloud=name != "sdfeel")
    check(run(tmp_path, TREES[name], name, tree), objective=name in ("fedprox-h", "hpfl"))


def test_control_variates_are_in_the_objective(tmp_path: Path) -> None:
    """From round 2 on, the term (c − c_i)·y is not 0, whatever the learning rate."""
    done = run(tmp_path, "scaffold", "scaffold", star(3))
    terms = []
    for node in done.samples:
        objective = done.journals[node].series("train", "objective")
        terms.append(objective[2] - of_initial_model(done, node))
    assert max(map(abs, terms)) > 0.01
