"""What limits DFFKE's exchange, the synthetic images or the clients?

    python -m benchmarks.exchange [--data cifar10] [--samples 400] [--embeddings 400] [--rounds 4] [--seed 1]
                                  [--pictures private synthetic] [--fresh] [--memory-from 3] [--set model=cnn ...]

Runs DFFKE of `scenarios/papers/dffke-small.yaml`, on the decoder's synthetic images and on the private images whose
embeddings are the decoder's input. No client may send private images, but no decoder can make better ones. `--fresh`: a
new decoder in each round. `--memory-from R`: each step is followed by one on the images of past rounds from R on, or on
the current ones while there are none, so that all R compare at equal steps; without it there is no such step. Prints
one JSON object; for each round, in %, means over the clients:

    alone, exchanged    accuracy on 1,000 test images before and after the exchange
    own                 accuracy on the client's own test images after it
    recognised          synthetic or private images to which the owner's model gives the label of the private image
    remembered          the same, of the images of all past rounds by the owner's present model
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

import numpy as np
import torch
from torch import Tensor

from benchmarks.learners import LearningNode, learning_nodes
from node.algorithms.dffke.docking import Labels, dock
from node.algorithms.dffke.embedding_decoder import ClientModel, new_decoder, synthesise, train_decoder
from node.algorithms.dffke.knowledge_exchange import NOTHING, Taught, embed, embedded, learn, pictures_of, train_epoch
from node.algorithms.dffke.parameters import DFFKE
from node.algorithms.dffke.roles import Knowledge
from node.algorithms.dffke.synthetic import Auxiliary
from node.assignment import derive_seed
from node.learning.aggregation import State
from node.learning.training import Scope

MEDIA = ("private", "synthetic")


def train_alone(client: LearningNode, state: State, params: DFFKE, t: int) -> State:
    """Equation 9, for all epochs of a client's round."""
    moments: State = {}
    for epoch in range(1, (params.first_epochs if t == 1 else params.epochs) + 1):
        done = client.learner.apply(train_epoch, state, moments, params, seed_of(client, "epoch", t, epoch))
        state, moments = done.state, done.moments
        if done.accuracy >= params.train_accuracy:
            break
    return state


def share(
    clients: Mapping[str, LearningNode], states: Mapping[str, State], params: DFFKE, t: int
) -> tuple[Knowledge, dict[str, Tensor]]:
    """The knowledge that the clients share with the coordinator, and the private images it comes from."""
    models, embeddings, labels, pictures = {}, {}, {}, {}
    for name, client in clients.items():
        seed = seed_of(client, "embeddings", t)
        released, labels[name] = client.learner.apply(embed, states[name], params, seed)
        embeddings[name] = released.values
        models[name] = ClientModel(client.node.model, dict(client.node.model_params), states[name])
        x, _ = client.learner.train_data
        pictures[name] = client.learner.normalise(x[embedded(len(x), params, torch.Generator().manual_seed(seed))])
    return Knowledge(models, embeddings, labels, dict.fromkeys(models, t)), pictures


def decode(
    kept: Auxiliary, knowledge: Knowledge, params: DFFKE, client: LearningNode, t: int
) -> tuple[Auxiliary, dict[str, Tensor]]:
    """Equations 10 to 12: the synthetic images of each client."""
    pictures, seed = pictures_of(client.learner), derive_seed(client.node.index, "coordinator", str(t))
    docked = dock(knowledge.embeddings, knowledge.labels, kept.layers, pictures.classes, params, seed)
    decoder, _ = train_decoder(kept.decoder, knowledge.models, docked.layers, docked.translated, pictures, params, seed)
    made = {name: synthesise(decoder, values, pictures, params).clone() for name, values in docked.translated.items()}
    return Auxiliary(decoder, docked.layers), made


def says(client: LearningNode, state: State, x: Tensor) -> Tensor:
    """The logits of a client's model."""
    client.learner.set(state)
    with torch.no_grad():
        logits: Tensor = client.learner.model.eval()(x)
    return logits


