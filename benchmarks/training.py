"""What a round of federated averaging costs in the testbed, against a plain PyTorch loop in one process and in two.

    python -m benchmarks.training [--data mnist|digits] [--rounds 10] [--repeat 3]

prints one JSON object. `in_testbed` is a whole run with a node for each client, links that do not shape, hardware
`host`, and almost no evaluation. `plain_loop` is its yardstick: the same workload, 10 clients with 600 samples each
(digits: 140), the 26,434-parameter network, SGD 0.01, batches of 32, one epoch. It is written with torch.optim and
without anything of ours but the network and the data, which it holds normalised in memory; evaluation is not timed.
`learner_loop` is the same work through `node.learning`, so that its share of any difference shows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.plain import PARAMS, Helpers, Update, Work, Workload, average, plain_work
from node.catalogue import IID
from node.learning.aggregation import State
from node.learning.datasets import Prepared, prepare
from node.learning.models import Workshop, build
from node.learning.partition import divide
from node.learning.training import Learner
from orchestrator.results.history import History

CLIENTS = 10
SAMPLES = {"mnist": 600, "digits": 140}


def workload_of(data: Prepared) -> Workload:
    """The clients and their samples; no test sets, since evaluation is not timed."""
    scheme = IID(samples_per_client=SAMPLES[data.name])
    parts = divide(scheme, data.train_labels, (CLIENTS,), seed=1).parts
    return Workload(data, tuple((client,) for client in range(CLIENTS)), parts)


def workshop(data: Prepared) -> Workshop:
    return Workshop(lambda: build("cnn", data.shape, data.classes, seed=1))


def learner_work(workload: Workload) -> Work:
    """The same as `plain_work` through `node.learning`."""
    data = workload.data
    shared = workshop(data)
    learners = [Learner(shared, data, 1, f"device-{k}", part) for k, part in enumerate(workload.parts)]

    def work(weights: State, clients: list[int], round: int) -> list[Update]:
        results = [learners[k].train(weights, PARAMS, round) for k in clients]
        return [Update(result.weights, result.samples, None) for result in results]

    return work


def timed_rounds(data: Prepared, make: Callable[[Workload], Work], rounds: int, processes: int) -> dict[str, float]:
    """Seconds per round: median of all but the first, the first, and the accuracy that the work led to."""
    torch.set_num_threads(1)
    cloud = Learner(workshop(data), data, 1, "cloud")
    weights = cloud.get()
    workload = workload_of(data)
    seconds = []
    with Helpers(lambda: make(workload), CLIENTS, processes - 1) as helpers:
        own = make(workload)
        for round in range(1, rounds + 1):
            start = time.perf_counter()
            weights, _ = average(helpers.share(own, weights, round))
            seconds.append(time.perf_counter() - start)
    return {
        "seconds_per_round": round_to(float(np.median(seconds[1:]))),
        "first_round": round_to(seconds[0]),
        "accuracy": round_to(cloud.evaluate(weights, "global").accuracy),
    }


def round_to(value: float) -> float:
    return float(f"{value:.4g}")


def plain_loop(data: Prepared, rounds: int = 10, processes: int = 1) -> dict[str, float]:
    """The yardstick: seconds per round of the plain loop."""
    return timed_rounds(data, plain_work, rounds, processes)


def learner_loop(data: Prepared, rounds: int = 10, processes: int = 1) -> dict[str, float]:
    """The same rounds through `node.learning`, without transport."""
    return timed_rounds(data, learner_work, rounds, processes)


SCENARIO = """\
# What does a round cost beside the training itself?
name: training
seed: 1
algorithm: {{name: fedavg, rounds: {rounds}, learning_rate: 0.01, batch_size: 32, evaluate_samples: 10}}
data: {{dataset: {data}, partition: iid, samples_per_client: {samples}}}
model: cnn
topology: {{edges: 0, devices: {clients}}}
links: {{device-cloud: {{latency: 0}}}}
probe: {{before: false}}
"""


def in_testbed(data: Prepared, rounds: int = 10) -> dict[str, float]:
    """Seconds per round of a whole run, from the cloud's record of its rounds; the first round by itself too."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "training.yaml"
        scenario.write_text(SCENARIO.format(rounds=rounds, data=data.name, samples=SAMPLES[data.name], clients=CLIENTS))
        command = [sys.executable, "-m", "orchestrator", "up", str(scenario), "--runs", folder, "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        with History.open(Path(json.loads(done.stdout)["run"])) as history:
            seconds = [each.end - each.start for each in history.rounds() if each.end is not None]
    return {"seconds_per_round": round_to(sum(seconds) / len(seconds)), "first_round": round_to(seconds[0])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=list(SAMPLES), default="digits")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=1, help="repeat in turns, since machines drift")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "edgebed" / "data")
    options = parser.parse_args()
    data = prepare(options.data, options.cache)
    results = [
        {"loop": loop.__name__, "processes": processes, **loop(data, options.rounds, processes)}
        for _ in range(options.repeat)
        for processes in (1, 2)
        for loop in (plain_loop, learner_loop)
    ]
    results += [{"loop": "testbed", "processes": CLIENTS + 1, **in_testbed(data, options.rounds)}]
    workload = {"data": data.name, "clients": CLIENTS, "samples": SAMPLES[data.name], "rounds": options.rounds}
    print(json.dumps({"workload": workload, "processors": os.cpu_count(), "results": results}, indent=1))


if __name__ == "__main__":
    main()
