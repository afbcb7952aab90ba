from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from node.algorithms.fededs.encrypted import Distillation, EncryptedSet, Floats, stochastic_layer, through, to_input
from node.algorithms.fededs.encryptor import encrypt, recognised, unet, worth
from node.algorithms.fededs.parameters import FedEDS
from node.learning.aggregation import State
from node.learning.data.datasets import Prepared
from node.learning.local_training import LocalTraining
from node.learning.models import ModelPool, build
from node.learning.training import Learner

Trained = tuple[Learner, State]

PARAMS = FedEDS(encryptor_width=8, encryptor_epochs=15, batch_size=32)
LAYER = stochastic_layer(32, 5, "gauss")


@pytest.fixture(scope="module")
def trained(digits: Prepared) -> Trained:
    """A client of 200 digits, and the model that it trained without the layer (equation 2)."""
    model_pool = ModelPool(lambda: build("cnn", digits.shape, 10, seed=1))
    learner = Learner(model_pool, digits, 7, "edge-0", train=np.arange(200), own_test=np.arange(100))
    training = LocalTraining(learning_rate=0.1, momentum=0.9, epochs=20)
    return learner, learner.train(learner.initial(), training, 0).weights


@pytest.fixture(scope="module")
def made(trained: Trained) -> EncryptedSet:
    learner, weights = trained
    return encrypt(learner, weights, LAYER, PARAMS)


def accuracy(trained: Trained, x: torch.Tensor, layer: Floats | None) -> float:
    learner, weights = trained
    learner.set(weights)
    model = learner.model.eval()
    with torch.inference_mode():
        logits = model(x) if layer is None else through(model, torch.from_numpy(layer), x)
    return float((logits.argmax(1) == learner.train_data[1]).float().mean())


@pytest.mark.slow
def test_only_who_has_the_layer_recognises_the_pictures(trained: Trained, made: EncryptedSet) -> None:
    """Through its layer the model knows the encrypted pictures as well as it knows the plain ones without; plain
    pictures through the layer, encrypted ones through another layer or without any are hardly better than chance."""
    plain = trained[0].normalise(trained[0].train_data[0])
    pictures = to_input(torch.from_numpy(made.images), made.low, made.high)
    assert accuracy(trained, plain, None) > 0.9
    assert accuracy(trained, pictures, LAYER) > 0.9
    assert accuracy(trained, plain, LAYER) < 0.5
    assert accuracy(trained, pictures, stochastic_layer(32, 6, "gauss")) < 0.5
    assert accuracy(trained, pictures, None) < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["near-identity", "noise", "none"])
def test_with_the_other_layers_pictures_resemble_what_they_were(
    trained: Trained, made: EncryptedSet, kind: str
) -> None:
    """They are recognised as well, and look more like what they were made from than those of the random matrix."""
    learner, weights = trained
    other = encrypt(learner, weights, stochastic_layer(32, 5, kind), replace(PARAMS, layer=kind))
    assert recognised(learner, other)[0] > 0.9
    assert recognised(learner, other)[1] > recognised(learner, made)[1] + 0.05


@pytest.mark.slow
def test_pictures_are_not_those_they_were(trained: Trained, made: EncryptedSet) -> None:
    plain = trained[0].normalise(trained[0].train_data[0]).numpy().reshape(200, -1)
    pictures = made.images.reshape(200, -1).astype(float)
    own = [abs(np.corrcoef(a, b)[0, 1]) for a, b in zip(plain, pictures, strict=True)]
    assert np.median(own) < 0.6
    assert made.images.shape == (200, 1, 8, 8)


@pytest.mark.slow
def test_outputs_are_the_models_own_on_what_travels(trained: Trained, made: EncryptedSet) -> None:
    learner, weights = trained
    learner.set(weights)
    with torch.inference_mode():
        pictures = to_input(torch.from_numpy(made.images), made.low, made.high)
        outputs = through(learner.model.eval(), torch.from_numpy(LAYER), pictures).softmax(1)
    np.testing.assert_allclose(made.outputs, outputs, atol=1e-5)
    assert made.images.dtype == np.uint8


