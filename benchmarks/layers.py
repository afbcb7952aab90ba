"""FedEDS' stochastic layer: what does it let through to a peer, and what does it hide?

    python -m benchmarks.layers [--data fashion-mnist] [--model cnn] [--samples 300] [--seeds 1 2 3]

Two clients have five labels each. Each learns for five epochs from its own pictures and from the other's encrypted set.
Prints one JSON object; for each layer, means over the clients and the seeds:

    set             accuracy on the other's encrypted pictures through the other's layer, in %
    plain           accuracy on plain test pictures of the labels that the client never saw, in %
    resemblance     median absolute correlation of an encrypted picture with the picture it was made from
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from functools import partial
from statistics import mean, stdev

import numpy as np
import torch

from node.algorithms.fededs.encrypted import (
    Distillation,
    EncryptedSet,
    FeatureNoise,
    Floats,
    stochastic_layer,
    through,
    to_input,
)
from node.algorithms.fededs.encryptor import encrypt, recognised
from node.algorithms.fededs.parameters import FedEDS
from node.learning.data.datasets import Prepared, prepare
from node.learning.local_training import EVALUATION_BATCH
from node.learning.models import ModelPool, build
from node.learning.training import Learner
from orchestrator.planning.learning.dataset import cache_directory

LAYERS = ("gauss", "near-identity", "noise", "none")
CLASSES, EPOCHS = 10, 5


def clients(data: Prepared, model: str, samples: int, seed: int) -> list[Learner]:
    """A client with labels 0 to 4 and one with 5 to 9, which begin from the same model."""
    pool = ModelPool(partial(build, model, data.shape, CLASSES, seed))
    random, made = np.random.default_rng(seed), []
    for name, mine in (("edge-0", data.train_labels < 5), ("edge-1", data.train_labels >= 5)):
        indices = random.permutation(np.flatnonzero(mine))[:samples]
        made.append(Learner(pool, data, seed, name, train=np.sort(indices)))
    return made


def sets(parties: list[Learner], params: FedEDS, seed: int) -> Iterator[EncryptedSet]:
    """The encrypted set of each client, against the model that it trained alone."""
    for place, learner in enumerate(parties):
        features = learner.initial()["classifier.weight"].shape[1]
        yield encrypted(learner, stochastic_layer(features, 1000 * seed + place, params.layer), params)


def encrypted(learner: Learner, layer: Floats, params: FedEDS) -> EncryptedSet:
    """A client's set through a layer, against the model that it trained alone (Algorithm 1)."""
    theta = learner.train(learner.initial(), params.training(params.model_epochs), 0).weights
    return encrypt(learner, theta, layer, params)


def taught(learner: Learner, other: EncryptedSet, params: FedEDS, seed: int) -> tuple[float, float]:
    """A client's accuracy on the other's encrypted set and on plain test pictures of the other's labels."""
    noise = seed if params.layer == "noise" else None
    order = [np.random.default_rng([seed, epoch]).permutation(len(other)) for epoch in range(EPOCHS)]
    term = Distillation(tuple(other.taken(each) for each in order), 0.5, params.batch_size, "mean", noise)
    learner.set(learner.train(learner.initial(), params.training(EPOCHS), 1, term, 0.5).weights)
    model, layer = learner.model.eval(), torch.from_numpy(other.layer)
    fresh = None if noise is None else FeatureNoise(noise)
    x, y = (torch.from_numpy(np.array(learner.data.array(name))) for name in ("x_test", "y_test"))
    theirs = (y >= 5) if learner.node == "edge-0" else (y < 5)
    x, y = x[theirs][:2000], y[theirs][:2000]
    with torch.inference_mode():
        logits = through(model, layer, to_input(torch.from_numpy(other.images), other.low, other.high), fresh)
        plain = [model(learner.normalise(part)) for part in torch.split(x, EVALUATION_BATCH)]
    on_set = float(np.mean(logits.numpy().argmax(1) == other.outputs.argmax(1)))
    return on_set, float((torch.cat(plain).argmax(1) == y).float().mean())


def benchmark(data: Prepared, model: str, samples: int, layer: str, seed: int) -> dict[str, float]:
    params = FedEDS(layer=layer, encryptor_width=8, batch_size=16)
    parties = clients(data, model, samples, seed)
    made = list(sets(parties, params, seed))
    scores = [taught(learner, other, params, seed) for learner, other in zip(parties, reversed(made), strict=True)]
    seen = [recognised(learner, own)[1] for learner, own in zip(parties, made, strict=True)]
    return {
        "set": 100 * mean(on_set for on_set, _ in scores),
        "plain": 100 * mean(plain for _, plain in scores),
        "resemblance": mean(seen),
    }


def summary(rows: list[dict[str, float]]) -> dict[str, list[float]]:
    """Mean and standard deviation of each figure."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return {name: [round(mean(values), 2), round(stdev(values), 2)] for name, values in columns.items()}


def arguments(description: str, samples: int) -> argparse.ArgumentParser:
    """Those of a benchmark with private images. ``samples``: the usual number of each client."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--samples", type=int, default=samples, help="of each client")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="two or more")
    return parser


if __name__ == "__main__":
    asked = arguments(__doc__ or "", 300).parse_args()
    torch.set_num_threads(1)
    prepared = prepare(asked.data, cache_directory())
    found = {
        layer: summary([benchmark(prepared, asked.model, asked.samples, layer, seed) for seed in asked.seeds])
        for layer in LAYERS
    }
    print(json.dumps({"data": asked.data, "model": asked.model, "samples": asked.samples, **found}, indent=1))
