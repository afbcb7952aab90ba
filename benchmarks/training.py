"""The cost of a round of federated averaging in the testbed, against a plain PyTorch loop in one process and in two.

    python -m benchmarks.training [--data mnist|digits] [--rounds 10] [--turns 3]

Prints one JSON object. Every turn runs all programs, since machines drift. `ratio` is the testbed's time per round
over that of the plain loop in two processes, as the median over the turns. `in_testbed` is a whole run with a node per
client, links that do not shape, hardware `host`, and evaluation on 10 samples. `plain_loop` is the reference: the same
workload, 10 clients with 600 samples each (digits: 140), the 26,434-parameter network, SGD 0.01, batches of 32, one
epoch, then evaluation on 10 samples by each client and of the average. It uses torch.optim and, of edgebed, only the
network and the data, which it keeps normalised in memory.
`learner_loop` does the same work through `node.learning`, to show its share of the difference.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.plain import PARAMS, Helpers, Update, Work, Workload, average, evaluate, plain_work
from node.catalogue.partitions import IID
from node.learning.aggregation import State
from node.learning.data.datasets import Prepared, prepare
from node.learning.data.partition import divide
from node.learning.models import ModelPool, build
from node.learning.training import Learner
from orchestrator.results.history import History

CLIENTS = 10
EVALUATED = 10
SAMPLES = {"mnist": 600, "digits": 140}


def workload_of(data: Prepared) -> Workload:
    """The clients, their samples and their small test sets."""
    scheme = IID(samples_per_client=SAMPLES[data.name])
    parts = divide(scheme, data.train_labels, (CLIENTS,), seed=1).parts
    test = np.arange(EVALUATED)
    return Workload(data, tuple((client,) for client in range(CLIENTS)), parts, (test,) * CLIENTS)


def model_pool(data: Prepared) -> ModelPool:
    return ModelPool(lambda: build("cnn", data.shape, data.classes, seed=1))


def learner_work(workload: Workload) -> Work:
    """The work of `plain_work` through `node.learning`."""
    data = workload.data
    shared = model_pool(data)
    learners = [
        Learner(shared, data, 1, f"device-{k}", part, workload.client_tests[k]) for k, part in enumerate(workload.parts)
    ]

    def update(learner: Learner, weights: State, round: int) -> Update:
        result = learner.train(weights, PARAMS, round)
        return Update(result.weights, result.samples, learner.evaluate(result.weights, "own").accuracy)

    def work(weights: State, clients: list[int], round: int) -> list[Update]:
        return [update(learners[client], weights, round) for client in clients]

    return work


def timed_rounds(data: Prepared, make: Callable[[Workload], Work], rounds: int, processes: int) -> dict[str, float]:
    """The seconds per round, and the final accuracy."""
    torch.set_num_threads(1)
    cloud = Learner(model_pool(data), data, 1, "cloud")
    weights = cloud.get()
    workload = workload_of(data)
    model = build("cnn", data.shape, data.classes, seed=1)
    seconds = []
    with Helpers(lambda: make(workload), CLIENTS, processes - 1) as helpers:
        own = make(workload)
        for round in range(1, rounds + 1):
            start = time.perf_counter()
            weights, _ = average(helpers.share(own, weights, round))
            evaluate(model, weights, workload, workload.client_tests[0])
            seconds.append(time.perf_counter() - start)
    return {**described(seconds), "accuracy": round_to(cloud.evaluate(weights, "global").accuracy)}


def described(seconds: Sequence[float]) -> dict[str, float]:
    """The typical time of a round (the median of all but the first), and the time of the first."""
    return {"seconds_per_round": round_to(float(np.median(seconds[1:]))), "first_round": round_to(seconds[0])}


def round_to(value: float) -> float:
    return float(f"{value:.4g}")


def plain_loop(data: Prepared, rounds: int = 10, processes: int = 1) -> dict[str, float]:
    """The reference: seconds per round of the plain loop."""
    return timed_rounds(data, plain_work, rounds, processes)


def learner_loop(data: Prepared, rounds: int = 10, processes: int = 1) -> dict[str, float]:
    """The same rounds through `node.learning`, without transport."""
    return timed_rounds(data, learner_work, rounds, processes)


SCENARIO = """\
# What does a round cost beside the training itself?
name: training
seed: 1
algorithm: {{name: fedavg, rounds: {rounds}, learning_rate: 0.01, batch_size: 32, evaluate_samples: {evaluated}}}
data: {{dataset: {data}, partition: iid, samples_per_client: {samples}}}
model: cnn
topology: {{edges: 0, devices: {clients}}}
links: {{device-cloud: {{latency: 0}}}}
probe: {{before: false}}
"""


def in_testbed(data: Prepared, rounds: int = 10) -> dict[str, float]:
    """The seconds per round of a whole run, from the cloud's rounds in the record."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "training.yaml"
        scenario.write_text(
            SCENARIO.format(
                rounds=rounds, data=data.name, samples=SAMPLES[data.name], clients=CLIENTS, evaluated=EVALUATED
            )
        )
        command = [sys.executable, "-m", "orchestrator", "up", str(scenario), "--runs", folder, "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        with History.open(Path(json.loads(done.stdout)["run"])) as history:
            seconds = [each.end - each.start for each in history.rounds() if each.end is not None]
    return described(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=list(SAMPLES), default="digits")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "edgebed" / "data")
    options = parser.parse_args()
    data = prepare(options.data, options.cache)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # the first object imports for a second
    runs: dict[str, Callable[[], dict[str, float]]] = {
        "plain": lambda: plain_loop(data, options.rounds),
        "learner": lambda: learner_loop(data, options.rounds),
        "plain, 2 processes": lambda: plain_loop(data, options.rounds, 2),
        "learner, 2 processes": lambda: learner_loop(data, options.rounds, 2),
        "testbed": lambda: in_testbed(data, options.rounds),
    }
    turns = [{name: run() for name, run in runs.items()} for _ in range(options.turns)]
    ratios = [
        round_to(turn["testbed"]["seconds_per_round"] / turn["plain, 2 processes"]["seconds_per_round"])
        for turn in turns
    ]
    workload = {"data": data.name, "clients": CLIENTS, "samples": SAMPLES[data.name], "rounds": options.rounds}
    results = {"ratio": round_to(float(np.median(ratios))), "ratio_of_each_turn": ratios, "turns": turns}
    print(json.dumps({"workload": workload, "processors": os.cpu_count(), **results}, indent=1))


if __name__ == "__main__":
    main()
