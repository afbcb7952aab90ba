from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from node.algorithms.dffke.docking import docking_layer
from node.algorithms.dffke.embedding_decoder import (
    ClientModel,
    Decoder,
    Pictures,
    new_decoder,
    synthesise,
    train_decoder,
)
from node.algorithms.dffke.parameters import DFFKE
from node.catalogue.datasets import Shape
from node.learning.models import build

SMALL = DFFKE(dimension=8, width=4, decoder_epochs=15, learning_rate=0.005, batch_size=16)
PICTURES = Pictures((1, 8, 8), 10, (0.25,), (0.5,))


def client(name: str, seed: int) -> ClientModel:
    return ClientModel(name, {}, dict(build(name, PICTURES.shape, PICTURES.classes, seed).views))


def test_the_papers_decoder_has_its_number_of_parameters() -> None:
    """The paper's 4.4M, and 16.89 MB per round: 4,426,051 parameters and 640 running statistics of 4 bytes."""
    decoder = Decoder(512, (3, 32, 32), 64)
    parameters = sum(p.numel() for p in decoder.parameters())
    assert parameters == 4_426_051
    assert (parameters + 640) * 4 / 2**20 == pytest.approx(16.89, abs=0.005)
    assert decoder(torch.randn(2, 512)).shape == (2, 3, 32, 32)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 30, 18)])
def test_pictures_have_the_data_sets_shape_and_values_between_0_and_1(shape: Shape) -> None:
    made = Decoder(8, shape, 4)(5 * torch.randn(3, 8))
    assert made.shape == (3, *shape)
    assert 0 <= made.min() < made.max() <= 1


def test_normalisation_worked_example() -> None:
    """(0.75 − 0.25) / 0.5 = 1."""
    made = PICTURES.normalised(torch.full((1, 1, 8, 8), 0.75))
    assert set(made.flatten().tolist()) == {1}


@pytest.mark.slow
def test_a_picture_depends_on_its_embedding_alone() -> None:
    decoder = new_decoder(PICTURES, SMALL, seed=3)
    embeddings = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    together, alone = (
        synthesise(decoder, embeddings, PICTURES, SMALL),
        synthesise(decoder, embeddings[7:8], PICTURES, SMALL),
    )
    torch.testing.assert_close(together[7:8], alone, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(together[7], together[8], atol=1e-3)
    assert synthesise(decoder, embeddings[:0], PICTURES, SMALL).shape == (0, 1, 8, 8)


@pytest.mark.slow
def test_training_adds_docked_encodings_of_what_is_made_near_the_embeddings() -> None:
    """Equation 12 falls for two clients of different encoders, which stay as they were."""
    clients = {"a": client("cnn", 1), "b": client("lenet", 2)}
    random = np.random.default_rng(0)
    layers = {
        owner: {"weight": random.standard_normal((8, h)).astype(np.float32) / h**0.5, "bias": np.zeros(8, np.float32)}
        for owner, h in (("a", 32), ("b", 84))
    }
    real = torch.rand(40, 1, 8, 8)
    translated = {
        owner: docking_layer(layers[owner])(each.load(PICTURES).extractor(PICTURES.normalised(real))).numpy()
        for owner, each in clients.items()
    }

    def loss(decoder: dict[str, np.ndarray]) -> float:
        """Equation 12 written out, in evaluation mode."""
        total = 0.0
        for owner, model in clients.items():
            made = synthesise(decoder, translated[owner], PICTURES, SMALL)
            error = docking_layer(layers[owner])(model.load(PICTURES).extractor(made)) - torch.tensor(translated[owner])
            total += float(error.square().mean())
        return total

    before = {owner: {name: values.copy() for name, values in each.state.items()} for owner, each in clients.items()}
    first = new_decoder(PICTURES, SMALL, seed=3)
    trained, last = train_decoder(first, clients, layers, translated, PICTURES, SMALL, seed=4)
    assert loss(trained) < 0.8 * loss(first)
    assert last > 0
    again, _ = train_decoder(first, clients, layers, translated, PICTURES, SMALL, seed=4)
    for name, values in trained.items():
        np.testing.assert_array_equal(values, again[name])
    for owner, each in clients.items():
        for name, values in each.state.items():
            np.testing.assert_array_equal(values, before[owner][name])
    untouched, _ = train_decoder(first, clients, layers, translated, PICTURES, replace(SMALL, learning_rate=1e-12), 4)
    np.testing.assert_allclose(untouched["linear.weight"], first["linear.weight"], atol=1e-6)
