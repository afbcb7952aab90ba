"""A client's steps in DFFKE: local training (equation 9), embeddings, and the exchange of knowledge on synthetic
pictures (equations 13 and 14). Embeddings and logits get the noise of equation 15 if it is requested.

The first argument of every step is the client's `Learner`, see `Learner.apply`. The memory of past rounds holds
decoders and embeddings; the pictures are made again for each review.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from node.algorithms.dffke.docking import Labels
from node.algorithms.dffke.embedding_decoder import Pictures, synthesise
from node.algorithms.dffke.gaussian_mechanism import Release, release
from node.algorithms.dffke.parameters import DFFKE
from node.algorithms.dffke.synthetic import Lesson, Transfer
from node.learning.aggregation import State
from node.learning.devices import as_array, seeded
from node.learning.local_training import EVALUATION_BATCH
from node.learning.metrics import correct
from node.learning.optimizers import Adam
from node.learning.training import Learner

Taught = tuple[Tensor, Tensor]
"""Pictures (n, channels, height, width) with their owners' logits (n, classes) or, if private, their labels (n,)."""

NOTHING: Taught = torch.empty(0), torch.empty(0)


@dataclass(frozen=True, eq=False)
class Epoch:
    """The result of one pass over a client's data. ``accuracy`` is that on its mini-batches as they were trained."""

    state: State
    moments: State
    loss: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class Exchanged:
    """A student's model after the exchange, and its mean divergence from current and past lessons during it."""

    state: State
    loss: float
    review_loss: float


def pictures_of(learner: Learner) -> Pictures:
    """The data set's facts about its pictures."""
    data = learner.data
    return Pictures(data.shape, data.classes, data.mean, data.std)


def train_epoch(
    learner: Learner,
    state: State,
    moments: State,
    params: DFFKE,
    seed: int,
) -> Epoch:
    """Make one pass of Adam over the client's data, min CE(f(x; θ_k), y). ``moments``: those of the previous pass."""
    learner.set(state)
    model = learner.model.train()
    x, y = learner.train_data
    step = Adam(list(model.parameters()), params.learning_rate).resumed(moments)
    loss = 0.0
    hits = 0
    with seeded(seed):  # dropout, too
        for batch in _shuffled(y, params):
            logits = model(learner.normalise(x[batch]))
            error = cross_entropy(logits, y[batch])
            step(error)
            loss += float(error.detach()) * len(batch) / len(y)
            hits += correct(logits, y[batch])
    return Epoch(learner.get(), step.state(), loss, hits / len(y))


def embed(
    learner: Learner,
    state: State,
    params: DFFKE,
    seed: int,
) -> tuple[Release, Labels]:
    """E_k = h(X_k; θ_k^h) (n, h_k) and Y_k (n,) of n random samples of the client, at most ``embeddings``."""
    learner.set(state)
    model = learner.model.eval()
    random = torch.Generator().manual_seed(seed)
    x, y = learner.train_data
    chosen = embedded(len(y), params, random).to(x.device)
    pictures = x[chosen]
    if x.dtype == torch.uint8:
        highest = 255.0
    else:
        highest = float(x.max())

    def encode(part: Tensor) -> Tensor:
        return _in_batches(model.extractor, learner.normalise(part))

    changed = lambda: encode(with_another_pixel(pictures, 0.0, highest, random))  # noqa: E731
    return release(encode(pictures), changed, params, len(y), random), as_array(y[chosen])


def embedded(count: int, params: DFFKE, random: torch.Generator) -> Tensor:
    """The ascending indices of the samples to embed among ``count``: the first draw of `embed`."""
    return torch.randperm(count, generator=random)[: params.embeddings].sort().values


def teach(
    learner: Learner,
    state: State,
    transfers: Sequence[Transfer],
    params: DFFKE,
    seed: int,
) -> list[Release]:
    """Ŷ_k = f(D̂_k; θ_k) (n, classes) on each of the client's own sets of synthetic pictures."""
    learner.set(state)
    model = learner.model.eval()
    random = torch.Generator().manual_seed(seed)
    released = []
    for transfer in transfers:
        made = _made(learner, transfer, params)
        lowest = float(made.min())
        highest = float(made.max())
        changed = lambda: _in_batches(model, with_another_pixel(made, lowest, highest, random))  # noqa: E731, B023
        noising = params.noising_of_logits()
        released.append(release(_in_batches(model, made), changed, noising, learner.samples, random))
    return released


