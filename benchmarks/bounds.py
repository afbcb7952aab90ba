"""Between which bounds does the accuracy of a scenario lie: each client alone, and one model of all data pooled?

    python -m benchmarks.bounds SCENARIO.yaml [--set algorithm.rounds=5 ...] [--epochs 30] [--seeds 1 2 3]

SCENARIO is the name of a shipped scenario, such as `dropout.yaml` or `sweeps/silos.yaml`. Trains the scenario's models
with the optimizer, learning rate and batch size of its algorithm, for the given number of passes over their data, and
prints one JSON object; accuracies on the global test set, in %, mean and standard deviation over the seeds:

    floor       mean over the clients, each of which trains on its own data only
    ceiling     mean over the kinds of models, each of which trains on the data of all clients
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from statistics import mean, pstdev

import numpy as np

from benchmarks.learners import LearningNode, learning_nodes
from node.learning.local_training import LocalTraining
from node.learning.training import Learner


def trained(learner: Learner, training: LocalTraining) -> float:
    """The accuracy after the training."""
    weights = learner.train(learner.initial(), training, 1).weights
    return 100 * learner.evaluate(weights, "global", training.evaluate_samples).accuracy


def pooled(clients: Sequence[LearningNode]) -> list[Learner]:
    """A learner with the data of all clients for each kind of model."""
    data = np.concatenate([each.train_indices for each in clients])
    kinds = {(each.node.model, str(each.node.model_params)): each for each in clients}
    return [each.with_data(np.sort(data)) for each in kinds.values()]


def bounds(scenario: str, overrides: Sequence[str], epochs: int) -> tuple[float, float]:
    nodes, params = learning_nodes(scenario, overrides)
    clients, training = [each for each in nodes.values() if each.node.samples], params.local(epochs=epochs, steps=None)
    floor = mean(trained(each.learner, training) for each in clients)
    return floor, mean(trained(each, training) for each in pooled(clients))


def row(values: Sequence[float]) -> list[float]:
    return [round(mean(values), 1), round(pstdev(values), 1)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scenario")
    parser.add_argument("--set", action="append", default=[], dest="overrides", help="as for `up`")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    asked = parser.parse_args()
    found = [bounds(asked.scenario, [*asked.overrides, f"seed={seed}"], asked.epochs) for seed in asked.seeds]
    floors, ceilings = zip(*found, strict=True)
    print(json.dumps({"epochs": asked.epochs, "floor": row(floors), "ceiling": row(ceilings)}))
