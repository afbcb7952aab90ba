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
from torch import Tensor, nn
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
    weights = list(model.parameters())
    step = Adam(weights, params.learning_rate)
    step = step.resumed(moments)
    loss = 0.0
    hits = 0
    with seeded(seed):  # dropout, too
        for batch in _shuffled(y, params):
            labels = y[batch]
            inputs = learner.normalise(x[batch])
            logits = model(inputs)
            error = cross_entropy(logits, labels)
            step(error)
            mean_error = float(error.detach())
            loss += mean_error * len(batch) / len(y)
            hits += correct(logits, labels)
    return Epoch(
        state=learner.get(),
        moments=step.state(),
        loss=loss,
        accuracy=hits / len(y),
    )


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
    chosen = embedded(len(y), params, random)
    chosen = chosen.to(x.device)
    pictures = x[chosen]
    if x.dtype == torch.uint8:
        highest = 255.0
    else:
        highest = float(x.max())

    def h(part: Tensor) -> Tensor:
        return _in_batches(model.extractor, learner.normalise(part))

    def h_of_changed() -> Tensor:
        changed = with_another_pixel(pictures, 0.0, highest, random)
        return h(changed)

    e = h(pictures)
    released = release(e, h_of_changed, params, len(y), random)
    return released, as_array(y[chosen])


def embedded(count: int, params: DFFKE, random: torch.Generator) -> Tensor:
    """The ascending indices of the samples to embed among ``count``: the first draw of `embed`."""
    order = torch.randperm(count, generator=random)
    chosen = order[: params.embeddings]
    return chosen.sort().values


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
    noising = params.noising_of_logits()
    released = []
    for transfer in transfers:
        pictures = _synthesised(learner, transfer, params)
        logits = _released_logits(model, pictures, noising, learner.samples, random)
        released.append(logits)
    return released


def _released_logits(
    model: nn.Module,
    pictures: Tensor,
    params: DFFKE,
    samples: int,
    random: torch.Generator,
) -> Release:
    lowest = float(pictures.min())
    highest = float(pictures.max())

    def logits_of_changed() -> Tensor:
        changed = with_another_pixel(pictures, lowest, highest, random)
        return _in_batches(model, changed)

    logits = _in_batches(model, pictures)
    return release(logits, logits_of_changed, params, samples, random)


def exchange(
    learner: Learner,
    state: State,
    lessons: Sequence[Lesson],
    reviews: Sequence[Lesson],
    params: DFFKE,
    seed: int,
) -> Exchanged:
    """Learn from the other clients: lessons are on the current synthetic pictures, reviews on those of the memory."""
    current = _joined(learner, lessons, params)
    past = _joined(learner, reviews, params)
    return learn(learner, state, current, past, params, seed)


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
    x, y = current
    past_x, past_y = past
    if params.exchange_statistics == "batch":
        model.train()
    else:
        model.eval()
    weights = list(model.parameters())
    step = Adam(weights, params.learning_rate)
    losses = []
    review_losses = []
    own = _private_batches(learner, params)
    own_steps = params.private_steps if learner.samples else 0
    with seeded(seed):
        for _ in range(params.exchange_epochs):
            batches = _shuffled(y, params)
            past_batches: Sequence[Tensor] = ()
            if len(past_y):
                past_batches = _shuffled(past_y, params)
            reviewed = cycle(past_batches)
            for batch in batches:
                student = model(x[batch])
                loss = divergence(y[batch], student, params.divergence)
                losses.append(_take(step, loss))
                review = next(reviewed, None)
                if review is not None:
                    student = model(past_x[review])
                    loss = divergence(past_y[review], student, params.divergence)
                    review_losses.append(_take(step, loss))
                for pictures, labels in islice(own, own_steps):
                    logits = model(pictures)
                    step(cross_entropy(logits, labels))
    return Exchanged(
        state=learner.get(),
        loss=_mean(losses),
        review_loss=_mean(review_losses),
    )


def _private_batches(learner: Learner, params: DFFKE) -> Iterator[Taught]:
    """Yield mini-batches of the client's own data without end, in passes of random order."""
    x, y = learner.train_data
    while True:
        for batch in _shuffled(y, params):
            pictures = learner.normalise(x[batch])
            yield pictures, y[batch]


def _shuffled(y: Tensor, params: DFFKE) -> Sequence[Tensor]:
    """Mini-batches of indices of y in a random order, on the device of y."""
    order = torch.randperm(len(y))
    return torch.split(order.to(y.device), params.batch_size)


def divergence(teacher: Tensor, student: Tensor, direction: str) -> Tensor:
    """KL between the softmax of logits (N, classes), in nats, the mean over samples: "teacher" KL(teacher ‖ student),
    equation 8, or "student" KL(student ‖ teacher), equation 13 as printed."""
    p = log_softmax(teacher, dim=1)
    q = log_softmax(student, dim=1)
    if direction == "student":
        target = q
        prediction = p
    else:
        target = p
        prediction = q
    return kl_div(prediction, target, reduction="batchmean", log_target=True)


def _take(step: Adam, loss: Tensor) -> float:
    step(loss)
    return float(loss.detach())


def _synthesised(learner: Learner, transfer: Transfer, params: DFFKE) -> Tensor:
    pictures = pictures_of(learner)
    device = str(learner.device)
    return synthesise(transfer.decoder, transfer.embeddings, pictures, params, device)


def _joined(learner: Learner, lessons: Sequence[Lesson], params: DFFKE) -> Taught:
    """The pictures and logits of all lessons, one lesson after the other."""
    if not lessons:
        return NOTHING
    pictures = []
    logits = []
    for lesson in lessons:
        pictures.append(_synthesised(learner, lesson.transfer, params))
        logits.append(torch.tensor(lesson.logits))
    targets = torch.cat(logits).to(learner.device)
    return torch.cat(pictures), targets


def with_another_pixel(
    x: Tensor,
    lowest: float,
    highest: float,
    random: torch.Generator,
) -> Tensor:
    """Set one random pixel of each picture (N, channels, height, width) to a random value, appendix G."""
    device = x.device
    pictures, channels, height, width = x.shape
    rows = torch.randint(height, (pictures,), generator=random)
    columns = torch.randint(width, (pictures,), generator=random)
    uniform = torch.rand(pictures, channels, generator=random)
    values = lowest + (highest - lowest) * uniform
    every = torch.arange(pictures, device=device)
    changed = x.clone()
    rows = rows.to(device)
    columns = columns.to(device)
    changed[every, :, rows, columns] = values.to(device, x.dtype)
    return changed


def _in_batches(module: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    outputs = []
    with torch.inference_mode():
        for part in torch.split(x, EVALUATION_BATCH):
            outputs.append(module(part))
        return torch.cat(outputs)


def _mean(values: Sequence[float]) -> float:
    if not values:
        return 0.0
    return sum(values) / len(values)
