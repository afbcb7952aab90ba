"""Should FedFeat+'s cloud retrain the classifier on the clients' features, or on those of the averaged extractor?

    python -m benchmarks.features [--data cifar10] [--samples 600] [--rounds 1 5 10 15 20] [--seed 1]

Runs FedAvg of `scenarios/papers/fedfeat-shards.yaml` without noise. After each of the given rounds it retrains two
classifiers on the side: the first on the features that clients sent (of their own extractors, in their last epoch), the
second on features of the averaged extractor. Prints one JSON object; for each round, in %:

    sent            accuracy of the first classifier on the features it was trained on
    averaged        its accuracy on features of the same images by the averaged extractor, which it is combined with
    test            accuracies on 2,000 test images: FedAvg's own classifier, the first, and the second
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace

import torch

from benchmarks.learners import learning_nodes
from node.algorithms.fedfeat import Shared, extract, retrain, train_client
from node.algorithms.parameters import FedFeat
from node.learning.aggregation import State, weighted_mean
from node.learning.metrics import correct
from node.learning.training import Learner


def knows(cloud: Learner, weights: State, shared: Sequence[Shared]) -> float:
    """The accuracy of the classifier in `weights` on features."""
    cloud.set(weights)
    with torch.inference_mode():
        hits = [
            correct(cloud.model.classifier(torch.from_numpy(s.features)), torch.from_numpy(s.labels)) for s in shared
        ]
    return percent(sum(hits) / sum(len(each.labels) for each in shared))


def percent(fraction: float) -> float:
    return round(100 * fraction, 1)


def benchmark(overrides: Sequence[str], rounds: Sequence[int]) -> dict[str, object]:
    nodes, params = learning_nodes("papers/fedfeat-shards.yaml", overrides)
    assert isinstance(params, FedFeat)
    cloud, clients = nodes["cloud"].learner, [each.learner for each in nodes.values() if each.node.samples]
    without = replace(params, noise="none", features="last-epoch")
    w, found = cloud.initial(), []
    for t in range(1, max(rounds) + 1):
        results = [train_client(client, w, without, t) for client in clients]
        w = weighted_mean([each.weights for each in results], [each.samples for each in results])
        if t in rounds:
            sent = [each.shared for each in results if each.shared is not None]
            averaged = [extract(client, w, without, t) for client in clients]
            first, second = (
                retrain(cloud, w, [s.features for s in shared], [s.labels for s in shared], without, t)
                for shared in (sent, averaged)
            )
            fedavg, of_sent, of_averaged = (
                percent(cloud.evaluate(each, "global", params.evaluate_samples).accuracy) for each in (w, first, second)
            )
            test = {"fedavg": fedavg, "retrained on sent": of_sent, "retrained on averaged": of_averaged}
            scores = {"sent": knows(cloud, first, sent), "averaged": knows(cloud, first, averaged)}
            found.append({"round": t, **scores, "test": test})
    return {"changes": list(overrides), "rounds": found}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--samples", type=int, default=600, help="of each client")
    parser.add_argument("--rounds", type=int, nargs="+", default=[1, 5, 10, 15, 20], help="after which to measure")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    changes = [f"data.dataset={given.data}", f"data.samples_per_client={given.samples}", f"seed={given.seed}"]
    print(json.dumps(benchmark(changes, given.rounds), indent=1))
