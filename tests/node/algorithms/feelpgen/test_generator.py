from __future__ import annotations

import gc
import math
import weakref
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from node.algorithms.feelpgen.generator import (
    CLASSIFIER,
    NOISE,
    TRAINED,
    Reinforcement,
    alikeness,
    dimensions,
    distance,
    ensemble_loss,
    extract,
    generate,
    new_generator,
    reinforcement_work,
    sample_features,
    sample_pairs,
)
from node.algorithms.feelpgen.parameters import FEELPGenMinus
from node.learning.aggregation import State
from node.learning.data.datasets import Prepared
from node.learning.errors import ModelError
from node.learning.models import Model, ModelPool, build
from node.learning.training import Learner, MiniBatch

CLASSES, FEATURES, HIDDEN = 3, 4, 8
NOTHING = MiniBatch(torch.zeros(2, FEATURES), torch.zeros(2).long(), torch.zeros(2, CLASSES))


@pytest.fixture
def generator() -> State:
    return new_generator(CLASSES, FEATURES, HIDDEN, seed=1)


def head(seed: int, scale: float = 1.0) -> State:
    random = np.random.default_rng(seed)
    return {
        "classifier.weight": (scale * random.normal(size=(CLASSES, FEATURES))).astype(np.float32),
        "classifier.bias": random.normal(size=CLASSES).astype(np.float32),
    }


def accuracy(generator: State, classifier: State) -> float:
    """How many generated features the classifier takes for what they were generated for."""
    g = {name: torch.tensor(values) for name, values in generator.items()}
    labels = torch.arange(300) % CLASSES
    z = generate(g, torch.rand(300, NOISE, generator=torch.Generator().manual_seed(5)), labels).numpy()
    logits = z @ classifier["classifier.weight"].T + classifier["classifier.bias"]
    return float((logits.argmax(axis=1) == labels.numpy()).mean())


def test_sizes_of_the_papers_generator_and_model() -> None:
    """FedGen's generator for MNIST: (32 + 10 + 1) x 256, 2 x 256 of the norm, (256 + 1) x 32; the paper's 26,434 for
    the model, from its section V-A2."""
    model = build("cnn", (1, 28, 28), 10, seed=1)
    assert sum(p.numel() for p in model.parameters()) == 26_434
    assert dimensions(dict(model.views)) == (10, 32)
    state = new_generator(*dimensions(dict(model.views)), 256, seed=1)
    assert sum(state[name].size for name in TRAINED) == 43 * 256 + 2 * 256 + 257 * 32


def test_a_generator_starts_alike_for_one_seed(generator: State) -> None:
    again, other = (new_generator(CLASSES, FEATURES, HIDDEN, seed) for seed in (1, 2))
    assert all(np.array_equal(generator[name], again[name]) for name in generator)
    assert not np.array_equal(generator["hidden.weight"], other["hidden.weight"])


def test_generate_worked_example() -> None:
    """One class of two, two hidden units: inputs (noise, one-hot) sum to 2 + 1 and to 2, normalised by running mean 1
    and variance 4 (3 - 1) / 2 = 1 and (2 - 1) / 2 = 0.5, then added up with bias 0.25."""
    g = {
        "hidden.weight": torch.ones(2, NOISE + 2),
        "hidden.bias": torch.tensor([0.0, -1.0]),
        "norm.weight": torch.ones(2),
        "norm.bias": torch.zeros(2),
        "norm.running_mean": torch.ones(2),
        "norm.running_var": torch.full((2,), 4.0 - 1e-5),
        "output.weight": torch.ones(1, 2),
        "output.bias": torch.tensor([0.25]),
    }
    noise = torch.full((1, NOISE), 2 / NOISE)
    assert generate(g, noise, torch.tensor([1])).item() == pytest.approx(1 + 0.5 + 0.25)


def test_training_moves_the_running_statistics(generator: State) -> None:
    g = {name: torch.tensor(values) for name, values in generator.items()}
    noise, labels = torch.rand(16, NOISE), torch.arange(16) % CLASSES
    generate(g, noise, labels)
    assert torch.equal(g["norm.running_mean"], torch.zeros(HIDDEN))
    generate(g, noise, labels, training=True)
    assert not torch.equal(g["norm.running_mean"], torch.zeros(HIDDEN))


