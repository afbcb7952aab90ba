"""What does a peer of FedEDS see of private images in the encrypted set that it receives?

    python -m benchmarks.encrypted_images [--data fashion-mnist] [--model cnn] [--samples 100] [--seeds 1 2 3]
                                          [--layers gauss none]

A client with labels 0 to 4 makes its set, which the peer receives with the layer. The peer trains an inverse network,
a U-Net like the encryptor, on pairs of images and encrypted images, and applies it to the set. Prints one JSON object;
for each layer, means and standard deviations over the seeds. Shares of the images, in %, that a guess recognises: it is
nearer to its own image than to any other of the client. By chance this is 100 / images.

    labels          no attack: the mean test image of the label that the outputs show
    encryptors      pairs of other images with the same labels, which the peer encrypts with the client's layer, by
                    models and encryptors that it trains as the client does
    half            pairs of one half of the set, of which the peer has the images; the share of the other half
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import mse_loss

from benchmarks.layers import CLASSES, LAYERS, arguments, encrypted, summary
from node.algorithms.dffke.inversion import class_means, score
from node.algorithms.fededs.encrypted import EncryptedSet, stochastic_layer, to_input
from node.algorithms.fededs.encryptor import unet
from node.algorithms.fededs.parameters import FedEDS
from node.learning.data.datasets import Prepared, prepare
from node.learning.models import ModelPool, build
from node.learning.optimizers import Adam
from node.learning.training import Learner
from orchestrator.planning.learning.dataset import cache_directory

ENCRYPTORS, STEPS = 3, 250  # encryptors that the peer trains, and mini-batches of its inverse network


def learners(data: Prepared, model: str, samples: int, seed: int) -> list[Learner]:
    """The client, and the peer as the trainer of each of its encryptors. None has an image of another."""
    pool = ModelPool(partial(build, model, data.shape, CLASSES, seed))
    order = np.random.default_rng(seed).permutation(np.flatnonzero(data.train_labels < 5))
    parts = np.split(order[: samples * (1 + ENCRYPTORS)], 1 + ENCRYPTORS)
    return [Learner(pool, data, seed, f"edge-{place}", train=np.sort(part)) for place, part in enumerate(parts)]


def benchmark(data: Prepared, model: str, samples: int, layer: str, seed: int) -> dict[str, float]:
    params = FedEDS(layer=layer, encryptor_width=8, batch_size=16)
    client, *peer = learners(data, model, samples, seed)
    shared = stochastic_layer(client.initial()["classifier.weight"].shape[1], seed, layer)
    made, (private, _) = encrypted(client, shared, params), client.train_data
    own = [encrypted(each, shared, params) for each in peer]
    sent, others = standardised(made), torch.cat([standardised(each) for each in own])
    half = len(private) // 2
    guesses = {
        "labels": class_means(client)[made.outputs.argmax(1)],
        "encryptors": inverted(others, torch.cat([each.train_data[0] for each in peer]), sent, params, seed),
        "half": inverted(sent[:half], private[:half], sent[half:], params, seed),
    }
    return {name: 100 * score(each, private[-len(each) :].numpy()).recognised for name, each in guesses.items()}


def standardised(made: EncryptedSet) -> Tensor:
    """The encrypted images with mean 0 and standard deviation 1, since every encryptor has another range."""
    images = to_input(torch.from_numpy(made.images), made.low, made.high)
    return (images - images.mean()) / images.std()


def inverted(known: Tensor, images: Tensor, sent: Tensor, params: FedEDS, seed: int) -> NDArray[Any]:
    """The images that an inverse network guesses from what was ``sent``, after training on pairs."""
    random, wanted = torch.Generator().manual_seed(seed), images.float() / 255
    network = unet(tuple(images.shape[1:]), params.encryptor_width, seed).train()
    step = Adam(list(network.parameters()), 0.002)
    for _ in range(STEPS):
        batch = torch.randint(len(known), (params.batch_size,), generator=random)
        step(mse_loss(network(known[batch]), wanted[batch]))
    with torch.no_grad():
        made: NDArray[Any] = (network.eval()(sent) * 255).clamp(0, 255).round().to(torch.uint8).numpy()
    return made


if __name__ == "__main__":
    parser = arguments(__doc__ or "", 100)
    parser.add_argument("--layers", nargs="+", default=["gauss", "none"], choices=LAYERS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    prepared = prepare(asked.data, cache_directory())
    rows: dict[str, list[dict[str, float]]] = {}
    for layer in asked.layers:
        rows[layer] = []
        for seed in asked.seeds:
            rows[layer].append(benchmark(prepared, asked.model, asked.samples, layer, seed))
            print(layer, seed, json.dumps(rows[layer][-1]), file=sys.stderr)
    found = {layer: summary(each) for layer, each in rows.items()}
    print(json.dumps({"data": asked.data, "model": asked.model, "samples": asked.samples, **found}, indent=1))
