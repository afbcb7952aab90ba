from __future__ import annotations

import base64
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from node.algorithms.dffke import inversion
from node.algorithms.dffke.embedding_decoder import ClientModel, new_decoder
from node.algorithms.dffke.inversion import Score, class_means, invert, judge, noise_deviation, score, train_inversion
from node.algorithms.dffke.knowledge_exchange import embed, pictures_of, train_epoch
from node.algorithms.dffke.parameters import DFFKE
from node.algorithms.dffke.synthetic import Transfer
from node.learning.aggregation import State
from node.learning.data.datasets import Prepared
from node.learning.models import ModelPool, build
from node.learning.training import Learner

PARAMS = DFFKE(
    dimension=8,
    width=8,
    batch_size=20,
    embeddings=60,
    learning_rate=0.003,
    inversion=4,
    inversion_samples=300,
    inversion_epochs=15,
)


@pytest.fixture(scope="module")
def learner(digits: Prepared) -> Learner:
    return Learner(ModelPool(lambda: build("lenet", digits.shape, 10, 5)), digits, 7, "edge-0", np.arange(100))


def pictures(data: Prepared, part: str, count: int) -> Tensor:
    return torch.from_numpy(np.array(data.array(part))[:count]).float() / 255


def bytes_of(made: Tensor) -> inversion.Bytes:
    return (made.detach() * 255).round().to(torch.uint8).numpy()


# The attack


@pytest.mark.slow
def test_a_linear_encoder_is_inverted(digits: Prepared) -> None:
    """E = Q x with an orthogonal Q hides nothing: x = Qᵀ E. What is left is a small part of the pictures' variance, and
    pictures that the attacker never saw are told apart."""
    mine, private = pictures(digits, "x_test", 300), pictures(digits, "x_train", 100)
    q, _ = torch.linalg.qr(torch.randn(64, 64, generator=torch.Generator().manual_seed(1)))
    params = replace(PARAMS, width=16, inversion_epochs=20)
    generator = train_inversion(mine.flatten(1) @ q.T, mine, 0.0, params, seed=3).eval()
    found = score(bytes_of(generator(private.flatten(1) @ q.T)), bytes_of(private))
    assert found.mse < 0.15 * float(private.var(dim=0, correction=0).mean())
    assert found.recognised > 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "noise"), [(0.0, 0.0), (1.0, 1000.0)])
def test_embeddings_that_show_nothing_lead_to_the_mean(digits: Prepared, scale: float, noise: float) -> None:
    """The constant with the least mean squared error is the mean, and that error is the variance."""
    mine = pictures(digits, "x_test", 300)
    generator = train_inversion(scale * mine.flatten(1), mine, noise, PARAMS, seed=3).eval()
    random = torch.Generator().manual_seed(4)
    made = generator(scale * mine.flatten(1) + noise * torch.randn(300, 64, generator=random))
    variance = float(mine.var(dim=0, correction=0).mean())
    assert 0.95 * variance < score(bytes_of(made), bytes_of(mine)).mse < 1.2 * variance


def test_noise_is_what_variance_there_is_too_much() -> None:
    """1² + 3² = 10: noise of deviation 3 on values of deviation 1."""
    random = torch.Generator().manual_seed(1)
    known = torch.randn(5000, 8, generator=random)
    sent = torch.randn(5000, 8, generator=random) + 3 * torch.randn(5000, 8, generator=random)
    assert noise_deviation(sent, known) == pytest.approx(3, rel=0.02)
    assert noise_deviation(known / 2, known) == 0


def exposed(learner: Learner, params: DFFKE) -> tuple[dict[str, inversion.Bytes], dict[str, Any]]:
    """What a coordinator makes of what a client told after some training, and what the client says to that."""
    state = learner.initial()
    moments: State = {}
    for seed in range(10):
        done = train_epoch(learner, state, moments, params, seed)
        state, moments = done.state, done.moments
    released, _ = embed(learner, state, params, seed=9)
    translated = np.random.default_rng(2).standard_normal((60, 8)).astype(np.float32)
    transfer = Transfer(new_decoder(pictures_of(learner), params, 1), translated)
    made = invert(learner, ClientModel("lenet", {}, state), released.values, transfer, params, seed=3)
    return made, judge(learner, made, params, seed=9)