def trained_by(steps: int, regularisation: float = 0.0, **more: Any) -> FEELPGenMinus:
    return FEELPGenMinus(generator_steps=steps, generator_learning_rate=1e-2, generator_lambda=regularisation, **more)


def test_extraction_follows_the_mean_of_the_models_logits(generator: State) -> None:
    """Equation 9's first term: the classifiers of two models cancel but for the half by which one is larger, and what
    the generator learns is that half."""
    one = head(1, scale=2.0)
    other = {name: -0.5 * values for name, values in one.items()}
    mean = {name: 0.25 * values for name, values in one.items()}
    params = trained_by(200)
    both, alone = (extract(generator, models, params, 1, seed=3) for models in ([one, other], [mean]))
    assert all(np.allclose(both[name], alone[name], atol=1e-6) for name in both)
    assert accuracy(generator, one) < 0.6
    assert accuracy(both, one) > 0.95
    assert accuracy(both, other) < 0.2


def test_extraction_repeats_exactly_and_leaves_what_it_was_given_alone(generator: State) -> None:
    before = {name: values.copy() for name, values in generator.items()}
    for values in generator.values():
        values.flags.writeable = False  # as what arrives in messages is
    first, again, other = (
        extract(generator, [head(1)], FEELPGenMinus(generator_steps=5), 1, seed) for seed in (3, 3, 4)
    )
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["output.weight"], other["output.weight"])
    assert all(np.array_equal(before[name], generator[name]) for name in before)


def test_lambda_holds_the_generator_back(generator: State) -> None:
    def moved(by_norm: bool, regularisation: float) -> float:
        params = trained_by(100, regularisation, generator_distance="norm" if by_norm else "squared")
        trained = extract(generator, [head(1)], params, 1, seed=3)
        return float(sum(((trained[name] - generator[name]) ** 2).sum() for name in TRAINED))

    free = moved(False, 0.0)
    assert moved(False, 0.1) < free / 4
    assert moved(True, 1.0) < free / 4


def test_distance_worked_example() -> None:
    """(1, 2) to (0, 0) and (2) to (0): 1 + 4 + 4 = 9, whose root is 3; at 0 the norm has no gradient: 0."""
    w = [torch.tensor([1.0, 2.0]), torch.tensor([2.0])]
    zero = [torch.zeros(2), torch.zeros(1)]
    assert distance(w, zero, by_norm=False).item() == 9
    assert distance(w, zero, by_norm=True).item() == 3
    here = torch.zeros(2, requires_grad=True)
    (gradient,) = torch.autograd.grad(distance([here], [torch.zeros(2)], by_norm=True), [here])
    assert torch.equal(gradient, torch.zeros(2))


def test_alikeness_worked_example() -> None:
    """Two samples: noise (0, 0) and (2, 0) is (4 + 0) / 2 = 2 apart, features (0) and (3) are 3 apart; of the four
    pairs two are of one sample with itself: exp(-(2 * 3 + 2 * 3) / 4)."""
    noise, z = torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([[0.0], [3.0]])
    assert alikeness(noise, z).item() == pytest.approx(np.exp(-3))
    assert alikeness(noise, torch.ones(2, 1)).item() == 1


def test_diversity_spreads_the_features(generator: State) -> None:
    def spread(diversity: float) -> float:
        params = trained_by(100, diversity=diversity)
        trained = extract(generator, [head(1)], params, 1, seed=3)
        g = {name: torch.tensor(values) for name, values in trained.items()}
        z = generate(g, torch.rand(64, NOISE, generator=torch.Generator().manual_seed(1)), torch.zeros(64).long())
        return float(z.std(dim=0).mean())

    assert spread(5.0) > 1.5 * spread(0.0)


def test_samples_of_one_seed_differ_by_the_generator_alone(generator: State) -> None:
    assert sample_features(generator, 320, seed=9).shape == (320, FEATURES)
    assert sample_features(generator, 320, seed=9).dtype == np.float32
    assert np.array_equal(sample_features(generator, 320, seed=9), sample_features(dict(generator), 320, seed=9))
    other = extract(generator, [head(1)], FEELPGenMinus(generator_steps=5), 1, seed=3)
    assert not np.array_equal(sample_features(generator, 320, seed=9), sample_features(other, 320, seed=9))


