"""Many clients of one model as one batch: their weights stacked, one forward and backward pass for all of them.

A GPU that trains one client of a small model waits for Python most of the time. For K clients the same kernels are
started once instead of K times (`torch.vmap` over stacked states). Each client has its own weights, its own
mini-batches in its own order, and its own optimizer's moments. The result is that of `Learner.train` for each, up to
the order of sums.

Mini-batches of different size are filled up, and the filling has no weight in the loss. Batch normalisation would see
it, so clients of a model that normalises batches train together only if they have equally many samples. Clients that
take fewer steps than others train on along with them, and what they were after their last step is kept aside.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.dropout import _DropoutNd

from node.learning.aggregation import State
from node.learning.batching import batches, steps_of
from node.learning.data.datasets import Prepared
from node.learning.devices import as_array, inputs_of, map_parts
from node.learning.errors import ModelError
from node.learning.local_training import LocalTraining
from node.learning.metrics import counted, sample_losses
from node.learning.models import Model
from node.learning.optimizers import NO_GRADIENTS, added, clipped, gradients_of, optimizer
from node.learning.training import ExtraLoss, Learner, TrainResult

Stacked = dict[str, Tensor]  # by name, each with the clients in its first dimension


@runtime_checkable
class WeightsTerm(Protocol):
    """A term of the loss that depends on the weights alone, and differs from client to client by its ``arrays`` only.
    ``form`` is equal for the terms of clients that may train together."""

    @property
    def arrays(self) -> State: ...

    @property
    def form(self) -> Hashable: ...

    def of_weights(self, model: Model, arrays: Mapping[str, Tensor]) -> Tensor:
        """The term at the model's weights, with a client's arrays as tensors."""


@dataclass(frozen=True)
class Training:
    """The arguments of one client's `Learner.train`."""

    weights: Mapping[str, NDArray[Any]]
    params: LocalTraining
    round: int
    extra: ExtraLoss | None = None
    own: float = 1.0


def form(learner: Learner, training: Training) -> Hashable | None:
    """Equal for clients that can train together. None for a client that trains alone: one without samples, one that
    checkpoints activations, and one with a term of the loss that is no `WeightsTerm`."""
    term = training.extra
    if not learner.samples or training.params.gradient_checkpointing:
        return None
    if term is None:
        own_term = None
    elif isinstance(term, WeightsTerm):
        own_term = (type(term), term.form)
    else:
        return None
    if learner.normalises_batches:
        equal_samples = learner.samples
    else:
        equal_samples = 0
    return learner.kind, training.params, training.own, own_term, equal_samples


def hindrance(model: Model, data: Prepared) -> str | None:
    """Why clients of a model cannot train together; None if they can. Tries it with two, on the model's device."""
    for module in model.modules():
        if isinstance(module, _DropoutNd) and module.p > 0:
            return "its dropout draws other numbers for clients that train together than for one"
    device = next(iter(model.tensors.values())).device
    x = inputs_of(data.zeros(2, 2), device)
    targets = data.array("y_test")
    shape = (2, 2, *targets.shape[1:])
    zeros = np.zeros(shape, targets.dtype)
    y = torch.from_numpy(zeros).to(device)
    weight = torch.ones(2, 2, device=device)
    stacked = {}
    for name, values in model.tensors.items():
        stacked[name] = torch.stack([values, values])
    try:
        losses_of = _losses(model.train(), None, 1.0)
        losses_of(stacked, {}, x, y, weight, weight.sum(1))
    except Exception as error:
        first_line = str(error).strip().splitlines()[0]
        return f"torch cannot compute it for several clients at once ({first_line})"
    return None


class Crew:
    """The learners of clients that train together. They share a model and a device."""

    def __init__(self, learners: Sequence[Learner]) -> None:
        self.learners = list(learners)

    def train(self, trainings: Sequence[Training]) -> list[TrainResult]:
        """What `Learner.train` gives for each learner and its training. All have one `form`."""
        first = self.learners[0]
        params = trainings[0].params
        model = first.model.train()
        plans = []
        for learner, training in zip(self.learners, trainings, strict=True):
            plans.append(_plan(learner, training))
        steps = [len(plan) for plan in plans]
        x, y, chosen, weights = _joined(self.learners, plans)
        stacked = _stacked([training.weights for training in trainings], model)
        constants = _constants(trainings, first.device)
        parameters = [stacked[name].requires_grad_() for name in first.trained]
        term = cast(WeightsTerm | None, trainings[0].extra)
        own = trainings[0].own
        losses_of = _losses(model, term, own)
        step = optimizer(parameters, params)
        total = torch.zeros(len(plans), device=first.device)
        objective = torch.zeros_like(total)
        clipped_steps = torch.zeros_like(total)
        is_plain = term is None and own == 1.0
        results: dict[int, TrainResult] = {}
        for number in range(max(steps)):
            largest = max(len(_batch(plan, number)) for plan in plans)
            chosen_of_step = chosen[:, number, :largest]
            weights_of_step = weights[:, number, :largest]
            micro_batches = torch.split(chosen_of_step, params.batch_size, 1)
            weights_of_parts = torch.split(weights_of_step, params.batch_size, 1)
            gradients = NO_GRADIENTS
            for part, weight in zip(micro_batches, weights_of_parts, strict=True):
                if params.gradient_accumulation > 1:
                    share = weight.sum(1)
                else:
                    share = torch.ones_like(total)
                with first.passes():
                    inputs = first.normalise(x, part)
                    labels = y[part]
                    objectives, losses = losses_of(stacked, constants, inputs, labels, weight, share)
                gradients = added(gradients, gradients_of(objectives.sum(), parameters))
                total = total + losses.detach()
                objective = objective + objectives.detach()
            bounded, is_clipped = clipped(gradients, params.gradient_clipping, stacked=True)
            step.descend(bounded)
            clipped_steps = clipped_steps + is_clipped
            done = [client for client, last in enumerate(steps) if last == number + 1]
            if not done:
                continue
            states = _unstacked(stacked, done)
            summed = as_array(total).tolist()
            minimised = as_array(objective).tolist()
            bounded_steps = as_array(clipped_steps).tolist()
            for client, state in zip(done, states, strict=True):
                count = steps[client]
                mean_objective = None
                if not is_plain:
                    mean_objective = minimised[client] / count
                clipped_share = None
                if params.gradient_clipping is not None:
                    clipped_share = bounded_steps[client] / count
                results[client] = TrainResult(
                    state,
                    samples=self.learners[client].samples,
                    steps=count,
                    loss=summed[client] / count,
                    objective=mean_objective,
                    clipped=clipped_share,
                )
        return [results[client] for client in range(len(plans))]


