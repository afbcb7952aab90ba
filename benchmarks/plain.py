"""Federated averaging as a plain PyTorch loop: the reference of other benchmarks, and a separate program.

    python -m benchmarks.plain [--data mnist digits] [--clients 10] [--edges 0] [--samples 600] [--rounds 10]
                               [--processes 2] [--steps optimizer|hand]

The program learns and evaluates the same as a run of the testbed. In each round every client trains its model and
evaluates it on its own test set, every edge averages its clients and evaluates the average on its own test set, and the
global average is evaluated on the whole test set. It prints one JSON object. Of edgebed it uses only the networks, the
data and their division, the weighted mean and the wire format.
Steps are taken by `torch.optim`, whose first object costs a second of imports, or by hand, as in the testbed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from node.assignment import derive_seed
from node.catalogue.partitions import IID
from node.learning.aggregation import State, weighted_mean
from node.learning.data.datasets import Prepared, prepare
from node.learning.data.partition import divide, own_test
from node.learning.data.shards import Indices
from node.learning.errors import DataNotFound
from node.learning.local_training import LocalTraining
from node.learning.models import build
from node.messaging.wire import Message, decode, encode

PARAMS = LocalTraining(learning_rate=0.01, batch_size=32)
EVALUATION_BATCH = 250
SEED = 1
Steps = Literal["optimizer", "hand"]


class Update(NamedTuple):
    """The result of a group's training; ``accuracy`` on its own test set, if it has one."""

    weights: State
    samples: int
    accuracy: float | None


Work = Callable[[State, list[int], int], list[Update]]  # (weights, groups, round) -> updates


@dataclass(frozen=True, eq=False)
class Workload:
    """The clients and their data. ``groups``: the clients below each edge; without edges each client is a group.

    Test sets are sample indices of the test part; empty if there is nothing to evaluate.
    """

    data: Prepared
    groups: tuple[tuple[int, ...], ...]
    parts: tuple[Indices, ...]
    client_tests: tuple[Indices, ...] = ()
    edge_tests: tuple[Indices, ...] = ()

    @cached_property
    def test(self) -> tuple[Tensor, Tensor]:
        return self.normalised("x_test"), torch.from_numpy(self.data.test_labels)

    def normalised(self, name: str, chosen: Indices | slice = slice(None)) -> Tensor:
        x = np.array(self.data.array(name)[chosen], np.float32)
        mean, std = (np.array(v, np.float32).reshape(-1, *[1] * (x.ndim - 2)) for v in (self.data.mean, self.data.std))
        unit = np.float32(255 if self.data.array(name).dtype == np.uint8 else 1)
        return torch.from_numpy((x / unit - mean) / std)


def divided(data: Prepared, clients: int, edges: int = 0, samples: int | None = None) -> Workload:
    """A workload with equal numbers of samples per client; clients and edges have the same test sets as in a run."""
    below = clients // edges if edges else clients
    parts = divide(
        IID(samples_per_client=samples), data.train_labels, [below] * (edges or 1), derive_seed(SEED, "partition")
    ).parts
    size = below if edges else 1
    groups = [tuple(range(first, first + size)) for first in range(0, clients, size)]

    def tests(of: Sequence[Indices], kind: str) -> tuple[Indices, ...]:
        counts = [np.bincount(data.train_labels[part], minlength=data.classes) for part in of]
        return tuple(
            own_test(data.test_labels, held, derive_seed(SEED, kind, str(place))) for place, held in enumerate(counts)
        )

    of_edges = [np.concatenate([parts[client] for client in group]) for group in groups] if edges else []
    return Workload(data, tuple(groups), parts, tests(parts, "client"), tests(of_edges, "edge"))


def plain_work(workload: Workload, steps: Steps = "optimizer") -> Work:
    """Local training in plain PyTorch."""
    model = build("cnn", workload.data.shape, workload.data.classes, seed=SEED)
    shards: dict[int, tuple[Tensor, Tensor]] = {}

    def train(client: int, weights: State, round: int) -> Update:
        if client not in shards:
            part = workload.parts[client]
            shards[client] = (
                workload.normalised("x_train", part),
                torch.from_numpy(workload.data.train_labels[part]),
            )
        trained = train_locally(model, *shards[client], weights, 1000 * round + client, steps)
        accuracy = None
        if workload.client_tests:
            accuracy = evaluate(model, trained, workload, workload.client_tests[client])
        return Update(trained, len(workload.parts[client]), accuracy)

    def work(weights: State, groups: list[int], round: int) -> list[Update]:
        updates = []
        for group in groups:
            below = [train(client, weights, round) for client in workload.groups[group]]
            if workload.edge_tests:
                mean, samples = average(below)
                below = [Update(mean, samples, evaluate(model, mean, workload, workload.edge_tests[group]))]
            updates += below
        return updates

    return work


