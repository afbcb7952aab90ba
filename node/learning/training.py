"""A node's model and data: local training, and evaluation on the global or the node's own test set.

Training does not use `torch.optim`: its first object makes every process import torch's compiler, which takes a second
of processor time. Every random choice comes from (scenario seed, node, round). So a restarted or simulated node makes
exactly the same choices.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from node.assignment import Assignment, derive_seed
from node.catalogue.models import MODELS, ModelEntry
from node.learning.aggregation import State
from node.learning.batching import batches, shares, steps_of
from node.learning.data import parts
from node.learning.data.datasets import Prepared, open_prepared
from node.learning.data.shards import Indices, read_indices
from node.learning.devices import Seeded, inputs_of, map_parts
from node.learning.errors import DataError, ModelError
from node.learning.evaluation import Evaluation, Totals
from node.learning.local_training import EVALUATION_BATCH, LocalTraining
from node.learning.metrics import counted, loss
from node.learning.models import Model, ModelPool, build, model_pool_of
from node.learning.networks.zoo import forward_work, pass_seconds
from node.learning.optimizers import NO_GRADIENTS, added, clipped, gradients_of, optimizer
from node.learning.recomputation import recomputing

log = logging.getLogger(__name__)

Scope = Literal["global", "own", "personal"]
ExtraLoss = Callable[[Model, "MiniBatch"], Tensor]  # a term added to the loss of a mini-batch
Forward = Callable[[Model, Any], Tensor]  # (model, inputs) -> logits, if they are not just model(inputs)


@dataclass(frozen=True)
class MiniBatch:
    """A mini-batch of a client's training: inputs ``x``, labels ``y``, and the model's ``logits`` and ``features`` for
    x. It is number ``place`` of local epoch ``epoch``; both count from 0."""

    x: Any  # Inputs
    y: Tensor
    logits: Tensor
    epoch: int = 0
    place: int = 0
    features: Tensor = field(default_factory=lambda: torch.empty(0))


@dataclass(frozen=True)
class TrainResult:
    """The result of a client's training: weights, number of the client's samples, steps, and mean over steps of the
    task's loss. ``objective``: that of what was minimised, if the algorithm adds terms to the loss or weights it.
    ``clipped``: the share of the steps with clipped gradients, if there is `gradient_clipping`."""

    weights: State
    samples: int
    steps: int
    loss: float
    objective: float | None = field(default=None, kw_only=True)
    clipped: float | None = field(default=None, kw_only=True)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the training, by name: ``loss``, ``objective`` and ``clipped`` if there are such."""
        by_name = losses(self.loss, self.objective)
        if self.clipped is not None:
            by_name["clipped"] = self.clipped
        return by_name


def losses(loss: float, objective: float | None) -> dict[str, float]:
    """The metrics of a training, by name: the task's loss, and the algorithm's objective if it differs from it."""
    if objective is None:
        return {"loss": loss}
    return {"loss": loss, "objective": objective}