def test_pairs_have_the_same_labels_and_different_noise(generator: State) -> None:
    first, second = sample_pairs(generator, 320, seed=9)
    assert np.array_equal(first, sample_features(generator, 320, seed=9))
    assert first.shape == second.shape
    assert not np.allclose(first, second)
    weights = generator["hidden.weight"].copy()
    weights[:, :-CLASSES] = 0  # the noise: what remains depends on the label alone
    without = {**generator, "hidden.weight": weights}
    assert np.array_equal(*sample_pairs(without, 320, seed=9))


def model_of(classifier: State) -> Model:
    layer = torch.nn.Linear(FEATURES, CLASSES)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(classifier["classifier.weight"]))
        layer.bias.copy_(torch.tensor(classifier["classifier.bias"]))
    return Model(torch.nn.Flatten(), layer)


def test_reinforcement_is_a_weighed_loss_of_the_classifier(generator: State) -> None:
    """Equation 12 times its weight, with features that the same seed draws again; the extractor has no part in it."""
    model = model_of(head(1))
    term = Reinforcement(generator, weight=0.5, batch=6, seed=4)
    losses = [term(model, NOTHING) for _ in range(25)]  # more than are generated in one go
    assert len({loss.item() for loss in losses}) == 25
    again = Reinforcement(generator, weight=1.0, batch=6, seed=4)
    z, labels = next(again._batches_on(torch.device("cpu")))
    assert losses[0].item() == pytest.approx(0.5 * cross_entropy(model.classifier(z), labels).item())
    assert not z.requires_grad
    (gradient,) = torch.autograd.grad(losses[0], [model.get_parameter("classifier.weight")])
    assert gradient.abs().sum() > 0


def test_agreement_is_the_divergence_from_the_output_for_generated_features(generator: State) -> None:
    """FedGen's KL(p ‖ q) = Σ p log(p / q), the mean over the mini-batch; p, the output for features that are generated
    for the samples' labels, is a constant. With equal outputs nothing is to be learned."""
    model = model_of(head(1))
    x = torch.randn(3, FEATURES, generator=torch.Generator().manual_seed(1))
    y, weights = torch.tensor([0, 2, 2]), [model.get_parameter(name) for name in CLASSIFIER]
    term, again = (Reinforcement(generator, weight=0.0, batch=6, seed=4, agreement=2.0) for _ in range(2))
    loss = term(model, MiniBatch(x, y, model(x)))
    z = again._features_of(y)
    p, q = model.classifier(z).softmax(1).detach(), model(x).softmax(1)
    by_hand = 2.0 * (p * (p / q).log()).sum(1).mean()
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-4)
    for found, expected in zip(torch.autograd.grad(loss, weights), torch.autograd.grad(by_hand, weights), strict=True):
        assert torch.allclose(found, expected, atol=1e-6)
    third = Reinforcement(generator, weight=0.0, batch=6, seed=4, agreement=2.0)
    assert third(model, MiniBatch(x, y, model.classifier(z))).item() == pytest.approx(0.0, abs=1e-6)


def test_the_teacher_is_the_mean_of_logits_or_of_probabilities() -> None:
    """Two classifiers give label 0 the logits (z, 0) and (slope · z, 0), at z = ln 3. Slope −1: the mean logits are
    (0, 0), the probabilities 3/4 and 1/4; both means say 1/2. Slope 0: the mean logits (ln √3, 0) say √3 / (1 + √3),
    the probabilities 3/4 and 1/2 have the mean 5/8."""
    z, y = torch.tensor([[math.log(3)]]), torch.tensor([0])
    for slope, logits, probabilities in ((-1.0, 0.5, 0.5), (0.0, math.sqrt(3) / (1 + math.sqrt(3)), 5 / 8)):
        weights, biases = torch.tensor([[[1.0], [0.0]], [[slope], [0.0]]]), torch.zeros(2, 2)
        mean = weights.mean(0, keepdim=True), biases.mean(0, keepdim=True)
        assert ensemble_loss(z, y, *mean).exp().item() == pytest.approx(1 / logits)
        assert ensemble_loss(z, y, weights, biases).exp().item() == pytest.approx(1 / probabilities)