def train_locally(
    model: torch.nn.Module, x: Tensor, y: Tensor, weights: State, seed: int, steps: Steps = "optimizer"
) -> State:
    """Train one epoch of SGD from ``weights`` in a random order; the model holds the result."""
    model.load_state_dict({name: torch.tensor(values) for name, values in weights.items()})
    model.train()
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=PARAMS.learning_rate) if steps == "optimizer" else None
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    for batch in torch.split(order, PARAMS.batch_size):
        loss = cross_entropy(model(x[batch]), y[batch])
        if optimizer is not None:
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        else:
            with torch.no_grad():
                for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                    parameter.add_(gradient, alpha=-PARAMS.learning_rate)
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


def evaluate(model: torch.nn.Module, weights: State, workload: Workload, chosen: Indices | None = None) -> float:
    """The accuracy on the test part, or on the ``chosen`` samples of it."""
    model.load_state_dict({name: torch.tensor(values) for name, values in weights.items()})
    model.eval()
    x, y = workload.test
    indices = torch.arange(len(y)) if chosen is None else torch.from_numpy(chosen)
    hits = 0
    with torch.inference_mode():
        for batch in torch.split(indices, EVALUATION_BATCH):
            hits += int((model(x[batch]).argmax(1) == y[batch]).sum())
    return hits / len(indices)


def average(updates: Sequence[Update]) -> tuple[State, int]:
    samples = [update.samples for update in updates]
    return weighted_mean([update.weights for update in updates], samples), sum(samples)


class Helpers:
    """Forked processes that each train a share of a round's groups; the caller trains the rest."""

    def __init__(self, make: Callable[[], Work], groups: int, count: int) -> None:
        self.make, self.groups, self.count = make, groups, count
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

    def share(self, own: Work, weights: State, round: int) -> list[Update]:
        """The updates of all groups, in their order."""
        shares = [list(range(self.groups))[k :: self.count + 1] for k in range(self.count + 1)]
        for pipe, share in zip(self.pipes, shares[1:], strict=True):
            send(pipe, Message("train", "caller", round, {"groups": share}, weights))
        results = dict(zip(shares[0], own(weights, shares[0], round), strict=True))
        for pipe, share in zip(self.pipes, shares[1:], strict=True):
            for group in share:
                message = receive(pipe)
                results[group] = Update(message.tensors, message.fields["samples"], message.fields["accuracy"])
        return [results[group] for group in range(self.groups)]

    def _serve(self, pipe: Connection) -> None:
        work = self.make()
        while (task := receive(pipe)).kind == "train":
            for update in work(task.tensors, task.fields["groups"], task.round or 0):
                fields = {"samples": update.samples, "accuracy": update.accuracy}
                send(pipe, Message("update", "helper", task.round, fields, update.weights))


def send(pipe: Connection, message: Message) -> None:
    header, body = encode(message)
    pipe.send_bytes(header)
    pipe.send_bytes(b"".join(body))


def receive(pipe: Connection) -> Message:
    return decode([bytearray(pipe.recv_bytes()) for _ in range(2)])


def found(names: Sequence[str]) -> Prepared:
    """The first of the data sets that this host has."""
    cache = Path(os.environ.get("EDGEBED_CACHE") or Path.home() / ".cache" / "edgebed")
    for name in names:
        try:
            return prepare(name, cache, download=False)
        except DataNotFound as error:
            reason = str(error)
    raise SystemExit(f"benchmarks.plain: {reason}")


def add_workload(parser: argparse.ArgumentParser) -> None:
    """Add the options of the workload."""
    parser.add_argument("--data", nargs="+", default=["mnist", "digits"], help="the first that is here")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--edges", type=int, default=0)
    parser.add_argument("--samples", type=int, help="of each client, at most")
    parser.add_argument("--rounds", type=int, default=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_workload(parser)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", choices=["optimizer", "hand"], default="optimizer")
    options = parser.parse_args()
    torch.set_num_threads(1)
    workload = divided(found(options.data), options.clients, options.edges, options.samples)
    model = build("cnn", workload.data.shape, workload.data.classes, seed=SEED)
    if options.steps == "optimizer":
        torch.optim.SGD(model.parameters())  # imported once, before the fork
    weights: State = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    accuracy, seconds = 0.0, []
    with Helpers(lambda: plain_work(workload, options.steps), len(workload.groups), options.processes - 1) as helpers:
        own = plain_work(workload, options.steps)
        for round in range(1, options.rounds + 1):
            began = time.perf_counter()
            weights, _ = average(helpers.share(own, weights, round))
            accuracy = evaluate(model, weights, workload)
            seconds.append(time.perf_counter() - began)
    print(json.dumps({"data": workload.data.name, "accuracy": accuracy, "round_seconds": seconds}))


if __name__ == "__main__":
    main()
