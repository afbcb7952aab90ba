"""The reconstruction of pictures from their embeddings: the model inversion attack of DFFKE's appendix C, figure 6.

The attacker knows a client's encoder h(·; θ^h) and the embeddings E of its private pictures x, as DFFKE's coordinator
does. It trains an inversion model G on its own pictures x′, and applies G to E:

    G ← min MSE(G(h(x′; θ^h) + noise), x′),   x̂ = G(E)

x′ are from the test part of the data set, on which no client trains. G is a `Decoder` with the input E. If E was
noised, the variance of the noise is the excess of E's variance over that of h(x′; θ^h). The paper only names the idea;
x′, G and the noise are this implementation's choice.

The owner compares x̂ with x, and also two guesses that need no attack: the class mean of all x′ with the label of x,
which is sent in clear, and the synthetic picture Dec(Ẽ) of x, which every client can make.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import mse_loss

from node.algorithms.dffke.docking import Embeddings
from node.algorithms.dffke.embedding_decoder import ClientModel, Decoder
from node.algorithms.dffke.gaussian_mechanism import clip_rows
from node.algorithms.dffke.knowledge_exchange import embedded, pictures_of
from node.algorithms.dffke.parameters import DFFKE
from node.algorithms.dffke.synthetic import Transfer
from node.learning.devices import as_array, load_state, seeded
from node.learning.local_training import EVALUATION_BATCH
from node.learning.optimizers import Adam
from node.learning.training import Learner

Bytes = NDArray[np.uint8]  # pictures (samples, channels, height, width)
LARGEST = 1 << 20  # bytes of pictures that one client records at most


@dataclass(frozen=True)
class Score:
    """The quality of guesses at n private pictures with values from 0 to 1: the mean squared error, and the share of
    guesses that are nearer to their own picture than to any other of the n. By chance this share is 1 / n."""

    mse: float
    recognised: float


def invert(
    learner: Learner,
    client: ClientModel,
    embeddings: Embeddings,
    synthetic: Transfer,
    params: DFFKE,
    seed: int,
) -> dict[str, Bytes]:
    """Attack a client at the coordinator, whose ``learner`` this is. Return "reconstructed", the pictures guessed from
    ``embeddings`` (n, d), and "synthetic", the client's synthetic pictures; each (n, *shape)."""
    pictures = pictures_of(learner)
    random = torch.Generator().manual_seed(seed)
    mine = torch.from_numpy(np.array(learner.data.array("x_test")))
    mine = mine[torch.randperm(len(mine), generator=random)[: params.inversion_samples]].to(learner.device)
    encoder = client.made(pictures).extractor.to(learner.device)
    with torch.no_grad():
        known = torch.cat([encoder(learner.normalise(part)) for part in torch.split(mine, EVALUATION_BATCH)])
    if params.privacy == "clip":
        known = clip_rows(known, params.clip_norm)
    sent = torch.tensor(embeddings, device=learner.device)
    if params.privacy == "none":
        noise = 0.0
    else:
        noise = noise_deviation(sent, known)
    generator = train_inversion(known, mine / 255, noise, params, seed)
    decoder = Decoder(params.dimension, pictures.shape, params.width).to(learner.device)
    load_state(decoder, synthetic.decoder)
    return {
        "reconstructed": _bytes_of(generator, sent),
        "synthetic": _bytes_of(decoder, torch.tensor(synthetic.embeddings, device=learner.device)),
    }


def noise_deviation(sent: Tensor, known: Tensor) -> float:
    """Estimate the standard deviation of the noise in embeddings (n, d) from embeddings (m, d) of other pictures
    without noise: variances add up."""
    more = sent.var(dim=0, correction=0).mean() - known.var(dim=0, correction=0).mean()
    return float(more.clamp(min=0).sqrt())


def train_inversion(
    known: Tensor,
    mine: Tensor,
    noise: float,
    params: DFFKE,
    seed: int,
) -> Decoder:
    """G ← min MSE(G(known + N(0, noise² I)), mine) for pictures (m, *shape) with values from 0 to 1 and their
    embeddings (m, d), by Adam over ``inversion_epochs`` passes."""
    random = torch.Generator().manual_seed(seed)
    with seeded(seed):
        generator = Decoder(known.shape[1], tuple(mine.shape[1:]), params.width).to(known.device).train()
    step = Adam(list(generator.parameters()), params.learning_rate)
    for _ in range(params.inversion_epochs):
        for batch in torch.split(torch.randperm(len(mine), generator=random).to(known.device), params.batch_size):
            noised = known[batch] + noise * torch.randn(known[batch].shape, generator=random).to(known.device)
            step(mse_loss(generator(noised), mine[batch]))
    return generator


def judge(
    learner: Learner,
    guesses: Mapping[str, Bytes],
    params: DFFKE,
    seed: int,
) -> dict[str, Any]:
    """Score guesses at the pictures whose embeddings the client, whose ``learner`` this is, shared with this ``seed``.

    Return the fields for the record: the number of ``samples``, the `Score` of each kind of guess and of the class
    means, and ``inversion`` of the ``private`` pictures and of the guesses, in base64, with their ``shape``.
    Only here do private pictures leave the client, for the record of the run.
    """
    x, y = learner.train_data
    chosen = embedded(len(y), params, torch.Generator().manual_seed(seed)).to(x.device)
    private = as_array(x[chosen])
    kinds = {**guesses, "class_mean": class_means(learner)[as_array(y[chosen])]}
    shown = min(params.inversion, LARGEST // (private[0].size * (1 + len(kinds))))
    return {
        "samples": len(private),
        "shape": list(private.shape[1:]),
        "scores": {kind: asdict(score(made, private)) for kind, made in kinds.items()},
        "pictures": {
            kind: [base64.b64encode(picture.tobytes()).decode() for picture in made[:shown]]
            for kind, made in {"private": private, **kinds}.items()
        },
    }


def class_means(learner: Learner) -> Bytes:
    """The mean test picture of each class (classes, *shape). The mean of all pictures for a class without pictures."""
    x = np.array(learner.data.array("x_test"))
    y = np.array(learner.data.array("y_test"))
    means = [
        x[y == label].mean(axis=0) if (y == label).any() else x.mean(axis=0) for label in range(learner.data.classes)
    ]
    return np.rint(means).astype(np.uint8)


def score(guesses: Bytes, private: Bytes) -> Score:
    """Compare guesses with the private pictures, both (n, *shape)."""
    ours, theirs = (
        torch.from_numpy(values.reshape(len(values), -1) / np.float32(255)) for values in (guesses, private)
    )
    nearest = torch.cdist(ours, theirs).argmin(dim=1)
    recognised = (nearest == torch.arange(len(theirs))).float().mean()
    return Score(float(mse_loss(ours, theirs)), float(recognised))


def _bytes_of(generator: Decoder, embeddings: Tensor) -> Bytes:
    with torch.no_grad():
        made = torch.cat([generator.eval()(part) for part in torch.split(embeddings, EVALUATION_BATCH)])
    return as_array((made * 255).round().to(torch.uint8))
