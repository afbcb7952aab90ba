"""The local training of many clients: one after the other and together, on processors and on a GPU.

    python -m benchmarks.accelerator [--device cuda] [--models cnn mlp] [--clients 64] [--samples 64] [--turns 3]

Prints one JSON object, with the median over turns of the seconds that one round of training takes all clients:

    one by one, 1 processor     `Learner.train` of each, in one process
    one by one, 2 processors    the same in two processes, as simulations do with two workers
    together, 1 processor       `node.learning.together.Crew`, in one process
    one by one, GPU             `Learner.train` of each on the GPU
    together, GPU               `Crew` on the GPU

`gpu_to_two_processors` is "one by one, 2 processors" over "together, GPU", `together_to_one_by_one` is "one by one"
over "together" on each device. More than 1 is faster. Where torch sees no GPU, a sentence says so, and the figures of a
GPU are missing. States and results are arrays in the processor's memory before and after, as in a run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch

from benchmarks.plain import Helpers, Update, Work
from node.learning.aggregation import State
from node.learning.data.datasets import Prepared, prepare
from node.learning.devices import PROCESSOR, make_deterministic
from node.learning.local_training import LocalTraining
from node.learning.models import ModelPool, build
from node.learning.together import Crew, Training
from node.learning.training import Learner
from orchestrator.host.training_devices import tried_here

PARAMS = LocalTraining(learning_rate=0.01, batch_size=32)
WARM_UP = 1  # rounds that are not counted: the first use of a device and of a kernel takes seconds


def learners(data: Prepared, model: str, device: str, clients: int, samples: int) -> list[Learner]:
    """Clients with equally many samples; they overlap if the data set is too small."""
    pool = ModelPool(partial(build, model, data.shape, data.classes, 1), device)
    there = len(data.train_labels)
    return [
        Learner(pool, data, 1, f"device-{k}", np.arange(k * samples, (k + 1) * samples) % there) for k in range(clients)
    ]


def one_by_one(mine: Sequence[Learner]) -> Work:
    def work(weights: State, clients: list[int], round: int) -> list[Update]:
        results = (mine[client].train(weights, PARAMS, round) for client in clients)
        return [Update(each.weights, each.samples, None) for each in results]

    return work


def together(mine: Sequence[Learner]) -> Work:
    def work(weights: State, clients: list[int], round: int) -> list[Update]:
        crew = Crew([mine[client] for client in clients])
        results = crew.train([Training(weights, PARAMS, round)] * len(clients))
        return [Update(each.weights, each.samples, None) for each in results]

    return work


def seconds(
    make: Callable[[Sequence[Learner]], Work], mine: Sequence[Learner], turns: int, processes: int = 1
) -> float:
    """The median time of a round, in which every client trains. It is measured in a forked process: where torch sees a
    GPU, a process that has trained cannot be forked any more."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    measure = partial(_seconds, make, mine, turns, processes)
    process = context.Process(target=lambda: theirs.send_bytes(str(measure()).encode()))
    process.start()
    theirs.close()
    try:
        return float(ours.recv_bytes())
    finally:
        process.join()


def _seconds(make: Callable[[Sequence[Learner]], Work], mine: Sequence[Learner], turns: int, processes: int) -> float:
    weights, taken = mine[0].initial(), []
    with Helpers(lambda: make(mine), len(mine), processes - 1) as helpers:
        own = make(mine)
        for round in range(WARM_UP + turns):
            start = time.perf_counter()
            helpers.share(own, weights, round)
            taken.append(time.perf_counter() - start)
    return median(taken[WARM_UP:])


def figures(
    data: Prepared, model: str, device: str | None, clients: int, samples: int, turns: int
) -> dict[str, object]:
    """The seconds of each way, and the ratios. ``device``: the GPU, or None."""
    here = learners(data, model, PROCESSOR, clients, samples)
    found = {
        "one by one, 1 processor": seconds(one_by_one, here, turns),
        "one by one, 2 processors": seconds(one_by_one, here, turns, 2),
        "together, 1 processor": seconds(together, here, turns),
    }
    ratios = {"on a processor": found["one by one, 1 processor"] / found["together, 1 processor"]}
    result: dict[str, object] = {"model": model, "seconds": found, "together_to_one_by_one": ratios}
    if device is not None:
        there = learners(data, model, device, clients, samples)
        found |= {
            "one by one, GPU": seconds(one_by_one, there, turns),
            "together, GPU": seconds(together, there, turns),
        }
        ratios["on the GPU"] = found["one by one, GPU"] / found["together, GPU"]
        result["gpu_to_two_processors"] = found["one by one, 2 processors"] / found["together, GPU"]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--models", nargs="+", default=["cnn", "mlp"])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "edgebed" / "data")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tried = tried_here(options.device)
    device: str | None = options.device
    if "problem" in tried:
        device = None
        print(f"There is no GPU to measure here: {tried['problem']}.", file=sys.stderr)
    data = prepare(options.data, options.cache)
    make_deterministic()
    workload = {"data": data.name, "clients": options.clients, "samples": options.samples, "batch": PARAMS.batch_size}
    results = [
        figures(data, model, device, options.clients, options.samples, options.turns) for model in options.models
    ]
    host = {"processors": os.cpu_count(), "torch": torch.__version__, "gpu": tried.get("name")}
    print(json.dumps({"workload": workload, "host": host, "results": results}, indent=1))


if __name__ == "__main__":
    main()
