"""The workload of `benchmarks.plain` as a Flower application, for Flower's simulation engine.

Runs in the environment that `benchmarks.simulation --flower` makes; the project does not depend on Flower. It follows
Flower's documentation for PyTorch and uses Flower's FedAvg. In every round each client gets a training message, trains,
and evaluates the model on its own test set; the server evaluates the global test set. Two clients run at a time, each
in a Ray process that keeps its model and data between messages. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.plain import SEED, Workload, add_workload, divided, evaluate, found, train_locally
from node.learning.models import Model, build

Shard = tuple[torch.Tensor, torch.Tensor]


@functools.cache
def prepared(names: tuple[str, ...], clients: int, samples: int | None) -> tuple[Workload, Model]:
    """The workload and the model, made once per process."""
    torch.set_num_threads(1)
    workload = divided(found(names), clients, samples=samples)
    return workload, build("cnn", workload.data.shape, workload.data.classes, seed=SEED)


@functools.cache
def shard(workload: Workload, client: int) -> Shard:
    part = workload.parts[client]
    return workload.normalised("x_train", part), torch.from_numpy(workload.data.train_labels[part])


def client_app(names: tuple[str, ...], clients: int, samples: int | None) -> ClientApp:
    app = ClientApp()

    def train(message: Message, context: Context) -> Message:
        workload, model = prepared(names, clients, samples)
        client = int(context.node_config["partition-id"])
        round = int(message.content["config"]["server-round"])
        weights = {name: array.numpy() for name, array in message.content["arrays"].items()}
        trained = train_locally(model, *shard(workload, client), weights, 1000 * round + client)
        accuracy = evaluate(model, trained, workload, workload.client_tests[client])
        metrics = MetricRecord({"num-examples": len(workload.parts[client]), "accuracy": accuracy})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    app.train()(train)
    return app


def server_app(
    names: tuple[str, ...], clients: int, samples: int | None, rounds: int, outcome: dict[str, Any]
) -> ServerApp:
    """The server. It writes data set, final accuracy and the number of rounds with training to ``outcome``."""
    app = ServerApp()

    def main(grid: Grid, context: Context) -> None:
        workload, model = prepared(names, clients, samples)

        def evaluate_global(round: int, arrays: ArrayRecord) -> MetricRecord | None:
            if round == 0:
                return None  # the other programs do not evaluate the initial model
            weights = {name: array.numpy() for name, array in arrays.items()}
            return MetricRecord({"accuracy": evaluate(model, weights, workload)})

        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
        first = ArrayRecord(model.state_dict())
        result = strategy.start(grid, first, num_rounds=rounds, evaluate_fn=evaluate_global)
        outcome["data"] = workload.data.name
        outcome["accuracy"] = result.evaluate_metrics_serverapp[rounds]["accuracy"]
        outcome["rounds"] = len(result.train_metrics_clientapp)

    app.main()(main)
    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_workload(parser)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    workload = (tuple(options.data), options.clients, options.samples)
    outcome: dict[str, Any] = {}
    output, sys.stdout = sys.stdout, sys.stderr  # keeps the output of Flower and Ray out of the result
    run_simulation(
        server_app(*workload, options.rounds, outcome),
        client_app(*workload),
        num_supernodes=options.clients,
        backend_config={
            "init_args": {"num_cpus": options.processes, "include_dashboard": False},
            "client_resources": {"num_cpus": 1},
        },
    )
    if outcome.get("rounds") != options.rounds:
        sys.exit(f"benchmarks.flower_app: clients trained in {outcome.get('rounds', 0)} of {options.rounds} rounds")
    print(json.dumps(outcome), file=output, flush=True)


if __name__ == "__main__":
    from benchmarks import flower_app  # Ray's processes import functions by this module name, not from __main__

    flower_app.main()
