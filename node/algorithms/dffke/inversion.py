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
    """Attack a client with the coordinator's ``learner``. Return "reconstructed", the pictures guessed from
    ``embeddings`` (n, d), and "synthetic", the client's synthetic pictures; each (n, *shape)."""
    device = learner.device
    pictures = pictures_of(learner)
    random = torch.Generator().manual_seed(seed)
    test_pictures = np.array(learner.data.array("x_test"))
    x = torch.from_numpy(test_pictures)
    order = torch.randperm(len(x), generator=random)
    chosen = order[: params.inversion_samples]
    x = x[chosen].to(device)
    known = _encoded(learner, client, x)
    if params.privacy == "clip":
        known = clip_rows(known, params.clip_norm)
    sent = torch.tensor(embeddings, device=device)
    if params.privacy == "none":
        noise = 0.0
    else:
        noise = noise_deviation(sent, known)
    g = train_inversion(known, x / 255, noise, params, seed)
    decoder = Decoder(params.dimension, pictures.shape, params.width)
    load_state(decoder.to(device), synthetic.decoder)
    translated = torch.tensor(synthetic.embeddings, device=device)
    return {
        "reconstructed": _bytes_of(g, sent),
        "synthetic": _bytes_of(decoder, translated),
    }


def _encoded(learner: Learner, client: ClientModel, x: Tensor) -> Tensor:
    """h(x; θ^h) of bytes x with the client's encoder."""
    model = client.load(pictures_of(learner), learner.known)
    encoder = model.extractor.to(learner.device)
    parts = []
    with torch.no_grad():
        for batch in torch.split(x, EVALUATION_BATCH):
            inputs = learner.normalise(batch)
            parts.append(encoder(inputs))
        return torch.cat(parts)


def noise_deviation(sent: Tensor, known: Tensor) -> float:
    """Estimate the standard deviation of the noise in embeddings (n, d) from embeddings (m, d) of other pictures
    without noise: variances add up."""
    variance_sent = sent.var(dim=0, correction=0).mean()
    variance_known = known.var(dim=0, correction=0).mean()
    excess = variance_sent - variance_known
    variance = excess.clamp(min=0)
    return float(variance.sqrt())


def train_inversion(
    known: Tensor,
    x: Tensor,
    noise: float,
    params: DFFKE,
    seed: int,
) -> Decoder:
    """G ← min MSE(G(known + N(0, noise² I)), x) for pictures (m, *shape) with values from 0 to 1 and their
    embeddings (m, d), by Adam over ``inversion_epochs`` passes."""
    device = known.device
    random = torch.Generator().manual_seed(seed)
    shape = tuple(x.shape[1:])
    with seeded(seed):
        g = Decoder(known.shape[1], shape, params.width)
    g.to(device).train()
    weights = list(g.parameters())
    step = Adam(weights, params.learning_rate)
    for _ in range(params.inversion_epochs):
        order = torch.randperm(len(x), generator=random)
        for batch in torch.split(order.to(device), params.batch_size):
            e = known[batch]
            standard_normal = torch.randn(e.shape, generator=random)
            noised = e + noise * standard_normal.to(device)
            guesses = g(noised)
            step(mse_loss(guesses, x[batch]))
    return g


def judge(
    learner: Learner,
    guesses: Mapping[str, Bytes],
    params: DFFKE,
    seed: int,
) -> dict[str, Any]:
    """Score guesses at the pictures that the client with this ``learner`` embedded and shared with this ``seed``.

    Return the fields for the record: the number of ``samples``, the `Score` of each kind of guess and of the class
    means, and ``inversion`` of the ``private`` pictures and of the guesses, in base64, with their ``shape``.
    Only here do private pictures leave the client, for the record of the run.
    """
    x, y = learner.train_data
    random = torch.Generator().manual_seed(seed)
    chosen = embedded(len(y), params, random)
    chosen = chosen.to(x.device)
    private = as_array(x[chosen])
    labels = as_array(y[chosen])
    means = class_means(learner)
    kinds = {**guesses, "class_mean": means[labels]}
    all_kinds = 1 + len(kinds)
    bytes_each = private[0].size * all_kinds
    shown = min(params.inversion, LARGEST // bytes_each)
    scores = {}
    pictures = {"private": _base64(private[:shown])}
    for kind, guessed in kinds.items():
        scores[kind] = asdict(score(guessed, private))
        pictures[kind] = _base64(guessed[:shown])
    return {
        "samples": len(private),
        "shape": list(private.shape[1:]),
        "scores": scores,
        "pictures": pictures,
    }


def _base64(pictures: Bytes) -> list[str]:
    encoded = []
    for picture in pictures:
        text = base64.b64encode(picture.tobytes())
        encoded.append(text.decode())
    return encoded


def class_means(learner: Learner) -> Bytes:
    """The mean test picture of each class (classes, *shape). The mean of all pictures for a class without pictures."""
    x = np.array(learner.data.array("x_test"))
    y = np.array(learner.data.array("y_test"))
    means = []
    for label in range(learner.data.classes):
        of_class = y == label
        pictures = x[of_class] if of_class.any() else x
        means.append(pictures.mean(axis=0))
    return np.rint(means).astype(np.uint8)


def score(guesses: Bytes, private: Bytes) -> Score:
    """Compare guesses with the private pictures, both (n, *shape)."""
    ours = _from_0_to_1(guesses)
    theirs = _from_0_to_1(private)
    distances = torch.cdist(ours, theirs)
    nearest = distances.argmin(dim=1)
    own = torch.arange(len(theirs))
    recognised = (nearest == own).float().mean()
    mse = mse_loss(ours, theirs)
    return Score(float(mse), float(recognised))


def _from_0_to_1(pictures: Bytes) -> Tensor:
    """Pictures as rows (n, bytes of a picture)."""
    rows = pictures.reshape(len(pictures), -1)
    return torch.from_numpy(rows / np.float32(255))


def _bytes_of(generator: Decoder, embeddings: Tensor) -> Bytes:
    generator.eval()
    parts = []
    with torch.no_grad():
        for batch in torch.split(embeddings, EVALUATION_BATCH):
            parts.append(generator(batch))
        pictures = torch.cat(parts)
    steps = (pictures * 255).round()
    return as_array(steps.to(torch.uint8))