def test_reinforcement_goes_with_the_last_who_has_it(generator: State) -> None:
    """Thousands are made in a run, each with its generator: they must not wait for the collector of cycles."""
    term = Reinforcement(generator, weight=1.0, batch=6, seed=4)
    term(model_of(head(1)), NOTHING)
    known = weakref.ref(term)
    gc.disable()
    try:
        del term
        assert known() is None
    finally:
        gc.enable()


def test_reinforcement_teaches_labels_that_a_client_has_not(generator: State) -> None:
    """A client with label 0 alone forgets another, unless a generator that was taught by the others reminds it."""
    teacher = head(1)
    taught = extract(generator, [teacher], trained_by(300), 1, seed=3)
    own = torch.randn(32, FEATURES, generator=torch.Generator().manual_seed(1))
    found = {}
    for weight in (0.0, 1.0):
        model, term = model_of(teacher), Reinforcement(taught, weight, batch=32, seed=4)
        for _ in range(400):
            y = torch.zeros(32).long()
            logits = model(own)
            loss = cross_entropy(logits, y) + term(model, MiniBatch(own, y, logits))
            for w, g in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
                w.data.add_(g, alpha=-0.1)
        found[weight] = accuracy(taught, {name: values.copy() for name, values in model.views.items()})
    assert found[0.0] < 0.7
    assert found[1.0] > 0.95


def test_a_classifier_of_several_layers_is_refused() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 3))
    with pytest.raises(ModelError, match="one linear layer"):
        dimensions(dict(Model(torch.nn.Flatten(), layers).views))


def test_the_work_of_the_term_is_counted_by_layers_operations_and_values(digits: Prepared) -> None:
    """By hand, for an mlp 64-200-10 and mini-batches of 32. Seconds per layer of a batch, multiply-add and value:
    35e-6, 30e-12, 3.3e-9 with a backward pass and 17.5e-6, 21.5e-12, 0.38e-9 without."""
    learner = Learner(ModelPool(lambda: build("mlp", digits.shape, 10, 1)), digits, 7, "device-0")
    own = 4 * 35e-6 + 32 * ((64 * 200 + 200 * 10) * 30e-12 + (64 + 200 + 200 + 10) * 3.3e-9)
    operations, values = 42 * HIDDEN + HIDDEN * 200, 3 * HIDDEN + 200
    generated = 32 * (operations * 21.5e-12 + values * 0.38e-9)
    labelled = 2 * 35e-6 + 32 * (200 * 10 * 30e-12 + 20 * 3.3e-9)  # classifier, cross-entropy
    printed = 4 * 17.5e-6 / 20 + generated + labelled  # 20 batches are generated at once
    target = 2 * 17.5e-6 + 32 * (200 * 10 * 21.5e-12 + 20 * 0.38e-9)
    kl = 2 * (35e-6 + 32 * 10 * 3.3e-9)
    agreement = 4 * 17.5e-6 + generated + target + kl
    assert reinforcement_work(learner, HIDDEN, 32, 32, False) == pytest.approx(printed / own)
    assert reinforcement_work(learner, HIDDEN, 32, 32, True) == pytest.approx((printed + agreement) / own)


def test_the_work_on_mnists_pictures_is_near_what_was_measured() -> None:
    """Measured with `cnn` and pictures of 28x28 on one core: 7 to 17 % of a mini-batch for the printed loss, 25 to 37 %
    for FedGen's."""
    data = SimpleNamespace(shape=(1, 28, 28), classes=10, zeros=lambda count: np.zeros((count, 1, 28, 28), np.float32))
    learner: Any = Learner(ModelPool(lambda: build("cnn", (1, 28, 28), 10, 1)), cast(Any, data), 7, "device-0")
    assert 0.07 < reinforcement_work(learner, 256, 32, 32, False) < 0.17
    assert 0.25 < reinforcement_work(learner, 256, 32, 32, True) < 0.37
