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
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from node.catalogue import IID, LocalTraining
from node.learning.aggregation import State, weighted_mean
from node.learning.datasets import Prepared, prepare
from node.learning.models import build
from node.learning.partition import divide
from node.learning.training import Learner
from node.wire import Message, decode, encode
from orchestrator.results.history import History

CLIENTS = 10
SAMPLES = {"mnist": 600, "digits": 140}
PARAMS = LocalTraining(learning_rate=0.01, batch_size=32)
Work = Callable[[State, list[int], int], list[State]]  # (weights, clients, round) -> their trained weights


def clients_of(data: Prepared) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    scheme = IID(samples_per_client=SAMPLES[data.name])
    return list(divide(scheme, data.train_labels, (CLIENTS,), seed=1).parts)


def plain_work(data: Prepared) -> Work:
    """Local training as anybody would write it in PyTorch."""
    model = build("cnn", data.shape, data.classes, seed=1)
    shards = []
    for part in clients_of(data):
        x = torch.from_numpy(data.array("x_train")[part] / np.float32(255))
        shards.append(((x - data.mean[0]) / data.std[0], torch.from_numpy(data.train_labels[part])))

    def work(weights: State, clients: list[int], round: int) -> list[State]:
        results = []
        start = {name: torch.from_numpy(values) for name, values in weights.items()}
        for client in clients:
            x, y = shards[client]
            model.load_state_dict(start)
            model.train()
            optimizer = torch.optim.SGD(model.parameters(), lr=PARAMS.learning_rate)
            order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1000 * round + client))
            for first in range(0, len(y), PARAMS.batch_size):
                batch = order[first : first + PARAMS.batch_size]
                optimizer.zero_grad()
                torch.autograd.backward(cross_entropy(model(x[batch]), y[batch]))
                optimizer.step()
            results.append({name: tensor.numpy().copy() for name, tensor in model.state_dict().items()})
        return results

    return work


def learner_work(data: Prepared) -> Work:
    """The same through `node.learning`."""
    learners = [
        Learner(build("cnn", data.shape, data.classes, seed=1), data, 1, f"device-{k}", part)
        for k, part in enumerate(clients_of(data))
    ]
    return lambda weights, clients, round: [learners[k].train(weights, PARAMS, round).weights for k in clients]


def timed_rounds(data: Prepared, make: Callable[[Prepared], Work], rounds: int, processes: int) -> dict[str, float]:
    """Seconds per round: median of all but the first, the first, and the accuracy that the work led to."""
    torch.set_num_threads(1)
    cloud = Learner(build("cnn", data.shape, data.classes, seed=1), data, 1, "cloud")
    weights = cloud.get()
    seconds = []
    with Helpers(data, make, processes - 1) as helpers:
        own = make(data)
        for round in range(1, rounds + 1):
            start = time.perf_counter()
            states = helpers.share(own, weights, round)
            weights = weighted_mean(states, [1] * len(states))
            seconds.append(time.perf_counter() - start)
    return {
        "seconds_per_round": round_to(float(np.median(seconds[1:]))),
        "first_round": round_to(seconds[0]),
        "accuracy": round_to(cloud.evaluate(weights, "global").accuracy),
    }


class Helpers:
    """Forked processes that do their share of each round's clients; the caller does the rest."""

    def __init__(self, data: Prepared, make: Callable[[Prepared], Work], count: int) -> None:
        self.data, self.make, self.count = data, make, count
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []

    def __enter__(self) -> Helpers:
        context = multiprocessing.get_context("fork")
        for _ in range(self.count):
            ours, theirs = context.Pipe()
            process = context.Process(target=self._serve, args=(theirs,), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)
        return self

    def __exit__(self, *_: object) -> None:
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            send(pipe, Message("end", "caller"))
            process.join()

    def share(self, own: Work, weights: State, round: int) -> list[State]:
        shares = [list(range(CLIENTS))[k :: self.count + 1] for k in range(self.count + 1)]
        for pipe, share in zip(self.pipes, shares[1:], strict=True):
            send(pipe, Message("train", "caller", round, {"clients": share}, weights))
        results = dict(zip(shares[0], own(weights, shares[0], round), strict=True))
        for pipe, share in zip(self.pipes, shares[1:], strict=True):
            results |= {client: receive(pipe).tensors for client in share}
        return [results[client] for client in range(CLIENTS)]

    def _serve(self, pipe: Connection) -> None:
        work = self.make(self.data)
        while (task := receive(pipe)).kind == "train":
            for state in work(task.tensors, task.fields["clients"], task.round or 0):
                send(pipe, Message("update", "helper", task.round, tensors=state))


def send(pipe: Connection, message: Message) -> None:
    frames = encode(message)
    pipe.send_bytes(bytes([len(frames)]))
    for frame in frames:
        pipe.send_bytes(frame)


def receive(pipe: Connection) -> Message:
    return decode([bytearray(pipe.recv_bytes()) for _ in range(pipe.recv_bytes()[0])])


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