Plan = list[NDArray[np.int64]]  # the samples of each step of one client, as their indices


def _plan(learner: Learner, training: Training) -> Plan:
    shapes = {}
    for name, values in training.weights.items():
        shapes[name] = values.shape
    if shapes != learner.model.shapes:
        raise ModelError(f"{learner.node}: weights are not of this model")
    random = learner.random("batches", training.round)
    mini_batches = batches(learner.samples, training.params, random)
    plan = []
    for of_step in steps_of(mini_batches, training.params):
        indices = [chosen.numpy() for _, _, chosen in of_step]
        plan.append(np.concatenate(indices))
    return plan


def _batch(plan: Plan, number: int) -> NDArray[np.int64]:
    """The samples of a step; of a step after the client's last, those again."""
    last = len(plan) - 1
    return plan[min(number, last)]


def _joined(
    learners: Sequence[Learner],
    plans: Sequence[Plan],
) -> tuple[Any, Tensor, Tensor, Tensor]:
    """The samples and labels of all clients one after the other; the places of the samples of each client's steps in
    them, (clients, steps, samples of a step); and the weight of each: its share of the step's labels that count, 0 for
    what fills a step up."""
    device = learners[0].device
    samples = []
    targets = []
    for learner in learners:
        of_learner, labels = learner.train_data
        samples.append(of_learner)
        targets.append(labels)
    x = map_parts(lambda *parts: torch.cat(parts), *samples)
    y = torch.cat(targets)
    label_counts = []
    for labels in targets:
        label_counts.append(counted(labels).cpu().numpy())
    steps = max(len(plan) for plan in plans)
    largest = max(len(batch) for plan in plans for batch in plan)
    shape = (len(plans), steps, largest)
    places = np.zeros(shape, np.int64)
    weights = np.zeros(shape, np.float32)
    start = 0
    for client, plan in enumerate(plans):
        for number in range(steps):
            batch = _batch(plan, number)
            size = len(batch)
            counts = label_counts[client][batch]
            places[client, number] = start + batch[0]
            places[client, number, :size] = start + batch
            weights[client, number, :size] = counts / counts.sum()
        start += learners[client].samples
    places_on_device = torch.from_numpy(places).to(device)
    weights_on_device = torch.from_numpy(weights).to(device)
    return x, y, places_on_device, weights_on_device


def _stacked(
    states: Sequence[Mapping[str, NDArray[Any]]],
    model: Model,
) -> Stacked:
    device = next(iter(model.tensors.values())).device
    return _together(states, model.tensors, device)


def _together(
    states: Sequence[Mapping[str, NDArray[Any]]],
    names: Iterable[str],
    device: torch.device,
) -> Stacked:
    """The arrays of these names, each with the clients in its first dimension."""
    stacked = {}
    for name in names:
        of_clients = np.stack([state[name] for state in states])
        stacked[name] = torch.from_numpy(of_clients).to(device)
    return stacked


def _unstacked(stacked: Stacked, clients: Sequence[int]) -> list[State]:
    """The states of some clients. What is on an accelerator is moved once for all of them."""
    arrays = {}
    for name, tensor in stacked.items():
        arrays[name] = as_array(tensor)
    states = []
    for client in clients:
        state = {}
        for name, of_clients in arrays.items():
            state[name] = np.array(of_clients[client])
        states.append(state)
    return states


def _constants(trainings: Sequence[Training], device: torch.device) -> Stacked:
    """The arrays of the clients' terms."""
    arrays = []
    for training in trainings:
        if training.extra is not None:
            arrays.append(cast(WeightsTerm, training.extra).arrays)
    if not arrays:
        return {}
    return _together(arrays, arrays[0], device)


class _ClientLoss(nn.Module):
    """What is minimised on a mini-batch of one client, and the task's loss on it."""

    def __init__(self, model: Model, term: WeightsTerm | None, own: float) -> None:
        super().__init__()
        self.model = model
        self.term = term
        self.own = own

    def forward(
        self,
        constants: Stacked,
        x: Any,
        y: Tensor,
        weight: Tensor,
        share: Tensor,
    ) -> tuple[Tensor, Tensor]:
        logits = self.model(x)
        losses = sample_losses(logits, y)
        loss = (losses * weight).sum()
        objective = self.own * loss
        if self.term is not None:
            term = self.term.of_weights(self.model, constants)
            objective = objective + share * term
        return objective, loss


def _losses(model: Model, term: WeightsTerm | None, own: float) -> Any:
    """A function of stacked states, constants, inputs, labels, weights of samples and of the term that gives what each
    client minimises, and its loss of the task."""
    module = _ClientLoss(model, term, own)

    def of_one(state: Stacked, *of_batch: Any) -> Any:
        named = {f"model.{name}": values for name, values in state.items()}
        return functional_call(module, named, of_batch)

    return torch.vmap(of_one)
