"""The models by name. Each has an extractor h and a classifier l, so that algorithms can use them separately.

Papers write them Φ and Ψ or θ^g and θ^c. `node.catalogue` has each model's size in closed form, without torch.
Initial weights depend only on a seed and do not change torch's global generator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from math import ceil
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from node.assignment import Assignment, derive_seed
from node.catalogue.datasets import Form, Shape
from node.catalogue.models import MODELS, Features, ModelEntry, ResNet
from node.catalogue.networks import NETWORKS
from node.catalogue.sizes import Layers, Size
from node.learning.aggregation import State
from node.learning.data.datasets import Prepared
from node.learning.devices import PROCESSOR, as_array, inputs_of, seeded
from node.learning.errors import ModelError
from node.learning.networks import transformer, zoo
from node.learning.networks.lora import adapt
from node.learning.travelling import untravelling
from node.parameters import read_parameters

Parts = tuple[nn.Module, nn.Module]  # extractor, classifier


class Model(nn.Module):
    """`classifier(extractor(x))`: x (N, *shape) normalised floats or integer tokens, or a dictionary or tuple of
    them; the result (N, classes) logits, (N, T, classes) for sequences of T tokens, or the numbers that a regression
    predicts.

    A batch may hold one sample, as the last batch of an epoch may if a client's samples do not divide evenly. Without
    `frozen_travels`, frozen parameters stay at the nodes, which all make the same ones.
    """

    def __init__(
        self,
        extractor: nn.Module,
        classifier: nn.Module,
        frozen_travels: bool = True,
    ) -> None:
        super().__init__()
        self.extractor = extractor
        self.classifier = classifier
        self.frozen_travels = frozen_travels
        for module in self.modules():
            if isinstance(module, _BatchNorm):
                module.register_forward_pre_hook(_spare_lone_values)

    def forward(self, x: Any) -> Tensor:
        return cast(Tensor, self.classifier(self.extractor(x)))

    @cached_property
    def travelling(self) -> tuple[str, ...]:
        """The names of what nodes send, average and save of the model, its *state*: all parameters, running statistics
        and counters, or all but the frozen parameters. Training changes nothing else. Tied parameters have one name."""
        parameters = dict(self.named_parameters())
        buffers = dict(self.named_buffers())
        travelling = []
        for name in self.state_dict():
            if name in parameters:
                travels = parameters[name].requires_grad or self.frozen_travels
            else:
                travels = name in buffers
            if travels:
                travelling.append(name)
        return tuple(travelling)

    @cached_property
    def views(self) -> dict[str, NDArray[Any]]:
        """The state as arrays on the same memory, which is the processor's."""
        views = {}
        for name, tensor in self.tensors.items():
            views[name] = tensor.detach().numpy()
        return views

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The state, on the model's device."""
        everything = self.state_dict()
        tensors = {}
        for name in self.travelling:
            tensors[name] = everything[name].detach()
        return tensors

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each entry of the state."""
        shapes = {}
        for name, tensor in self.tensors.items():
            shapes[name] = tuple(tensor.shape)
        return shapes

    @cached_property
    def on_processor(self) -> bool:
        for tensor in self.tensors.values():
            if tensor.device.type != PROCESSOR:
                return False
        return True

    def get(self) -> State:
        """A copy of the state."""
        if self.on_processor:
            return {name: view.copy() for name, view in self.views.items()}
        return {name: as_array(tensor) for name, tensor in self.tensors.items()}

    def set(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over a state with the names and shapes of the model's own."""
        if self.on_processor:
            for name, view in self.views.items():
                view[...] = state[name]
        else:
            for name, tensor in self.tensors.items():
                tensor.copy_(torch.tensor(state[name]))


def _spare_lone_values(norm: nn.Module, inputs: tuple[Tensor]) -> None:
    """Normalise a batch with one value per channel, which has no variance, by the running statistics. These stay
    unchanged."""
    (x,) = inputs
    has_several_values = x.numel() > x.shape[1]
    if not norm.training or has_several_values:
        return

    def train_again(*_: Any) -> None:
        norm.train()
        handle.remove()

    handle = norm.register_forward_hook(train_again, always_call=True)
    norm.eval()


