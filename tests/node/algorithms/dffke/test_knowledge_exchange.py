from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from node.algorithms.dffke.embedding_decoder import new_decoder, synthesise
from node.algorithms.dffke.knowledge_exchange import (
    divergence,
    embed,
    exchange,
    pictures_of,
    teach,
    train_epoch,
    with_another_pixel,
)
from node.algorithms.dffke.parameters import DFFKE
from node.algorithms.dffke.synthetic import Lesson, Transfer
from node.learning.aggregation import State
from node.learning.data.datasets import Prepared
from node.learning.models import ModelPool, build
from node.learning.training import Learner

PARAMS = DFFKE(dimension=8, width=4, batch_size=20, embeddings=30, learning_rate=0.003)


def learner_of(data: Prepared, indices: NDArray[np.int64], name: str = "lenet", seed: int = 5) -> Learner:
    return Learner(ModelPool(lambda: build(name, data.shape, data.classes, seed)), data, 7, "edge-0", indices)


@pytest.fixture
def learner(digits: Prepared) -> Learner:
    return learner_of(digits, np.arange(100))


def transfer_of(learner: Learner, seed: int, count: int = 60) -> Transfer:
    embeddings = np.random.default_rng(seed).standard_normal((count, 8)).astype(np.float32)
    return Transfer(new_decoder(pictures_of(learner), PARAMS, seed), embeddings)


def test_divergence_worked_example() -> None:
    """Teacher (1/2, 1/2), student (1/4, 3/4): KL(t ‖ s) = ½ ln 2 + ½ ln ⅔, KL(s ‖ t) = ¼ ln ½ + ¾ ln 3/2."""
    teacher, student = torch.tensor([[0.0, 0.0]] * 2), torch.tensor([[0.0, log(3)]] * 2)
    assert divergence(teacher, student, "teacher").item() == pytest.approx(0.5 * log(2) + 0.5 * log(2 / 3))
    assert divergence(teacher, student, "student").item() == pytest.approx(0.25 * log(0.5) + 0.75 * log(1.5))
    assert divergence(student, student + 5, "teacher").item() == pytest.approx(0, abs=1e-6)


def test_passes_lead_to_accuracy_and_moments_carry_over(learner: Learner) -> None:
    state, moments = learner.initial(), State()
    accuracies = []
    for seed in range(20):
        done = train_epoch(learner, state, moments, PARAMS, seed)
        state, moments = done.state, done.moments
        accuracies.append(done.accuracy)
    assert accuracies[0] < 0.5
    assert accuracies[-1] > 0.9
    assert set(moments["steps"]) == {20 * 5}  # of each parameter; 100 samples, mini-batches of 20


def test_embeddings_are_the_extractors(learner: Learner) -> None:
    state = learner.initial()
    released, labels = embed(learner, state, PARAMS, seed=3)
    assert released.values.shape == (30, 84)
    x, y = learner.train_data
    learner.set(state)
    with torch.inference_mode():
        everything = learner.model.eval().extractor(learner.normalise(x)).numpy()
    for row, label in zip(released.values, labels, strict=True):
        near = np.abs(everything - row).max(axis=1) < 1e-5
        assert label in y.numpy()[near]
    np.testing.assert_array_equal(embed(learner, state, PARAMS, seed=3)[0].values, released.values)


def test_all_samples_are_shared_where_there_are_few(learner: Learner) -> None:
    released, labels = embed(learner, learner.initial(), replace(PARAMS, embeddings=750), seed=3)
    assert len(released.values) == len(labels) == 100


@pytest.mark.parametrize("privacy", ["clip", "empirical"])
def test_what_is_shared_is_noised_if_asked_for(learner: Learner, privacy: str) -> None:
    params, state = replace(PARAMS, privacy=privacy), learner.initial()
    plain, noised = embed(learner, state, PARAMS, 3)[0], embed(learner, state, params, 3)[0]
    assert noised.sigma > 0
    assert noised.delta == 1 / 100
    assert not np.allclose(plain.values, noised.values, atol=noised.sigma / 10)
    [taught] = teach(learner, state, [transfer_of(learner, 1)], params, 3)
    assert taught.sigma > 0