def test_the_same_seed_makes_the_same_set(trained: Trained) -> None:
    learner, weights = trained
    params = FedEDS(encryptor_width=4, encryptor_epochs=1, images="float32")
    first, second = (encrypt(learner, weights, LAYER, params) for _ in range(2))
    assert np.array_equal(first.images, second.images)
    assert first.images.dtype == np.float32
    assert (first.low, first.high) == (0, 0)
    assert all(np.array_equal(values, weights[name]) for name, values in learner.get().items())  # the model is frozen


@pytest.mark.slow
def test_the_optimizer_as_printed_makes_another_set(trained: Trained, made: EncryptedSet) -> None:
    """SGD of rate 0.001, where the paper prints it for the encryptor: it does no worse here."""
    learner, weights = trained
    params = FedEDS(encryptor_width=8, encryptor_epochs=10, batch_size=32, encryptor_optimizer="sgd")
    printed = encrypt(learner, weights, LAYER, params)
    assert (printed.outputs.argmax(1) == learner.train_data[1].numpy()).mean() > 0.9
    assert not np.array_equal(printed.images, made.images)


def test_what_is_learned_from_a_set_works_through_its_layer_alone(digits: Prepared, made: EncryptedSet) -> None:
    """A client of digits 5 to 9, without and with a set of 0 to 4 to learn from beside its own samples. With the random
    matrix it recognises the encrypted pictures through their layer, and no plain picture of the labels it never saw."""
    high = np.flatnonzero(digits.train_labels >= 5)[:200]
    learner = Learner(ModelPool(lambda: build("cnn", digits.shape, 10, seed=1)), digits, 7, "edge-1", train=high)
    low = made.taken(np.flatnonzero(digits.train_labels[:200] < 5))
    lessons = tuple(low.taken(np.resize(np.arange(len(low)), 200)) for _ in range(5))
    term, training = Distillation(lessons, 0.5, 32, "mean"), PARAMS.training(5, 0.05)
    through_layer, plain = [], []
    unseen = learner.normalise(torch.from_numpy(np.array(digits.array("x_test"))))[digits.array("y_test") < 5]
    for extra, own in ((None, 1.0), (term, 0.5)):
        learner.set(learner.train(learner.initial(), training, 1, extra, own).weights)
        with torch.inference_mode():
            pictures = to_input(torch.from_numpy(low.images), low.low, low.high)
            logits = through(learner.model.eval(), torch.from_numpy(low.layer), pictures)
            predicted = learner.model(unseen).argmax(1)
        through_layer.append(float(np.mean(logits.numpy().argmax(1) == low.outputs.argmax(1))))
        plain.append(float((predicted < 5).float().mean()))
    assert through_layer[0] < 0.3  # what a model that knows none of the labels gets right by chance and a little more
    assert through_layer[1] > 0.8
    assert max(plain) < 0.02  # it does not even take one for any label below 5


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 9, 14)])
def test_the_encryptor_keeps_the_shape(shape: tuple[int, ...]) -> None:
    g = unet(shape, 4, seed=1).eval()
    assert g(torch.zeros(2, *shape)).shape == (2, *shape)
    assert torch.equal(next(g.parameters()), next(unet(shape, 4, seed=1).parameters()))


def test_size_of_the_papers_encryptor() -> None:
    """Double convolutions 1-64-64, 64-128-128, 128-256-256, 256-128-128, 128-64-64 of 9 weights and twice a scale and
    a shift a channel; transposed ones of 4 weights and a shift; 64 to 1 at the end."""

    def double(inside: int, width: int) -> int:
        return 9 * (inside * width + width * width) + 4 * width

    expected = double(1, 64) + double(64, 128) + double(128, 256) + double(256, 128) + double(128, 64)
    expected += 4 * 256 * 128 + 128 + 4 * 128 * 64 + 64 + 65
    assert sum(parameter.numel() for parameter in unet((1, 28, 28), 64, seed=1).parameters()) == expected


def test_a_wider_encryptor_is_worth_more(trained: Trained) -> None:
    narrow, wide = (worth(trained[0], FedEDS(encryptor_width=width)) for width in (4, 64))
    assert 1 < narrow < wide / 10
