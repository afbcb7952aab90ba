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

from collections.abc import Hashable, Mapping, Sequence
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
from node.learning.devices import as_array, each, inputs_of
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
    checkpoints activations, and one whose loss has a term that is no `WeightsTerm`."""
    term = training.extra
    alone = not learner.samples or training.params.gradient_checkpointing
    if alone or not (term is None or isinstance(term, WeightsTerm)):
        return None
    if term is None:
        own_term = None
    else:
        own_term = (type(term), term.form)
    equal_samples = learner.samples if learner.normalises_batches else 0
    return learner.kind, training.params, training.own, own_term, equal_samples


def hindrance(model: Model, data: Prepared) -> str | None:
    """Why clients of a model cannot train together; None if they can. Tries it with two, on the model's device."""
    if any(isinstance(each, _DropoutNd) and each.p > 0 for each in model.modules()):
        return "its dropout draws other numbers for clients that train together than for one"
    device = next(iter(model.tensors.values())).device
    x = inputs_of(data.zeros(2, 2), device)
    targets = data.array("y_test")
    y = torch.from_numpy(np.zeros((2, 2, *targets.shape[1:]), targets.dtype)).to(device)
    weight = torch.ones(2, 2, device=device)
    stacked = {name: torch.stack([values, values]) for name, values in model.tensors.items()}
    try:
        _losses(model.train(), None, 1.0)(stacked, {}, x, y, weight, weight.sum(1))
    except Exception as error:
        return f"torch cannot compute it for several clients at once ({str(error).strip().splitlines()[0]})"
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
        plans = [_plan(*each) for each in zip(self.learners, trainings, strict=True)]
        steps = [len(plan) for plan in plans]
        x, y, chosen, weights = _joined(self.learners, plans)
        stacked = _stacked([training.weights for training in trainings], model)
        constants = _constants(trainings, first.device)
        parameters = [stacked[name].requires_grad_() for name in first.trained]
        losses_of = _losses(model, cast(WeightsTerm | None, trainings[0].extra), trainings[0].own)
        step = optimizer(parameters, params)
        total = torch.zeros(len(plans), device=first.device)
        objective = torch.zeros_like(total)
        clipped_steps = torch.zeros_like(total)
        is_plain = trainings[0].extra is None and trainings[0].own == 1.0
        results: dict[int, TrainResult] = {}
        for number in range(max(steps)):
            largest = max(len(_batch(plan, number)) for plan in plans)
            taken = chosen[:, number, :largest]
            weight = weights[:, number, :largest]
            gradients = NO_GRADIENTS
            for part, share_of in zip(*(torch.split(of, params.batch_size, 1) for of in (taken, weight)), strict=True):
                if params.gradient_accumulation > 1:
                    share = share_of.sum(1)
                else:
                    share = torch.ones_like(total)
                with first.passes():
                    inputs = first.normalise(x, part)
                    objectives, losses = losses_of(stacked, constants, inputs, y[part], share_of, share)
                gradients = added(gradients, gradients_of(objectives.sum(), parameters))
                total = total + losses.detach()
                objective = objective + objectives.detach()
            bounded, is_clipped = clipped(gradients, params.gradient_clipping, stacked=True)
            step.descend(bounded)
            clipped_steps = clipped_steps + is_clipped
            done = [client for client, last in enumerate(steps) if last == number + 1]
            if done:
                states = _unstacked(stacked, done)
                summed = as_array(total).tolist()
                minimised = as_array(objective).tolist()
                bounded_steps = as_array(clipped_steps).tolist()
                for client, state in zip(done, states, strict=True):
                    results[client] = TrainResult(
                        state,
                        self.learners[client].samples,
                        steps[client],
                        summed[client] / steps[client],
                        objective=None if is_plain else minimised[client] / steps[client],
                        clipped=None if params.gradient_clipping is None else bounded_steps[client] / steps[client],
                    )
        return [results[client] for client in range(len(plans))]


Plan = list[NDArray[np.int64]]  # the samples of each step of one client, as their indices


def _plan(learner: Learner, training: Training) -> Plan:
    if {name: values.shape for name, values in training.weights.items()} != learner.model.shapes:
        raise ModelError(f"{learner.node}: weights are not of this model")
    made = batches(learner.samples, training.params, learner.random("batches", training.round))
    parts = steps_of(made, training.params)
    return [np.concatenate([chosen.numpy() for *_, chosen in part]) for part in parts]


def _batch(plan: Plan, number: int) -> NDArray[np.int64]:
    """The samples of a step; of a step after the client's last, those again."""
    return plan[min(number, len(plan) - 1)]


def _joined(learners: Sequence[Learner], plans: Sequence[Plan]) -> tuple[Any, Tensor, Tensor, Tensor]:
    """The samples and labels of all clients one after the other; the places of the samples of each client's steps in
    them, (clients, steps, samples of a step); and the weight of each: its share of the step's labels that count, 0 for
    what fills a step up."""
    device = learners[0].device
    samples, targets = zip(*(learner.train_data for learner in learners), strict=True)
    x = each(lambda *parts: torch.cat(parts), *samples)
    y = torch.cat(targets)
    label_counts = [counted(labels).cpu().numpy() for labels in targets]
    steps = max(len(plan) for plan in plans)
    largest = max(len(batch) for plan in plans for batch in plan)
    places = np.zeros((len(plans), steps, largest), np.int64)
    weights = np.zeros((len(plans), steps, largest), np.float32)
    start = 0
    for client, (learner, plan) in enumerate(zip(learners, plans, strict=True)):
        for number in range(steps):
            batch = _batch(plan, number)
            counts = label_counts[client][batch]
            places[client, number] = start + batch[0]
            places[client, number, : len(batch)] = start + batch
            weights[client, number, : len(batch)] = counts / counts.sum()
        start += learner.samples
    return x, y, torch.from_numpy(places).to(device), torch.from_numpy(weights).to(device)


def _stacked(states: Sequence[Mapping[str, NDArray[Any]]], model: Model) -> Stacked:
    device = next(iter(model.tensors.values())).device
    return {name: torch.from_numpy(np.stack([state[name] for state in states])).to(device) for name in model.tensors}


def _unstacked(stacked: Stacked, clients: Sequence[int]) -> list[State]:
    """The states of some clients. What is on an accelerator is moved once for all of them."""
    arrays = {name: as_array(each) for name, each in stacked.items()}
    return [{name: np.array(each[client]) for name, each in arrays.items()} for client in clients]


def _constants(trainings: Sequence[Training], device: torch.device) -> Stacked:
    """The arrays of the clients' terms."""
    terms = [cast(WeightsTerm, each.extra) for each in trainings if each.extra is not None]
    if not terms:
        return {}
    arrays = [term.arrays for term in terms]
    return {name: torch.from_numpy(np.stack([each[name] for each in arrays])).to(device) for name in arrays[0]}


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
        loss = (sample_losses(logits, y) * weight).sum()
        objective = self.own * loss
        if self.term is not None:
            objective = objective + share * self.term.of_weights(self.model, constants)
        return objective, loss


def _losses(model: Model, term: WeightsTerm | None, own: float) -> Any:
    """A function of stacked states, constants, inputs, labels, weights of samples and of the term that gives what each
    client minimises, and its loss of the task."""
    module = _ClientLoss(model, term, own)

    def of_one(state: Stacked, *of_batch: Any) -> Any:
        named = {f"model.{name}": each for name, each in state.items()}
        return functional_call(module, named, of_batch)

    return torch.vmap(of_one)