@pytest.mark.slow
def test_a_client_without_noise_is_recognised_and_one_with_noise_is_not(learner: Learner) -> None:
    variance = float((learner.train_data[0].float() / 255).var(dim=0, correction=0).mean())
    _, found = exposed(learner, PARAMS)
    of = found["scores"]
    assert of["reconstructed"]["mse"] < of["class_mean"]["mse"] < of["synthetic"]["mse"]
    assert of["reconstructed"]["recognised"] > of["class_mean"]["recognised"] > of["synthetic"]["recognised"]
    assert of["reconstructed"]["recognised"] > 0.3
    _, noised = exposed(learner, replace(PARAMS, privacy="clip"))
    assert noised["scores"]["reconstructed"]["mse"] > 0.9 * variance
    assert noised["scores"]["reconstructed"]["recognised"] < 0.1


@pytest.mark.slow
def test_the_same_seed_gives_the_same_reconstructions(learner: Learner) -> None:
    made, again = (exposed(learner, replace(PARAMS, inversion_epochs=1))[0] for _ in range(2))
    assert made.keys() == again.keys() == {"reconstructed", "synthetic"}
    for kind, values in made.items():
        assert values.shape == (60, 1, 8, 8)
        assert values.dtype == np.uint8
        np.testing.assert_array_equal(values, again[kind])


# The comparison


def test_scores_worked_example() -> None:
    """Private pictures (0, 0), (1, 1), (0, 1) of two values; the guesses (0, 0.2), (0, 0.6), (0, 0.8) differ from them
    by 0.04, 1 + 0.16 and 0.04 in squares, 1.24 / 6 on average; the second is nearest to the third picture."""
    private = np.array([[0, 0], [255, 255], [0, 255]], np.uint8).reshape(3, 1, 1, 2)
    guesses = np.array([[0, 51], [0, 153], [0, 204]], np.uint8).reshape(3, 1, 1, 2)
    found = score(guesses, private)
    assert found.mse == pytest.approx(1.24 / 6)
    assert found.recognised == pytest.approx(2 / 3)
    assert score(private, private) == Score(0.0, 1.0)


def test_class_means_worked_example() -> None:
    """Class 0 has 10 and 21, mean 15.5, which is even as 16; class 1 has 30; class 2 none: the mean of all, 20.33."""
    arrays = {"x_test": np.array([10, 30, 21], np.uint8).reshape(3, 1, 1, 1), "y_test": np.array([0, 1, 0])}
    learner = cast(Learner, SimpleNamespace(data=SimpleNamespace(array=arrays.__getitem__, classes=3)))
    assert class_means(learner).ravel().tolist() == [16, 30, 20]


def test_the_pictures_compared_are_those_whose_embeddings_were_shared(learner: Learner) -> None:
    state = learner.initial()
    released, labels = embed(learner, state, PARAMS, seed=9)
    params = replace(PARAMS, inversion=100)  # more than there are
    found = judge(learner, {"reconstructed": np.zeros((60, 1, 8, 8), np.uint8)}, params, seed=9)
    assert (found["samples"], found["shape"]) == (60, [1, 8, 8])
    of = {
        kind: np.stack([np.frombuffer(base64.b64decode(each), np.uint8).reshape(1, 8, 8) for each in made])
        for kind, made in found["pictures"].items()
    }
    learner.set(state)
    with torch.inference_mode():
        again = learner.model.eval().extractor(learner.normalise(torch.from_numpy(of["private"])))
    np.testing.assert_allclose(again.numpy(), released.values, atol=1e-5)
    np.testing.assert_array_equal(of["class_mean"], class_means(learner)[labels])
    assert not of["reconstructed"].any()


def test_the_record_takes_so_many_pictures_as_it_bears(learner: Learner, monkeypatch: pytest.MonkeyPatch) -> None:
    guesses = {"reconstructed": np.zeros((60, 1, 8, 8), np.uint8)}
    assert {len(made) for made in judge(learner, guesses, PARAMS, seed=9)["pictures"].values()} == {4}
    monkeypatch.setattr(inversion, "LARGEST", 2 * 3 * 64)  # two each of private pictures, guesses and means
    assert {len(made) for made in judge(learner, guesses, PARAMS, seed=9)["pictures"].values()} == {2}
