from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from node.catalogue.datasets import DATASETS, Form, Shape
from node.catalogue.models import MODEL_GROUPS, MODELS, Features, ModelEntry
from node.catalogue.sizes import Size
from node.learning.errors import ModelError
from node.learning.models import BUILDERS, Model, ModelPool, build, measured
from node.learning.networks.zoo import forward_work, saved_values
from tests import user_models

LEAST = {"fedfeat-cnn": 16, "celeba-cnn": 43}  # pixels a side


CLOSED = [name for name, entry in MODELS.items() if entry.measure is not None]


@pytest.mark.slow
@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("name", CLOSED)
def test_size_is_the_catalogues(name: str, dataset: str) -> None:
    shape, classes = DATASETS[dataset].shape, DATASETS[dataset].classes
    if len(shape) == 3 and shape[1] < LEAST.get(name, 0):
        with pytest.raises(ModelError, match=rf"{name}: takes images.*least {LEAST[name]}x{LEAST[name]}"):
            build(name, shape, classes, seed=0)
        return
    if len(shape) == 2 and name not in ("cnn", "mlp", "har-mlp"):
        with pytest.raises(ModelError, match=f"model {name}: takes images"):
            build(name, shape, classes, seed=0)
        return
    size = MODELS[name].size(shape, classes)
    model = build(name, shape, classes, seed=0)
    assert sum(p.numel() for p in model.parameters()) == size.parameters
    assert sum(t.numel() * t.element_size() for t in model.state_dict().values()) == size.bytes
    assert model(torch.zeros(2, *shape)).shape == (2, classes)
    assert model.extractor(torch.zeros(2, *shape)).shape == (2, size.features)
    if name != "torchvision":  # see test_zoo
        assert forward_work(model, torch.zeros(1, *shape)) == work_of(size)
        assert saved_values(model, torch.zeros(8, *shape), 8) == pytest.approx(size.saved, rel=0.05)  # and statistics


def work_of(size: Size) -> Size:
    return Size(0, operations=size.operations, values=size.values, layers=size.layers, widest=size.widest)


@pytest.mark.slow
@pytest.mark.parametrize("side", [8, 13, 32, 128])
@pytest.mark.parametrize("name", [name for name in CLOSED if name != "torchvision"])
def test_the_work_of_a_forward_pass_is_the_catalogues(name: str, side: int) -> None:
    if side < LEAST.get(name, 0):
        return
    params = {"features": 20} if issubclass(MODELS[name].params, Features) else {}
    model, size = build(name, (3, side, side), 7, 0, params), MODELS[name].size((3, side, side), 7, params)
    assert forward_work(model, torch.zeros(1, 3, side, side)) == work_of(size)
    assert sum(each.numel() for each in model.parameters()) == size.parameters


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("cnn", (1, 28, 28), 10, 26_434),  # FEELPGen; FedGen's network
        ("celeba-cnn", (3, 84, 84), 2, 25_954),  # the same
        ("har-mlp", (9, 128), 6, 664_646),  # FEELPGen
        ("phefl-cnn", (1, 28, 28), 10, 1_663_370),  # PHE-FL on MNIST
        ("phefl-cnn", (3, 32, 32), 10, 2_156_490),  # PHE-FL on CIFAR-10
    ],
)
def test_published_parameter_counts(name: str, shape: Shape, classes: int, parameters: int) -> None:
    assert MODELS[name].parameters(shape, classes) == parameters


def test_registries_agree() -> None:
    assert set(BUILDERS) == {name for name, entry in MODELS.items() if entry.build is None}


def test_seed_decides_and_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(11)
    expected = torch.rand(1)
    torch.manual_seed(11)
    first, again, other = (build("cnn", (1, 8, 8), 10, seed) for seed in (5, 5, 6))
    assert torch.rand(1) == expected
    same = [torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True)]
    assert all(same)
    assert not torch.equal(first.classifier.weight, other.classifier.weight)  # type: ignore[arg-type]


def test_extractor_and_classifier_make_the_model() -> None:
    model = build("mlp", (1, 8, 8), 10, 0, {"hidden": 16})
    x = torch.rand(3, 1, 8, 8)
    assert isinstance(model, Model)
    assert model.extractor(x).shape == (3, 16)
    assert torch.equal(model(x), model.classifier(model.extractor(x)))


def test_unknown_model_and_parameter() -> None:
    with pytest.raises(ModelError, match="no model 'cnm': known are cnn,"):
        build("cnm", (1, 8, 8), 10, 0)
    with pytest.raises(ModelError, match="model mlp: unknown parameter 'hiden'; did you mean 'hidden'"):
        build("mlp", (1, 8, 8), 10, 0, {"hiden": 3})


def test_a_batch_of_one_sample_is_normalised_by_what_was_seen_before() -> None:
    # separable-cnn leaves one value per channel of an 8x8 picture, which has no variance.
    model = build("separable-cnn", (1, 8, 8), 10, 0)
    model.train()
    model(torch.rand(20, 1, 8, 8))
    before = {name: array.copy() for name, array in model.views.items()}
    x = torch.rand(1, 1, 8, 8)
    lone = model.extractor(x)
    last = [name.removesuffix(".running_mean") for name in before if name.endswith(".running_mean")][-1]
    assert np.array_equal(model.views[f"{last}.running_mean"], before[f"{last}.running_mean"])
    assert model.views[f"{last}.num_batches_tracked"] == 1
    assert torch.isfinite(lone).all()
    assert all(module.training for module in model.modules())
    model(torch.rand(2, 1, 8, 8))
    assert model.views[f"{last}.num_batches_tracked"] == 2


