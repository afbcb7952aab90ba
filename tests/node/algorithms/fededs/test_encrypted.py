from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from node.algorithms.fededs.encrypted import (
    NOTHING,
    Distillation,
    EncryptedSet,
    FeatureNoise,
    Incoming,
    knowledge_loss,
    resemblance,
    stochastic_layer,
    through,
    to_bytes,
    to_input,
    unrecorded,
)
from node.learning.data.datasets import Prepared
from node.learning.models import Model, build
from node.learning.training import MiniBatch


def encrypted_set(samples: int, seed: int = 0) -> EncryptedSet:
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (samples, 1, 8, 8), np.uint8)
    outputs = random.dirichlet(np.ones(10), samples).astype(np.float32)
    return EncryptedSet(images, outputs, stochastic_layer(32, seed, "gauss"), -1.0, 2.0)


def test_knowledge_loss_worked_example() -> None:
    """y = (1/2, 1/2), student (1/4, 3/4): KL = 1/2 ln 2 + 1/2 ln 2/3 = 1/2 ln 4/3. Equal distributions: 0."""
    outputs = torch.tensor([[0.5, 0.5], [0.25, 0.75]])
    logits = torch.log(torch.tensor([[1.0, 3.0], [1.0, 3.0]]))
    assert knowledge_loss(outputs, logits, "sum").item() == pytest.approx(math.log(4 / 3) / 2)
    assert knowledge_loss(outputs, logits, "mean").item() == pytest.approx(math.log(4 / 3) / 4)


def test_the_layer_keeps_lengths_and_depends_on_the_seed() -> None:
    layer = stochastic_layer(512, 3, "gauss")
    assert np.array_equal(layer, stochastic_layer(512, 3, "gauss"))
    assert not np.array_equal(layer, stochastic_layer(512, 4, "gauss"))
    assert layer.var() == pytest.approx(1 / 512, rel=0.02)
    features = np.ones(512)
    assert np.linalg.norm(layer @ features) == pytest.approx(np.linalg.norm(features), rel=0.1)


def test_layers_of_the_other_kinds() -> None:
    """I + R/2 has the mean 1 and the variance 1/(4d) on its diagonal; without a layer, and with noise, it is I."""
    near = stochastic_layer(512, 3, "near-identity")
    assert np.diag(near).mean() == pytest.approx(1, abs=0.01)
    assert (near - np.eye(512)).var() == pytest.approx(1 / 4 / 512, rel=0.02)
    for kind in ("noise", "none"):
        assert np.array_equal(stochastic_layer(512, 3, kind), np.eye(512))


def test_noise_is_fresh_and_as_large_as_the_features() -> None:
    """Features of standard deviation 3: what is added has it too, and is uncorrelated with what is added next."""
    features = 3 * torch.randn(64, 512, generator=torch.Generator().manual_seed(0))
    noise, again = FeatureNoise(5), FeatureNoise(5)
    first, second = noise(features) - features, noise(features) - features
    assert first.std().item() == pytest.approx(3, rel=0.02)
    assert abs(torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1].item()) < 0.02
    assert torch.equal(again(features) - features, first)


def test_resemblance_worked_example() -> None:
    """Correlations 1, −1 (a negative shows as much) and, for values (0, 1, 2, 3) and (1, 0, 1, 0), −1/√5; the median of
    their absolute values is 1. A picture of one value shows nothing. The unit does not count."""
    x = torch.tensor([[0.0, 1, 2, 3]] * 3).reshape(3, 1, 2, 2)
    sent = torch.tensor([[5.0, 7, 9, 11], [3, 2, 1, 0], [1, 0, 1, 0]]).reshape(3, 1, 2, 2)
    assert resemblance(x, sent) == pytest.approx(1)
    assert resemblance(x[2:], sent[2:]) == pytest.approx(1 / math.sqrt(5))
    assert resemblance(x[:1], torch.ones(1, 1, 2, 2)) == 0
    assert resemblance(x * 1e-12, sent) == pytest.approx(1)