def exchange(
    learner: Learner,
    state: State,
    lessons: Sequence[Lesson],
    reviews: Sequence[Lesson],
    params: DFFKE,
    seed: int,
) -> Exchanged:
    """Learn from the other clients: lessons are on the current synthetic pictures, reviews on those of the memory."""
    return learn(learner, state, _joined(learner, lessons, params), _joined(learner, reviews, params), params, seed)


def learn(
    learner: Learner,
    state: State,
    current: Taught,
    past: Taught,
    params: DFFKE,
    seed: int,
) -> Exchanged:
    """Train in ``exchange_epochs`` passes. Every step of Adam on current pictures, min KL[Ŷ_i ‖ f(D̂_i; θ_k)], is
    followed by a step on past pictures, min KL[Ŷ_i ‖ f(B_i; θ_k)], and by ``private_steps`` steps on the client's own
    data, min CE(f(X_k; θ_k), Y_k).

    Pictures of all owners are shuffled together. Past mini-batches repeat until each current one has had one.
    """
    learner.set(state)
    model = learner.model
    (x, y), (past_x, past_y) = current, past
    model.train() if params.exchange_statistics == "batch" else model.eval()
    step = Adam(list(model.parameters()), params.learning_rate)
    losses = []
    review_losses = []
    own = _private_batches(learner, params)
    own_steps = params.private_steps if learner.samples else 0
    with seeded(seed):
        for _ in range(params.exchange_epochs):
            batches = _shuffled(y, params)
            if len(past_y):
                past_batches = _shuffled(past_y, params)
            else:
                past_batches = ()
            reviewed = islice(cycle(past_batches), len(batches))
            for batch in batches:
                losses.append(_take(step, divergence(y[batch], model(x[batch]), params.divergence)))
                for review in islice(reviewed, 1):
                    loss = divergence(past_y[review], model(past_x[review]), params.divergence)
                    review_losses.append(_take(step, loss))
                for pictures, labels in islice(own, own_steps):
                    step(cross_entropy(model(pictures), labels))
    return Exchanged(learner.get(), _mean(losses), _mean(review_losses))


def _private_batches(learner: Learner, params: DFFKE) -> Iterator[Taught]:
    """Yield mini-batches of the client's own data without end, in passes of random order."""
    x, y = learner.train_data
    while True:
        for batch in _shuffled(y, params):
            yield learner.normalise(x[batch]), y[batch]


def _shuffled(y: Tensor, params: DFFKE) -> Sequence[Tensor]:
    """Mini-batches of indices of y in a random order, on the device of y."""
    return torch.split(torch.randperm(len(y)).to(y.device), params.batch_size)


def divergence(teacher: Tensor, student: Tensor, direction: str) -> Tensor:
    """KL between the softmax of logits (N, classes), in nats, the mean over samples: "teacher" KL(teacher ‖ student),
    equation 8, or "student" KL(student ‖ teacher), equation 13 as printed."""
    p = log_softmax(teacher, dim=1)
    q = log_softmax(student, dim=1)
    if direction == "student":
        p, q = q, p
    return kl_div(q, p, reduction="batchmean", log_target=True)


def _take(step: Adam, loss: Tensor) -> float:
    step(loss)
    return float(loss.detach())


def _made(learner: Learner, transfer: Transfer, params: DFFKE) -> Tensor:
    return synthesise(transfer.decoder, transfer.embeddings, pictures_of(learner), params, str(learner.device))


def _joined(learner: Learner, lessons: Sequence[Lesson], params: DFFKE) -> Taught:
    """The pictures and logits of all lessons, one lesson after the other."""
    if not lessons:
        return NOTHING
    made = torch.cat([_made(learner, each.transfer, params) for each in lessons])
    return made, torch.cat([torch.tensor(each.logits) for each in lessons]).to(learner.device)


def with_another_pixel(
    x: Tensor,
    lowest: float,
    highest: float,
    random: torch.Generator,
) -> Tensor:
    """Set one random pixel of each picture (N, channels, height, width) to a random value, appendix G."""
    changed = x.clone()
    rows, columns = (torch.randint(side, (len(x),), generator=random).to(x.device) for side in x.shape[2:])
    values = lowest + (highest - lowest) * torch.rand(len(x), x.shape[1], generator=random)
    changed[torch.arange(len(x), device=x.device), :, rows, columns] = values.to(x.device, x.dtype)
    return changed


def _in_batches(module: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch.inference_mode():
        return torch.cat([module(part) for part in torch.split(x, EVALUATION_BATCH)])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
