"""What does FedFeat+'s cloud see of private images in the features that clients send to it?

    python -m benchmarks.inversion [--data fashion-mnist] [--rounds 3] [--clients 2] [--seeds 1 2 3] [--image FILE.png]

Runs `scenarios/papers/fedfeat-shards.yaml` with each protection. After the last round the cloud attacks some clients.
It has a client's extractor and 5,000 test images, and makes the best linear guess of an image from its features:

    x̂ = E[x] + Cov(x, f) (Cov(f) + σ² I)⁻¹ (f − E[f])

with means and covariances over the test images, and σ, the deviation of the noise, which it knows. A trained network
may see more. Prints one JSON object, in %, means and standard deviations over the seeds:

    accuracy        of the global model on 2,000 test images: what the protection costs
    recognised      guesses that are nearer to their own image than to any other of the client's; chance is 100 / images
    label           guesses to which a network that was trained on the test images gives the label of the private image
    error           mean squared error of the guesses, not in %, for values from 0 to 1

``mean of the label`` guesses the mean test image of the label, which is sent in clear: no attack. ``private`` is the
private image itself. --image writes private images of the first client, and below them the guesses for each protection.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.learners import LearningNode, learning_nodes
from node.algorithms.dffke.inversion import class_means, score
from node.algorithms.fedfeat import Shared, clipping, retrain, sensitivity, train_client
from node.algorithms.parameters import FedFeat
from node.learning.aggregation import State, weighted_mean
from node.learning.batching import batches
from node.learning.local_training import EVALUATION_BATCH
from node.learning.models import Model, build
from node.learning.optimizers import Adam
from node.learning.privacy import noise_scale
from node.learning.training import Learner
from orchestrator.report.inversion import png

PROTECTIONS: dict[str, dict[str, Any]] = {
    "no noise": {"noise": "none"},
    "published": {},
    "noise on what is sent": {"noise_in": "sent"},
    "clipped, noise on what is sent": {"noise_in": "sent", "clip_norm": 0.5},
}
PUBLIC, SHOWN = 5000, 12  # test images that the cloud learns from; images in the picture

Images = NDArray[np.uint8]


def train(
    nodes: Mapping[str, LearningNode], params: FedFeat, rounds: int
) -> tuple[State, dict[str, tuple[State, Shared]]]:
    """The global model after the rounds, and what each client sent in the last one: its model and features."""
    cloud, clients = nodes["cloud"].learner, {name: each.learner for name, each in nodes.items() if each.node.samples}
    w, sent = cloud.initial(), {}
    for t in range(1, rounds + 1):
        results = {name: train_client(client, w, params, t) for name, client in clients.items()}
        w = weighted_mean([each.weights for each in results.values()], [each.samples for each in results.values()])
        sent = {name: (each.weights, each.shared) for name, each in results.items() if each.shared is not None}
        shared = [each for _, each in sent.values()]
        w = retrain(cloud, w, [each.features for each in shared], [each.labels for each in shared], params, t)
    return w, sent


def private_images(learner: Learner, params: FedFeat, t: int) -> Images:
    """The images of the features that `train_client` shares, in their order."""
    drawn = batches(learner.samples, params, learner.random("batches", t))
    order = torch.cat([chosen for epoch, _, chosen in drawn if epoch == params.epochs - 1])
    images: Images = learner.train_data[0][order].numpy()
    return images


def invert(cloud: Learner, public: Tensor, sent: tuple[State, Shared], params: FedFeat) -> Images:
    """The images that the cloud guesses from a client's features."""
    weights, shared = sent
    cloud.set(weights)
    clip = clipping(params)
    with torch.no_grad():
        extractor = cloud.model.eval().extractor
        known = torch.cat([extractor(cloud.normalise(part)) for part in torch.split(public, EVALUATION_BATCH)])
        f = (known if clip is None else clip.clip(known)).double().numpy()
    x = public.flatten(1).double().numpy()
    deviation = noise_scale(params.noise, params.epsilon, params.delta, sensitivity(params))
    centred, noise = f - f.mean(axis=0), len(f) * (deviation**2 + 1e-3) * np.eye(f.shape[1])
    slope = np.linalg.solve(centred.T @ centred + noise, centred.T @ x)
    guesses = x.mean(axis=0) + (shared.features - f.mean(axis=0)) @ slope
    made: Images = guesses.clip(0, 255).round().astype(np.uint8).reshape(-1, *public.shape[1:])
    return made