class Learner:
    """A node's models, and its part of the data set.

    `train` and `own_test` are the node's sample indices in the training and test part, None if it has none. `personal`
    are the samples of its own test set reserved for personalisation. `global_test`: whether the node evaluates on
    the whole test part; `class_metrics`: the metrics of classes that it evaluates as well. `known`: the models that
    `build` makes, by name. Data is read at first use.
    Only the node's own training samples stay in memory.
    """

    def __init__(
        self,
        model_pool: ModelPool,
        data: Prepared,
        seed: int,
        node: str,
        train: Indices | None = None,
        own_test: Indices | None = None,
        global_test: bool = True,
        personal: Indices | None = None,
        class_metrics: Sequence[str] = (),
        known: Mapping[str, ModelEntry] = MODELS,
    ) -> None:
        self.data = data
        self.models = model_pool
        self._seed = seed
        self.node = node
        self._train_indices = train
        self._own_test = own_test
        self._global_test = global_test
        self._personal = personal
        self._class_metrics = class_metrics
        self.known = known

    @classmethod
    def from_assignment(
        cls,
        assignment: Assignment,
        models: ModelPool | None = None,
        known: Mapping[str, ModelEntry] = MODELS,
    ) -> Learner:
        """Read the node's data set and shard. Raises DataError or ModelError. ``models``: a pool of its models.
        ``known``: the models of the run's catalogue, by name."""
        torch.set_num_threads(1)  # for the whole process: nodes share processors, and threads would wait for each other
        data = open_prepared(Path(assignment.data.directory))
        model_pool = models or model_pool_of(assignment, data, known)
        own = assignment.data
        keys = (own.train_key, own.own_test_key, own.personal_key)
        train, own_test, personal = read_indices(Path(own.shards), keys)
        return cls(
            model_pool,
            data,
            seed=assignment.seed,
            node=assignment.node,
            train=train,
            own_test=own_test,
            global_test=own.global_test,
            personal=personal,
            class_metrics=own.class_metrics,
            known=known,
        )

    @property
    def samples(self) -> int:
        """Number of training samples the node holds."""
        if self._train_indices is None:
            return 0
        return len(self._train_indices)

    def work(self, params: LocalTraining) -> int:
        """Number of samples that one call of `train` with `params` processes."""
        if params.steps is None:
            return self.samples * params.epochs
        if not self.samples:
            return 0
        starts = range(0, self.samples, params.step_size)
        sizes = []
        for start in starts:
            left = self.samples - start
            sizes.append(min(params.step_size, left))
        rounds, rest = divmod(params.steps, len(sizes))
        return rounds * self.samples + sum(sizes[:rest])

    @property
    def tests(self) -> tuple[Scope, ...]:
        """The test sets that the node evaluates on."""
        tests = list[Scope]()
        if self._global_test:
            tests.append("global")
        if self._own_test is not None and len(self._own_test) > 0:
            tests.append("own")
        return tuple(tests)

    def test_samples(self, which: Scope, limit: int | None = None) -> int:
        """Number of samples that `evaluate` uses."""
        if which == "global":
            available = len(self.data.array("y_test"))
        else:
            available = len(self._set(which))
        if limit is None:
            return available
        return min(available, limit)

    def random(self, purpose: str, round: int) -> np.random.Generator:
        """A random generator of this node for one purpose in one round."""
        seed = derive_seed(self._seed, self.node, purpose, str(round))
        return np.random.default_rng(seed)

    def apply(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run ``fn(self, *args)``: a step of an algorithm that runs in the same place as the learner's methods."""
        return fn(self, *args)

    def seeded(self, fn: Callable[..., Any], *purpose: str) -> Seeded:
        """``fn`` with a seed for its draws, from the scenario's seed, this node and the purpose."""
        seed = derive_seed(self._seed, self.node, "draws", *purpose)
        return Seeded(fn, seed, str(self.device))

    @property
    def device(self) -> torch.device:
        """Where the model is and where its inputs must be: the processor, or an accelerator."""
        return self.models.device

    @property
    def model(self) -> Model:
        """The model of this thread. Its weights are those of the last `set` in this thread, by any learner."""
        return self.models.model

    def passes(self) -> contextlib.AbstractContextManager[None]:
        """While it is active, forward passes multiply in bfloat16 if that is the run's precision."""
        if self.models.bf16:
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    @property
    def outline(self) -> Model:
        """A model like the node's own on the processor, to compute costs from and not to train. The process of a
        simulation uses it, not `model`: after it has used a GPU, its next simulation could not start workers."""
        return self.models.sample

    @property
    def kind(self) -> int:
        """Equal for learners that share a pool of models."""
        return id(self.models)

    @cached_property
    def normalises_batches(self) -> bool:
        """Whether the model has batch normalisation."""
        for module in self.models.sample.modules():
            if isinstance(module, _BatchNorm):
                return True
        return False

    @cached_property
    def features(self) -> int:
        """The number of features that the model's extractor makes of a sample."""
        sample = inputs_of(self.data.zeros(1))
        model = self.models.sample.eval()
        with torch.inference_mode():
            features: Tensor = model.extractor(sample)
        return features.shape[1]

    @cached_property
    def trained(self) -> tuple[str, ...]:
        """The names of a state's entries that gradients change. The others are frozen parameters, and batch
        normalisation's statistics and counters: no sums of steps, so steps added to one another would leave their
        range."""
        parameters = self.models.sample.named_parameters()
        return tuple(name for name, parameter in parameters if parameter.requires_grad)

    def initial(self) -> State:
        """The initial weights, equal at every node of a run."""
        return self.models.initial()

    def build(
        self,
        name: str,
        device: torch.device | str | None = None,
    ) -> Model:
        """Another model of the catalogue for the node's samples, next to its own, on `device`, by default the node's.
        Its initial weights are equal at every node of a run. Raises ModelError for an unknown name, and if the model
        cannot take these samples."""
        seed = derive_seed(self._seed, "model", name)
        shape = self.data.form.model_shape
        model = build(name, shape, self.data.classes, seed, known=self.known)
        if device is None:
            device = self.device
        return model.to(device)

    def worth(self, model: Model) -> float:
        """The number of samples of the node's own model that take as many multiply-adds as one sample of `model`."""
        sample = inputs_of(self.data.zeros(1))
        operations = forward_work(model, sample).operations
        return operations / forward_work(self.outline, sample).operations

    def beside(
        self,
        passes: Iterable[tuple[nn.Module, Tensor, int, bool]],
        batch_size: int,
    ) -> float:
        """The time that these passes take in each mini-batch of the node's training, as a multiple of that of the
        mini-batch without them, by the cost model of simulations. A pass: a module, a sample of its input (1, ...), the
        number of samples, and whether it is trained, so that it goes backward too."""
        sample = inputs_of(self.data.zeros(1))
        own = pass_seconds(self.models.sample, sample, batch_size, True)
        others = sum(pass_seconds(*arguments) for arguments in passes)
        return others / own

    def outputs(
        self,
        weights: Mapping[str, NDArray[Any]],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Features (n, d) and logits (n, classes) of the node's n training samples in the order of the data set, by
        `weights` in evaluation mode, and the labels (n,)."""
        self.set(weights)
        x, y = self.train_data
        model = self.model.eval()
        with torch.no_grad():
            features = self._extracted(model, x)
            return features, model.classifier(features), y

    def _extracted(self, model: Model, x: Any) -> Tensor:
        """The features (n, d) of stored samples."""
        of_batches = []
        for batch in torch.split(x, EVALUATION_BATCH):
            inputs = self.normalise(batch)
            of_batches.append(model.extractor(inputs))
        return torch.cat(of_batches)

    def get(self) -> State:
        """A copy of the model's state: parameters, running statistics, counters."""
        return self.model.get()

    def set(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Put `state` into the model. Raises ModelError if names or shapes differ."""
        shapes = self.model.shapes
        if state.keys() != shapes.keys():
            names = sorted(state.keys() ^ shapes.keys())
            odd = ", ".join(names)
            raise ModelError(f"{self.node}: weights are not of this model; names that differ: {odd}")
        for name, shape in shapes.items():
            if state[name].shape != shape:
                raise ModelError(f"{self.node}: {name} has shape {state[name].shape}, this model's is {shape}")
        self.model.set(state)

    def train(
        self,
        weights: Mapping[str, NDArray[Any]],
        params: LocalTraining,
        round: int,
        extra: ExtraLoss | None = None,
        own: float = 1.0,
    ) -> TrainResult:
        """Train from `weights` on the node's samples: w ← w − η (∇ℓ(w; b) + λw), with momentum or by Adam if `params`
        set them, over mini-batches b in the seeded order of `round`. ℓ is the task's loss, weighted by `own`. `extra`
        adds a term, which the loss of the result does not have."""
        self.set(weights)
        random = self.random("batches", round)
        if self.samples:
            x, y = self.train_data
            label_counts = counted(y)
        else:
            x = torch.empty(0)
            y = torch.empty(0)
            label_counts = y
        model = self.model.train()
        step = optimizer(list(model.parameters()), params)
        total = torch.zeros((), device=self.device)
        objective = torch.zeros((), device=self.device)
        steps = 0
        clipped_steps = torch.zeros((), device=self.device)
        mini_batches = batches(self.samples, params, random, self.device)
        for micro_batches in steps_of(mini_batches, params):
            gradients = NO_GRADIENTS
            chosen_of_parts = [chosen for _, _, chosen in micro_batches]
            shares_of_parts = shares(chosen_of_parts, label_counts)
            with_shares = zip(micro_batches, shares_of_parts, strict=True)
            for (epoch, place, chosen), share in with_shares:
                inputs = self.normalise(x, chosen)
                labels = y[chosen]
                with self.passes(), recomputing(model, params):
                    features = model.extractor(inputs)
                    logits = model.classifier(features)
                    task_loss = loss(logits, labels)
                    value = own * task_loss
                    if extra is not None:
                        mini_batch = MiniBatch(inputs, labels, logits, epoch, place, features)
                        value = value + extra(model, mini_batch)
                    value = value * share
                gradients = added(gradients, gradients_of(value, step.parameters))
                total += task_loss.detach() * share
                objective += value.detach()
            bounded, is_clipped = clipped(gradients, params.gradient_clipping)
            step.descend(bounded)
            clipped_steps += is_clipped
            steps += 1
        count = max(steps, 1)
        mean_objective = None
        if extra is not None or own != 1.0:
            mean_objective = float(objective) / count
        clipped_share = None
        if params.gradient_clipping is not None:
            clipped_share = float(clipped_steps) / count
        return TrainResult(
            self.get(),
            self.samples,
            steps,
            loss=float(total) / count,
            objective=mean_objective,
            clipped=clipped_share,
        )

    def warm_up(self, params: LocalTraining) -> None:
        """Train on two samples and discard the result. The first training of a process takes some 10 ms longer than
        later ones. Slow hardware would stretch this to seconds. A failure is logged; the first training fails too."""
        if not self.samples:
            return
        before = self.get()
        two_samples = params.local(steps=1, batch_size=2)
        try:
            self.train(before, two_samples, 0)
        except Exception as error:
            log.info("the training of two samples failed, before the run: %s: %s", type(error).__name__, error)
        self.set(before)

    def evaluate(
        self,
        weights: Mapping[str, NDArray[Any]],
        which: Scope,
        limit: int | None = None,
        forward: Forward | None = None,
    ) -> Evaluation:
        """Evaluate `weights` on a test set: "global", the data set's test part; "own", the node's share of it without
        the samples reserved for personalisation; "personal", those samples. `limit`: use a seeded subset of that size,
        the same in every round."""
        self.set(weights)
        chosen = self._chosen(which, limit)
        x = self.data.array("x_test")
        y = self.data.array("y_test")
        totals = Totals(self.data.task, self._class_metrics)
        model = self.model.eval()
        with torch.inference_mode(), self.passes():
            for start in range(0, len(chosen), EVALUATION_BATCH):
                batch = chosen[start : start + EVALUATION_BATCH]
                stored_labels = np.array(y[batch])
                labels = torch.from_numpy(stored_labels).to(self.device)
                stored_samples = inputs_of(x[batch], self.device)
                inputs = self.normalise(stored_samples)
                if forward is None:
                    logits = model(inputs)
                else:
                    logits = forward(model, inputs)
                totals.add(logits, labels)
        all_targets = (len(chosen), *y.shape[1:])
        return totals.evaluation(all_targets)

    @cached_property
    def train_data(self) -> tuple[Any, Tensor]:
        """The node's training samples as stored, pictures and tokens as integers, and their targets, on its device."""
        if self._train_indices is None:
            raise DataError(f"{self.node} holds no training data")
        x = self.data.array("x_train")[self._train_indices]
        y = self.data.array("y_train")[self._train_indices]
        targets = torch.from_numpy(np.array(y))
        return inputs_of(x, self.device), targets.to(self.device)

    def normalise(self, x: Any, chosen: Tensor | None = None) -> Any:
        """Convert stored samples `x`, or those at the indices `chosen`, to model input: (x / 255 − mean) / std for
        pictures, (x − mean) / std for other floats. Integers stay as they are, such as tokens and masks. Samples of
        several parts are a dictionary or a tuple of tensors."""
        if chosen is not None:
            x = map_parts(lambda part: part[chosen], x)
        return map_parts(_normalised, x, self._scales_and_shifts)

    @cached_property
    def _scales_and_shifts(self) -> Any:
        """(scale, shift) of each part of the model's input, or None for a part that is not normalised."""
        stored = self.data.array("x_test")
        of_parts: dict[str, tuple[Tensor, Tensor] | None] = {}
        for name in parts.parts_of(stored):
            of_parts[name] = None
        mean = torch.tensor(self.data.mean, dtype=torch.float64)
        std = torch.tensor(self.data.std, dtype=torch.float64)
        for name, values in parts.normalised(stored).items():
            width = parts.channels(values)
            other_axes = [1] * (values.ndim - 2)
            unit = 255.0 if values.dtype == np.uint8 else 1.0
            deviation = std[:width]
            scale = (1 / (unit * deviation)).float()
            shift = (mean[:width] / deviation).float()
            scale = scale.reshape(-1, *other_axes)
            shift = shift.reshape(-1, *other_axes)
            of_parts[name] = (scale.to(self.device), shift.to(self.device))
            mean = mean[width:]
            std = std[width:]
        if "" in of_parts:
            return of_parts[""]
        if "0" in of_parts:
            return tuple(of_parts.values())
        return of_parts

    def _set(self, which: Scope) -> Indices:
        if which == "own":
            chosen = self._own_test
            purpose = "of its own"
        else:
            chosen = self._personal
            purpose = "to personalise by; raise data.personalisation"
        if chosen is None or len(chosen) == 0:
            raise DataError(f"{self.node} has no test samples {purpose}")
        return chosen

    def _chosen(self, which: Scope, limit: int | None) -> Indices:
        if which == "global":
            targets = self.data.array("y_test")
            chosen = np.arange(len(targets))
        else:
            chosen = self._set(which)
        if limit is None or limit >= len(chosen):
            return chosen
        random = np.random.default_rng(derive_seed(self._seed, "evaluation"))
        shuffled = random.permutation(chosen)
        return np.sort(shuffled[:limit])


def _normalised(x: Tensor, by: tuple[Tensor, Tensor] | None) -> Tensor:
    if by is None:
        return x
    scale, shift = by
    if x.dtype == torch.uint8:
        return x.float().mul_(scale).sub_(shift)
    return x.mul(scale).sub_(shift)