class ModelPool:
    """A pool of equal models on a ``device``, one for each thread. Learners that share a pool need no model of their
    own. ``make`` returns a new model on the processor, always with the same weights. ``precision``: that of the
    run; passes use "bf16" only. ``spare``: new models, for the first threads."""

    def __init__(
        self,
        make: Callable[[], Model],
        device: str = PROCESSOR,
        precision: str = "",
        spare: Iterable[Model] = (),
    ) -> None:
        self.make = make
        self._spare = list(spare)
        self.device = torch.device(device)
        self.bf16 = precision == "bf16"
        self._of_thread = threading.local()

    @property
    def model(self) -> Model:
        """The model of the calling thread, with the weights of its last user."""
        if not hasattr(self._of_thread, "model"):
            try:
                model = self._spare.pop()
            except IndexError:
                model = self.make()
            self._of_thread.model = model.to(self.device)
        return cast(Model, self._of_thread.model)

    def hand_on(self) -> None:
        """Give the model of the calling thread, with its weights, to the next thread that needs one."""
        self._spare.append(self.model)
        del self._of_thread.model

    @cached_property
    def sample(self) -> Model:
        """A model on the processor, to look at and not to train."""
        return self.make()

    def initial(self) -> State:
        """The weights of a new model."""
        return dict(self.make().views)