def classifier(cloud: Learner, public: Tensor, labels: Tensor, seed: int) -> Model:
    """A network that the cloud trains on the public images."""
    model = build("cnn", cloud.data.shape, cloud.data.classes, seed).train()
    step, random = Adam(list(model.parameters()), 0.002), torch.Generator().manual_seed(seed)
    for _ in range(5):
        for batch in torch.split(torch.randperm(len(public), generator=random), 32):
            step(cross_entropy(model(cloud.normalise(public[batch])), labels[batch]))
    return model.eval()


def benchmark(data: str, rounds: int, clients: int, seed: int) -> tuple[dict[str, dict[str, float]], dict[str, Images]]:
    """The figures of each protection, and images of the first client."""
    overrides = [f"data.dataset={data}", "algorithm.epsilon=2", f"seed={seed}"]
    nodes, given = learning_nodes("papers/fedfeat-shards.yaml", overrides)
    assert isinstance(given, FedFeat)
    cloud = nodes["cloud"].learner
    x, y = (torch.from_numpy(np.array(cloud.data.array(name))[:PUBLIC]) for name in ("x_test", "y_test"))
    judge = classifier(cloud, x, y, seed)

    def figures(guesses: Images, private: Images, labels: NDArray[Any]) -> dict[str, float]:
        with torch.no_grad():
            says = judge(cloud.normalise(torch.from_numpy(guesses))).argmax(1).numpy()
        scores = score(guesses, private)
        return {
            "recognised": 100 * scores.recognised,
            "label": 100 * float(np.mean(says == labels)),
            "error": scores.mse,
        }

    rows: dict[str, list[dict[str, float]]] = defaultdict(list)
    accuracies: dict[str, float] = {}
    shown: dict[str, Images] = {}
    for name, changes in PROTECTIONS.items():
        params = replace(given, **changes)
        w, sent = train(nodes, params, rounds)
        accuracies[name] = 100 * cloud.evaluate(w, "global", given.evaluate_samples, clipping(params)).accuracy
        for victim in list(sent)[:clients]:
            private, labels = private_images(nodes[victim].learner, params, rounds), sent[victim][1].labels
            guesses = {name: invert(cloud, x, sent[victim], params)}
            if name == "no noise":
                guesses |= {"mean of the label": class_means(cloud)[labels], "private": private}
            for kind, made in guesses.items():
                rows[kind].append(figures(made, private, labels))
            if victim == next(iter(sent)):
                shown |= {"private": private[:SHOWN], name: guesses[name][:SHOWN]}
    found = {kind: {key: mean(row[key] for row in each) for key in each[0]} for kind, each in rows.items()}
    for name, accuracy in accuracies.items():
        found[name]["accuracy"] = accuracy
    return found, shown


def grid(rows: Mapping[str, Images]) -> bytes:
    """A PNG file of one row of images for each entry, with a grey line between them."""
    lines = [
        np.concatenate([np.pad(each, ((0, 0), (1, 1), (1, 1)), constant_values=128) for each in row], axis=2)
        for row in rows.values()
    ]
    whole = np.concatenate(lines, axis=1).repeat(2, axis=1).repeat(2, axis=2)
    return png(whole.tobytes(), *whole.shape)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=2, help="that are attacked")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="two or more")
    parser.add_argument("--image", type=Path, help="a PNG file to write")
    asked = parser.parse_args()
    runs = []
    for seed in asked.seeds:
        runs.append(benchmark(asked.data, asked.rounds, asked.clients, seed))
        print(seed, json.dumps(runs[-1][0]), file=sys.stderr)
    if asked.image:
        asked.image.write_bytes(grid(runs[0][1]))
    summary = {
        name: {
            key: [round(f([row[name][key] for row, _ in runs]), 3) for f in (mean, stdev)] for key in runs[0][0][name]
        }
        for name in runs[0][0]
    }
    print(json.dumps({"data": asked.data, "rounds": asked.rounds, "clients": asked.clients, **summary}, indent=1))