def test_resnet_without_normalisation_starts_calm() -> None:
    # Every residual branch ends in zeros, so the signal is that of the shortcuts and does not grow with depth.
    model = build("resnet18", (3, 32, 32), 10, 0)
    logits = model(torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert logits.abs().max() < 3


def test_resnet_by_width_and_initialisation() -> None:
    """A narrow one has the topology of the wide one. A block of `fixup` ends in zeros, those of the others do not; He's
    variance is 2 / (9 · 16) for a 3x3 convolution to 16 channels, torch's 1 / (3 · 9 · inputs)."""
    found = {}
    for name in ("fixup", "kaiming", "torch"):
        params = {"width": 8, "initialisation": name}
        model = build("resnet18", (1, 28, 28), 10, 0, params)
        size = MODELS["resnet18"].size((1, 28, 28), 10, params)
        assert sum(each.numel() for each in model.parameters()) == size.parameters
        found[name] = model.views["extractor.4.second.weight"].var()  # 16 channels, from 16
    assert found["fixup"] == 0
    assert found["kaiming"] == pytest.approx(2 / (9 * 16), rel=0.1)
    assert found["torch"] == pytest.approx(1 / (3 * 9 * 16), rel=0.1)


def test_a_pool_has_a_model_for_each_thread_and_remembers_the_start() -> None:
    model_pool = ModelPool(lambda: build("mlp", (1, 8, 8), 10, seed=3))
    mine = model_pool.model
    assert model_pool.model is mine
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: model_pool.model).result() is not mine
    before = model_pool.initial()
    for view in mine.views.values():
        view += 1
    for name, values in model_pool.initial().items():
        np.testing.assert_array_equal(values, before[name])
        np.testing.assert_array_equal(values + 1, mine.views[name])


def test_a_thread_of_a_pool_gets_a_spare_model_before_a_new_one() -> None:
    first, *more = (build("mlp", (1, 8, 8), 10, seed=3) for _ in range(2))
    model_pool = ModelPool(more.pop, spare=[first])
    assert model_pool.model is first
    model_pool.hand_on()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: model_pool.model).result() is first
    assert model_pool.model is not first
    assert more == []


@pytest.mark.parametrize("name", ["cnn", "mlp", "lenet", "separable-cnn", "tiny-resnet", "torchvision"])
def test_models_with_a_number_of_features(name: str) -> None:
    params = {"features": 24} | ({"architecture": "squeezenet-1.1", "image_size": 32} if name == "torchvision" else {})
    size, model = MODELS[name].size((1, 16, 16), 10, params), build(name, (1, 16, 16), 10, 0, params)
    assert sum(p.numel() for p in model.parameters()) == size.parameters
    assert sum(t.numel() * t.element_size() for t in model.state_dict().values()) == size.bytes
    x = torch.rand(2, 1, 16, 16)
    assert model.extractor(x).shape == (2, size.features) == (2, 24)
    assert model(x).shape == (2, 10)


def test_a_group_gives_all_its_models_the_number_of_features() -> None:
    group = MODEL_GROUPS["small"]
    assert {size.features for size in group.sizes((1, 16, 16), 10)} == {32, 48, 64, 84, 200}
    assert {size.features for size in group.sizes((1, 16, 16), 10, {"features": 24})} == {24}
    assert group.member(6, {"features": 24}) == ("mlp", {"features": 24})


def test_frozen_parameters_that_stay_are_no_part_of_the_state() -> None:
    frozen = nn.Linear(4, 3).requires_grad_(False)
    model = Model(nn.Sequential(nn.Flatten(), frozen, nn.BatchNorm1d(3)), nn.Linear(3, 2), frozen_travels=False)
    norm = [f"extractor.2.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")]
    assert [*model.travelling] == [*model.get()] == [*model.shapes] == [*norm, "classifier.weight", "classifier.bias"]
    before = frozen.weight.clone()
    model.set({name: np.ones_like(values) for name, values in model.get().items()})
    assert torch.equal(frozen.weight, before)
    assert all((values == 1).all() for values in model.get().values())


@pytest.mark.parametrize(("lora", "floats"), [(None, 5 * 8 + 8 * 8 + 8), ({"rank": 2, "alpha": 2}, 2 * (8 + 5))])
def test_tied_weights_travel_once(lora: dict[str, int] | None, floats: int) -> None:
    """Five kinds of tokens in sequences of 16, so the mask has 256 bytes."""
    entry = ModelEntry("tied", build=user_models.tied)
    params = {} if lora is None else {"lora": lora | {"targets": ["head"]}}
    model = build("tied", (16,), 5, 1, params, {"tied": entry})
    state = model.get()
    assert sum(values.size for values in state.values() if values.dtype == np.float32) == floats
    size = measured(entry, Form((16,), 5, True, (16,)), params)
    assert (size.parameters, size.bytes, size.partial) == (floats, 4 * floats + 256, lora is not None)
    assert size.bytes == sum(values.nbytes for values in state.values())
    model.set({name: np.ones_like(values) for name, values in state.items()})
    head: Any = model.extractor.head
    tokens: Any = model.extractor.tokens
    assert (head if lora is None else head.layer).weight is tokens.weight
    assert all((values == 1).all() for values in model.get().values())