def test_through_the_layer_worked_example() -> None:
    """x = (1, 2), layer ((0, 1), (3, 0)): features (2, 3); classifier ((1, 1), (0, 2)): logits (5, 6)."""
    classifier = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        classifier.weight.copy_(torch.tensor([[1.0, 1.0], [0.0, 2.0]]))
    model = Model(nn.Identity(), classifier)
    logits = through(model, torch.tensor([[0.0, 1.0], [3.0, 0.0]]), torch.tensor([[1.0, 2.0]]))
    assert logits.tolist() == [[5.0, 6.0]]


def test_bytes_are_the_nearest_of_256_steps() -> None:
    x = np.linspace(-1.5, 2, 1000, dtype=np.float32).reshape(10, 1, 10, 10)
    images, low, high = to_bytes(x)
    assert (images.min(), images.max(), low, high) == (0, 255, -1.5, 2.0)
    back = to_input(torch.from_numpy(images), low, high)
    assert np.abs(back.numpy() - x).max() <= 3.5 / 255 / 2 + 1e-6
    assert to_bytes(np.zeros((1, 1, 2, 2), np.float32))[0].tolist() == [[[[0, 0], [0, 0]]]]
    assert torch.equal(to_input(torch.from_numpy(x), 0, 0), torch.from_numpy(x))


def test_a_set_travels_in_parts_of_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.algorithms.fededs.encrypted.PART_BYTES", 640)  # ten pictures of 64 bytes
    whole = encrypted_set(25)
    parts = whole.parts()
    assert [len(part["images"]) for part in parts] == [10, 10, 5]
    incoming = Incoming(whole.layer, 3, whole.low, whole.high)
    for p in (2, 0):
        incoming.received[p] = parts[p]
    assert not incoming.complete
    assert [incoming.lacks(p) for p in range(4)] == [False, True, False, False]
    incoming.received[1] = parts[1]
    back = incoming.set()
    assert np.array_equal(back.images, whole.images)
    assert np.array_equal(back.outputs, whole.outputs)


def test_a_picture_larger_than_a_part_is_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.algorithms.fededs.encrypted.PART_BYTES", 10)
    assert len(encrypted_set(3).parts()) == 3


def test_nothing_is_complete_and_has_no_parts() -> None:
    assert NOTHING.parts() == []
    assert Incoming(NOTHING.layer, 0, 0.0, 0.0).complete


def test_distillation_goes_through_its_lessons(digits: Prepared) -> None:
    """Two epochs of 5 samples in batches of 2: three steps from the first lesson, three from the second."""
    model = build("cnn", digits.shape, 10, seed=1).eval()
    lessons = (encrypted_set(5, 1), encrypted_set(5, 2))
    term = Distillation(lessons, 0.25, 2, "mean")
    none = torch.empty(0)
    for epoch, lesson in enumerate(lessons):
        for place, start in enumerate((0, 2, 4)):
            images = to_input(torch.from_numpy(lesson.images[start : start + 2]), lesson.low, lesson.high)
            logits = through(model, torch.from_numpy(lesson.layer), images)
            outputs = torch.from_numpy(lesson.outputs[start : start + 2])
            expected = (outputs * (outputs / logits.softmax(1)).log()).sum(1).mean() / 4
            assert term(model, MiniBatch(none, none, none, epoch, place)).item() == pytest.approx(
                expected.item(), rel=1e-3
            )


def test_statistics_of_encrypted_pictures_are_not_kept(digits: Prepared) -> None:
    model = build("cnn", digits.shape, 10, seed=1).train()
    x = 5 + torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    before = {name: values.clone() for name, values in model.state_dict().items()}
    with unrecorded(model):
        outside = model(x)
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
    assert torch.equal(model(x), outside)
    assert not torch.equal(model.state_dict()["extractor.1.running_mean"], before["extractor.1.running_mean"])