def test_teachers_say_what_their_models_say_of_the_pictures(learner: Learner) -> None:
    state, transfers = learner.initial(), [transfer_of(learner, 1), transfer_of(learner, 2, count=7)]
    first, second = teach(learner, state, transfers, PARAMS, seed=1)
    assert (first.values.shape, second.values.shape) == ((60, 10), (7, 10))
    made = synthesise(transfers[1].decoder, transfers[1].embeddings, pictures_of(learner), PARAMS)
    learner.set(state)
    with torch.inference_mode():
        np.testing.assert_allclose(second.values, learner.model.eval()(made), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_student_comes_near_its_teacher_now_and_in_review(digits: Prepared, learner: Learner) -> None:
    teacher = learner_of(digits, np.arange(100), "cnn", seed=9)
    theta = teacher.initial()
    for seed in range(10):
        theta = train_epoch(teacher, theta, {}, PARAMS, seed).state
    lessons = [
        Lesson(each, teach(teacher, theta, [each], PARAMS, 0)[0].values)
        for each in (transfer_of(learner, 1), transfer_of(learner, 2))
    ]

    def distance(state: State, lesson: Lesson) -> float:
        [mine] = teach(learner, state, [lesson.transfer], PARAMS, 0)
        return float(divergence(torch.tensor(lesson.logits), torch.tensor(mine.values), "teacher"))

    start, params = learner.initial(), replace(PARAMS, exchange_epochs=20)
    both = exchange(learner, start, lessons[:1], lessons[1:], params, seed=4)
    alone = exchange(learner, start, lessons[:1], [], params, seed=4)
    assert distance(both.state, lessons[0]) < 0.3 * distance(start, lessons[0])
    assert distance(both.state, lessons[1]) < 0.3 * distance(start, lessons[1])
    assert distance(both.state, lessons[1]) < distance(alone.state, lessons[1])
    assert (alone.review_loss, both.review_loss > 0) == (0, True)
    again = exchange(learner, start, lessons[:1], lessons[1:], params, seed=4)
    for name, values in both.state.items():
        np.testing.assert_array_equal(values, again.state[name])


def test_private_steps_keep_what_a_client_knows(learner: Learner) -> None:
    """A teacher of nothing, whose logits are all equal, makes a client forget its own data; steps on these data do not
    let it."""
    start = learner.initial()
    for seed in range(5):
        start = train_epoch(learner, start, {}, PARAMS, seed).state
    lesson = Lesson(transfer_of(learner, 1), np.zeros((60, 10), np.float32))
    losses = {}
    for steps in (0, 1):
        params = replace(PARAMS, exchange_epochs=20, private_steps=steps)
        learned = exchange(learner, start, [lesson], [], params, seed=4).state
        losses[steps] = train_epoch(learner, learned, {}, replace(PARAMS, learning_rate=1e-9), 1).loss
    assert losses[1] < 0.5 * losses[0]


def test_a_client_without_data_makes_no_private_steps(digits: Prepared) -> None:
    empty = learner_of(digits, np.arange(0))
    lesson = Lesson(transfer_of(empty, 1), np.zeros((60, 10), np.float32))
    without, asked = (
        exchange(empty, empty.initial(), [lesson], [], replace(PARAMS, private_steps=steps), 1).state
        for steps in (0, 1)
    )
    assert all(np.array_equal(values, asked[name]) for name, values in without.items())


def test_logits_have_a_noise_of_their_own(learner: Learner) -> None:
    """Clipped to the norm of embeddings, to one of their own, or sent as they are."""
    state, transfers = learner.initial(), [transfer_of(learner, 1)]
    both = replace(PARAMS, privacy="clip", clip_norm=0.5)
    [same] = teach(learner, state, transfers, both, 3)
    [wide] = teach(learner, state, transfers, replace(both, logits_clip_norm=2.0), 3)
    [clean] = teach(learner, state, transfers, replace(both, noised="embeddings"), 3)
    assert (same.sensitivity, wide.sensitivity, clean.sensitivity) == (1.0, 4.0, 0.0)
    assert embed(learner, state, replace(both, logits_clip_norm=2.0, noised="embeddings"), 3)[0].sensitivity == 1.0


def test_running_statistics_are_kept_if_asked_for(digits: Prepared) -> None:
    student = learner_of(digits, np.arange(100), "cnn")
    start, lesson = student.initial(), Lesson(transfer_of(student, 1), np.zeros((60, 10), np.float32))
    learned, kept = (
        exchange(student, start, [lesson], [], replace(PARAMS, exchange_statistics=which), 1).state
        for which in ("batch", "running")
    )
    name = "extractor.1.running_mean"
    np.testing.assert_array_equal(kept[name], start[name])
    assert not np.array_equal(learned[name], start[name])
    assert not np.array_equal(kept["classifier.weight"], start["classifier.weight"])


def test_one_pixel_of_each_picture_is_another() -> None:
    x = torch.full((50, 3, 6, 4), 300.0)
    changed = with_another_pixel(x, 0, 255, torch.Generator().manual_seed(1))
    different = changed != x
    assert different.any(dim=1).sum(dim=(1, 2)).tolist() == [1] * 50
    assert 0 <= changed[different].min() < changed[different].max() <= 255
    assert (x == 300).all()
