"""Shared code of the algorithms' benchmarks: learners for the nodes of a shipped scenario, without running nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from node.assignment import derive_seed
from node.learning.data.datasets import open_prepared
from node.learning.data.shards import Indices
from node.learning.local_training import LocalTraining
from node.learning.models import ModelPool, build
from node.learning.training import Learner
from orchestrator.planning.plan import NodePlan
from orchestrator.run.launch import prepared_plan
from orchestrator.scenario.reading import load

SCENARIOS = Path(__file__).parents[1] / "scenarios"


@dataclass(frozen=True, eq=False)
class LearningNode:
    """A node of the plan and its learner."""

    node: NodePlan
    learner: Learner
    models: ModelPool
    train_indices: Indices
    seed: int

    def with_data(self, train_indices: Indices) -> Learner:
        """A learner with the same kind of model and other training samples."""
        return Learner(self.models, self.learner.data, self.seed, self.node.name, train_indices)


def learning_nodes(scenario: str, overrides: Sequence[str]) -> tuple[dict[str, LearningNode], LocalTraining]:
    """All nodes of a scenario with these overrides, by name, and the algorithm's parameters."""
    torch.set_num_threads(1)
    plan = prepared_plan(load(SCENARIOS / scenario, overrides), SCENARIOS / scenario)
    data, seed = open_prepared(Path(plan.data_directory)), derive_seed(plan.seed, "model")
    found = {}
    for node in plan.nodes:
        model_pool = ModelPool(partial(build, node.model, data.shape, data.classes, seed, node.model_params))
        part = plan.shards.train.get(node.name)
        learner = Learner(model_pool, data, plan.seed, node.name, part, plan.shards.own_test.get(node.name))
        mine = np.empty(0, np.int64) if part is None else part
        found[node.name] = LearningNode(node, learner, model_pool, mine, plan.seed)
    return found, plan.scheme.params(**plan.params)
