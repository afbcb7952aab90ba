"""The cost of a population: 100,000 clients of which 100 take part in each round, against a plain loop.

    python -m benchmarks.population [--clients 100000] [--selected 100] [--rounds 100] [--samples 100] [--workers 2]
                                    [--repeat 1] [--data fashion-mnist digits] [--twice]

Prints one JSON object. Both programs train the small CNN on the samples that a client draws, with the same selection of
clients and the same first weights, and evaluate the mean model on the same 1,000 test samples after each round. Only
the order of mini-batches differs. The plain loop takes its steps by hand, in as many processes as the simulation has
workers. Programs are separate processes, timed from start to end, with imports and data, and run in turns.

ratios       the simulation's wall time by the plain loop's, within a turn
memory       the peak of the memory (PSS) of all processes of the simulation, in bytes, in one more run
same_record  with --twice: whether one more run of the simulation, in a fresh process, gives the same record

    python -m benchmarks.population plain ...           # the plain loop alone: one JSON object
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.plain import SEED, Helpers, Update, Work, average, evaluate, found, train_locally
from benchmarks.plain import Workload as Test
from benchmarks.simulation import Program, most_memory, run
from node.assignment import derive_seed
from node.learning.aggregation import State
from node.learning.models import build
from orchestrator.population.selection import ClientHistory, UniformSelection, select
from orchestrator.population.shards import ClientShards

TESTED = 1000  # samples
SCENARIO = """\
# What does a population cost?
name: population
seed: {seed}
algorithm: {{name: fedavg, rounds: {rounds}, learning_rate: 0.01, batch_size: 32, evaluate_samples: {tested}}}
data: {{dataset: [{data}], partition: {{dirichlet: 0.5}}, samples_per_client: {samples}}}
model: cnn
topology: {{population: {clients}, selected: {selected}}}
links: {{device-cloud: {{latency: 10ms, rate: 100mbit}}}}
driver: sim
"""
LEFT_OUT = ("meta", "outcome")  # tables with facts about the host


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=["plain"])
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--selected", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--samples", type=int, default=100, help="of each client")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--data", nargs="+", default=["fashion-mnist", "digits"], help="the first that is here")
    parser.add_argument("--twice", action="store_true")
    options = parser.parse_args()
    print(json.dumps(plain(options) if options.part == "plain" else compared(options)))


def compared(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="edgebed-benchmark-") as folder:
        scenario = Path(folder) / "population.yaml"
        values = {name: getattr(options, name) for name in ("clients", "selected", "rounds", "samples")}
        text = SCENARIO.format(seed=SEED, tested=TESTED, data=", ".join(options.data), **values)
        scenario.write_text(text)
        ours = Program(
            [
                *(sys.executable, "-m", "orchestrator", "up", str(scenario), "--json"),
                *("--runs", f"{folder}/runs", "--workers", str(options.workers)),
            ],
            good=(0, 3),
        )
        same = [f"--{name}={value}" for name, value in values.items()] + ["--data", *options.data]
        theirs = Program(
            [sys.executable, "-m", "benchmarks.population", "plain", f"--workers={options.workers}", *same]
        )
        turns = [(run(ours), run(theirs)) for _ in range(options.repeat)]
        result: dict[str, Any] = {
            **values,
            "workers": options.workers,
            "simulation_seconds": [round(one.seconds, 1) for one, _ in turns],
            "plain_seconds": [round(other.seconds, 1) for _, other in turns],
            "ratios": [round(one.seconds / other.seconds, 3) for one, other in turns],
            "ratio": round(median(one.seconds / other.seconds for one, other in turns), 3),
            "accuracy": [turns[0][0].result["accuracy"]["global"], turns[0][1].result["accuracy"]],
            "memory": most_memory(ours),
        }
        if options.twice:
            one, other = (rows(Path(each.result["run"])) for each in (turns[0][0], run(ours)))
            result["same_record"] = one == other
        return result


def rows(directory: Path) -> dict[str, list[Any]]:
    """Every row of a record but those about the host."""
    with sqlite3.connect(directory / "run.db") as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: database.execute(f"SELECT * FROM {name}").fetchall() for name in names if name not in LEFT_OUT}
    database.close()
    return found


def plain(options: argparse.Namespace) -> dict[str, Any]:
    """Federated averaging of the selected clients of each round as a plain loop."""
    torch.set_num_threads(1)
    data = found(options.data)
    test = Test(data, (), ())
    chosen = np.sort(np.random.default_rng(derive_seed(SEED, "evaluation")).permutation(len(data.test_labels))[:TESTED])
    model = build("cnn", data.shape, data.classes, seed=derive_seed(SEED, "model"))
    weights: State = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    shards = ClientShards(SEED, np.array(data.train_labels), 0.5)
    everybody, alike, seen = np.ones(options.clients, bool), np.ones(options.clients), ClientHistory(options.clients)

    def make() -> Work:
        own = build("cnn", data.shape, data.classes, seed=SEED)

        def work(weights: State, groups: list[int], round: int) -> list[Update]:
            clients = select(UniformSelection(), SEED, round, options.selected, everybody, alike, seen)
            updates = []
            for group in groups:
                held = shards.of(clients[group], options.samples)
                x, y = test.normalised("x_train", held), torch.from_numpy(data.train_labels[held])
                trained = train_locally(own, x, y, weights, 1000 * round + group, "hand")
                updates.append(Update(trained, len(held), None))
            return updates

        return work

    accuracy, began = 0.0, time.perf_counter()
    with Helpers(make, options.selected, options.workers - 1) as helpers:
        mine = make()
        for round in range(1, options.rounds + 1):
            weights, _ = average(helpers.share(mine, weights, round))
            accuracy = evaluate(model, weights, test, chosen)
    return {"accuracy": accuracy, "seconds": time.perf_counter() - began}


if __name__ == "__main__":
    main()
