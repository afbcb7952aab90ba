"""Between which bounds do the accuracies of a scenario lie: each client alone, and one model of all data pooled?

    python -m benchmarks.bounds SCENARIO.yaml [--set algorithm.rounds=5 ...] [--tier edge] [--epochs 30] [--seeds 1 2 3]

SCENARIO is the name of a shipped scenario, such as `dropout.yaml` or `papers/sweeps/silos.yaml`. Trains the scenario's
models with the optimizer, learning rate and batch size of its algorithm, for the given number of passes over their
data. Clients are the nodes that hold data, or those of --tier, each with the data of all devices below it. Prints one
JSON object; accuracies on the global test set and on the clients' own test sets, in %, mean and standard deviation over
the seeds:

    floor       mean over the clients, each of which trains on its own data only
    ceiling     the models that train on the data of all clients, one for each kind of model, scored for each client
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.learners import LearningNode, learning_nodes
from node.learning.aggregation import State
from node.learning.data.shards import Indices
from node.learning.local_training import LocalTraining
from node.learning.training import Scope

Bounds = dict[str, NDArray[np.float64]]

SCOPES: tuple[Scope, Scope] = ("global", "own")


@dataclass(frozen=True, eq=False)
class Client:
    """A node whose accuracy counts, and all training samples that are its own or below it."""

    node: LearningNode
    data: Indices


def clients_of(nodes: Mapping[str, LearningNode], tier: str | None) -> list[Client]:
    """The nodes with samples of the tier, or of the tier whose nodes hold the data."""
    asked = tier or next(each.node.tier for each in nodes.values() if len(each.train_indices))
    found = []
    for node in (each for each in nodes.values() if each.node.tier == asked):
        below = [node.train_indices, *(nodes[child].train_indices for child in node.node.children)]
        if sum(map(len, below)):
            found.append(Client(node, np.sort(np.concatenate(below))))
    if not found:
        raise SystemExit(f"no node of tier {asked} has data")
    return found


def trained(client: Client, data: Indices, training: LocalTraining) -> State:
    """The client's kind of model after training on the data."""
    learner = client.node.with_data(data)
    return learner.train(learner.initial(), training, 1).weights


def scores(client: Client, weights: State, limit: int | None) -> list[float]:
    """The accuracies of the model on the global test set and on the client's own, in %."""
    learner = client.node.learner
    return [100 * learner.evaluate(weights, scope, limit).accuracy for scope in SCOPES]


def kind(client: Client) -> str:
    """What distinguishes the client's model from other clients' models."""
    return f"{client.node.node.model} {client.node.node.model_params}"


def bounds(scenario: str, overrides: Sequence[str], tier: str | None, epochs: int) -> Bounds:
    nodes, params = learning_nodes(scenario, overrides)
    clients, training = clients_of(nodes, tier), params.local(epochs=epochs, steps=None)
    limit = training.evaluate_samples
    alone = [scores(client, trained(client, client.data, training), limit) for client in clients]
    everything = np.sort(np.concatenate([client.data for client in clients]))
    pooled = {kind(client): client for client in clients}
    models = {name: trained(client, everything, training) for name, client in pooled.items()}
    together = [scores(client, models[kind(client)], limit) for client in clients]
    return {"floor": np.mean(alone, axis=0), "ceiling": np.mean(together, axis=0)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scenario")
    parser.add_argument("--set", action="append", default=[], dest="overrides", help="as for `up`")
    parser.add_argument("--tier", choices=("edge", "device"), help="the clients; by default the nodes that hold data")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    asked = parser.parse_args()
    found = [
        bounds(asked.scenario, [*asked.overrides, f"seed={seed}"], asked.tier, asked.epochs) for seed in asked.seeds
    ]
    report: dict[str, object] = {"epochs": asked.epochs}
    for bound in ("floor", "ceiling"):
        values = np.array([each[bound] for each in found])  # (seeds, scopes)
        rows = zip(SCOPES, values.mean(axis=0), values.std(axis=0), strict=True)
        report[bound] = {scope: [round(float(mean), 1), round(float(deviation), 1)] for scope, mean, deviation in rows}
    print(json.dumps(report))