@dataclass(frozen=True, eq=False)
class Shown:
    """The images of a round, with the owners' logits at that time, and the labels that they are made for."""

    x: Mapping[str, Tensor]
    logits: Mapping[str, Tensor]
    labels: Mapping[str, Labels]

    def to(self, student: str) -> Taught:
        """The images and logits of all clients but the student."""
        others = [name for name in self.x if name != student]
        return torch.cat([self.x[name] for name in others]), torch.cat([self.logits[name] for name in others])


def recognised(clients: Mapping[str, LearningNode], states: Mapping[str, State], shown: Sequence[Shown]) -> float:
    """The share of images, in %, to which the owner's model gives the label that they are made for."""
    hits = [
        np.mean(says(client, states[name], each.x[name]).argmax(1).numpy() == each.labels[name])
        for each in shown
        for name, client in clients.items()
    ]
    return round(100 * float(mean(hits)), 1)


def benchmark(
    overrides: Sequence[str], embeddings: int, rounds: int, medium: str, fresh: bool, memory_from: int | None
) -> list[dict[str, float]]:
    nodes, given = learning_nodes("papers/dffke-small.yaml", overrides)
    assert isinstance(given, DFFKE)
    params = replace(given, embeddings=embeddings)
    clients = {name: each for name, each in nodes.items() if each.node.samples}
    states = {name: each.learner.initial() for name, each in clients.items()}
    some = next(iter(clients.values()))
    kept = first = Auxiliary(new_decoder(pictures_of(some.learner), params, seed=1))
    shown: list[Shown] = []
    found = []
    for t in range(1, rounds + 1):
        states = {name: train_alone(each, states[name], params, t) for name, each in clients.items()}
        row = {"round": t, "alone": accuracy(clients, states)}
        knowledge, x = share(clients, states, params, t)
        if medium == "synthetic":
            kept, x = decode(first if fresh else kept, knowledge, params, some, t)
        logits = {name: says(each, states[name], x[name]) for name, each in clients.items()}
        current = Shown(x, logits, knowledge.labels)
        row["recognised"] = recognised(clients, states, [current])
        if shown:
            row["remembered"] = recognised(clients, states, shown)
        for name, client in clients.items():
            done = client.learner.apply(
                learn, states[name], current.to(name), reviewed(shown, current, name, memory_from), params, t
            )
            states[name] = done.state
        shown.append(current)
        found.append(row | {"exchanged": accuracy(clients, states), "own": accuracy(clients, states, "own")})
    return found


def reviewed(shown: Sequence[Shown], current: Shown, student: str, memory_from: int | None) -> Taught:
    """What the student's second steps learn from: past rounds from ``memory_from`` on, or the current round."""
    if memory_from is None:
        return NOTHING
    past = [each.to(student) for each in shown[memory_from - 1 :]] or [current.to(student)]
    pictures, logits = zip(*past, strict=True)
    return torch.cat(pictures), torch.cat(logits)


def accuracy(clients: Mapping[str, LearningNode], states: Mapping[str, State], scope: Scope = "global") -> float:
    scores = [each.learner.evaluate(states[name], scope, 1000).accuracy for name, each in clients.items()]
    return round(100 * mean(scores), 1)


def seed_of(client: LearningNode, *purpose: object) -> int:
    return derive_seed(client.node.index, *map(str, purpose))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--samples", type=int, default=400, help="of each client")
    parser.add_argument("--embeddings", type=int, default=400, help="of as many of them")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1, help="of the division of the data and the first weights")
    parser.add_argument("--pictures", nargs="+", default=MEDIA, choices=MEDIA)
    parser.add_argument("--fresh", action="store_true", help="a new decoder in each round")
    parser.add_argument("--memory-from", type=int, metavar="R", help="review images of past rounds from R on")
    parser.add_argument("--set", action="append", default=[], dest="overrides", help="as for `up`")
    asked = parser.parse_args()
    changes = [f"data.dataset={asked.data}", f"data.samples_per_client={asked.samples}", f"seed={asked.seed}"]
    changes += asked.overrides
    results = {
        each: benchmark(changes, asked.embeddings, asked.rounds, each, asked.fresh, asked.memory_from)
        for each in asked.pictures
    }
    print(json.dumps({"changes": changes, "embeddings": asked.embeddings, **results}, indent=1))