class ResidualBlock(nn.Module):
    """y = ReLU(x + conv(ReLU(conv(x)))) with 3x3 convolutions; x through a 1x1 convolution if the shape changes.

    Without normalisation the signal would grow with each block. With the `initialisation` "fixup" the second
    convolution starts at zero. So the initial network consists of its shortcuts and stays trainable (Zhang, Dauphin, Ma
    2019, "Fixup").
    """

    def __init__(self, inside: int, width: int, initialisation: str) -> None:
        super().__init__()
        keeps_shape = inside == width
        stride = 1 if keeps_shape else 2
        self.first = nn.Conv2d(inside, width, 3, stride=stride, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        if keeps_shape:
            self.shortcut: nn.Module = nn.Identity()
        else:
            self.shortcut = nn.Conv2d(inside, width, 1, stride=stride)
        if initialisation == "fixup":
            he_normal(self.first)
            nn.init.zeros_(self.second.weight)
            assert self.second.bias is not None
            nn.init.zeros_(self.second.bias)

    def forward(self, x: Tensor) -> Tensor:
        branch = torch.relu(self.first(x))
        branch = self.second(branch)
        total = self.shortcut(x) + branch
        return torch.relu(total)


def he_normal(convolution: nn.Conv2d) -> None:
    """Initialise a convolution before a ReLU as He 2015 does, with the variance of gradients kept; its bias is 0."""
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    assert convolution.bias is not None
    nn.init.zeros_(convolution.bias)


def _made(
    name: str,
    shape: Shape,
    classes: int,
    params: Any,
) -> Parts:
    """A model that is one of `NETWORKS`."""
    network = NETWORKS[name](Layers(shape), classes, params)
    places = range(len(network.modules))
    modules: dict[int, nn.Module] = {}

    # Residual blocks draw their weights first.
    def draws_later(place: int) -> bool:
        kind, _ = network.modules[place]
        return kind != "ResidualBlock"

    for place in sorted(places, key=draws_later):
        kind, arguments = network.modules[place]
        module_class = getattr(nn, kind, ResidualBlock)
        modules[place] = module_class(*arguments)
    in_order = [modules[place] for place in places]
    extractor = in_order[: network.classifier]
    classifier = in_order[network.classifier :]
    if len(classifier) == 1:
        return nn.Sequential(*extractor), classifier[0]
    return nn.Sequential(*extractor), nn.Sequential(*classifier)


def phefl_cnn(shape: Shape, classes: int, params: Any) -> Parts:
    """Weights start Glorot-uniform and biases at zero, as in TensorFlow, which PHE-FL used."""
    parts = _made("phefl-cnn", shape, classes, params)
    for part in parts:
        for parameter in part.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.zeros_(parameter)
    return parts


def resnet18(shape: Shape, classes: int, params: ResNet) -> Parts:
    extractor, classifier = _made("resnet18", shape, classes, params)
    if params.initialisation == "kaiming":
        for module in extractor.modules():
            if isinstance(module, nn.Conv2d):
                he_normal(module)
    return extractor, classifier


BUILDERS: dict[str, Callable[[Shape, int, Any], Parts]] = {
    **{name: partial(_made, name) for name in NETWORKS},
    "phefl-cnn": phefl_cnn,
    "resnet18": resnet18,
    "char-transformer": transformer.char_transformer,
    "torchvision": zoo.torchvision_network,
}


def build(
    name: str,
    shape: Any,
    classes: int,
    seed: int,
    params: Mapping[str, Any] | None = None,
    known: Mapping[str, ModelEntry] = MODELS,
) -> Model:
    """Model `name` for samples of `shape` (`Form.model_shape`) and `classes` classes, with weights drawn from `seed`.
    `params`: its own parameters, and `lora`, the arguments of `adapt`. `known`: the models by name.

    Raises ModelError for an unknown name, a wrong parameter, a shape the model cannot take, and for entries of its
    state that cannot travel.
    """
    if name not in known:
        raise ModelError(f"no model {name!r}: known are {', '.join(known)}")
    entry = known[name]
    own_params = dict(params or {})
    adapters = own_params.pop("lora", None)
    try:
        if entry.measure is not None:
            entry.size(shape, classes, own_params)
        chosen = read_parameters(entry.params, own_params)
    except ValueError as error:
        raise ModelError(str(error)) from error
    with seeded(seed):
        builder = entry.build or BUILDERS[name]
        network = builder(shape, classes, chosen)
        if isinstance(network, tuple):
            extractor, classifier = network
        else:
            extractor = network
            classifier = nn.Identity()
        model = Model(extractor, classifier, frozen_travels=entry.frozen_travels)
        if isinstance(chosen, Features) and chosen.features is not None:
            own_features = cast(nn.Linear, model.classifier).in_features
            to_features = nn.Linear(own_features, chosen.features)
            model.extractor = nn.Sequential(model.extractor, to_features)
            model.classifier = nn.Linear(chosen.features, classes)
        if adapters is not None:
            adapt(
                model,
                rank=adapters["rank"],
                alpha=adapters["alpha"],
                targets=adapters["targets"],
            )
            model.frozen_travels = False
    hindrance = untravelling(model)
    if hindrance:
        raise ModelError(f"model {name} has {hindrance}")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ModelError(f"model {name} has no parameter to train: requires_grad is False for all, or there are none")
    return model


def measured(
    entry: ModelEntry,
    form: Form,
    params: Mapping[str, Any],
) -> Size:
    """The size of a model, counted on the model itself. A model of one module has no features. The same is true if its
    extractor makes no vector of a sample.

    Raises ModelError if the model cannot be made, or does not give outputs of the targets' shape.
    """
    stored = _two_samples(form)
    samples = inputs_of(stored)
    try:
        known = {entry.name: entry}
        model = build(entry.name, form.model_shape, form.classes, 0, params, known)
        model.eval()
        with torch.inference_mode():
            features = model.extractor(samples)
            logits = model(samples)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"model {entry.name} cannot be made for {form}: {type(error).__name__}: {error}") from error
    needed = (2, *form.labels, form.classes)
    if tuple(logits.shape) != needed:
        raise ModelError(f"model {entry.name} gives {tuple(logits.shape)} for 2 {form}: it must give {needed}")
    trained = 0
    partial_state = False
    for name, parameter in model.named_parameters():
        if name in model.travelling:
            trained += parameter.numel()
        else:
            partial_state = True
    floats = 0
    counter_bytes = 0
    for tensor in model.tensors.values():
        if tensor.is_floating_point():
            floats += tensor.numel()
        else:
            counter_bytes += tensor.nbytes
    fixed = 0
    for name, tensor in model.state_dict().items():
        if name not in model.travelling:
            fixed += tensor.numel()
    if isinstance(model.classifier, nn.Identity) or features.ndim != 2:
        count = 0
    else:
        count = features.shape[1]
    linear = False
    if isinstance(model.classifier, nn.Linear):
        linear = model.classifier.bias is not None
    work = zoo.forward_work(model, inputs_of(stored[:1]))
    return replace(
        work,
        parameters=trained,
        buffers=floats - trained,
        counters=ceil(counter_bytes / 8),
        features=count,
        linear=linear,
        saved=zoo.saved_values(model, samples, len(stored)),
        fixed=fixed,
        partial=partial_state,
    )


def _two_samples(form: Form) -> NDArray[Any]:
    """Two stored samples of zeros."""
    shape = (2, *form.shape)
    if form.parts:
        kind = np.dtype([*form.parts])
        return np.zeros(shape, kind)
    if form.tokens:
        return np.zeros(shape, np.int32)
    return np.zeros(shape, np.float32)


def model_pool_of(
    assignment: Assignment,
    data: Prepared,
    known: Mapping[str, ModelEntry] = MODELS,
) -> ModelPool:
    """The model pool of a run, with the models `known` by name. Initial weights come from the scenario's seed, equal at
    all nodes. Raises ModelError."""
    name = assignment.model
    params = assignment.model_params
    seed = derive_seed(assignment.seed, "model")
    make = partial(build, name, data.form.model_shape, data.classes, seed, params, known)
    return ModelPool(make, assignment.device, assignment.precision, spare=[make()])
