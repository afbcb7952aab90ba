from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from node.algorithms.dffke.docking import dock, docking_layer
from node.algorithms.dffke.parameters import DFFKE

PARAMS = DFFKE(dimension=8, docking_epochs=60, learning_rate=0.02, batch_size=16)


def two_clients() -> tuple[dict[str, NDArray[np.float32]], dict[str, NDArray[np.int64]]]:
    """Three classes in spaces of 3 and 5 dimensions: each class about an axis, which differs from client to client."""
    random = np.random.default_rng(0)
    labels = {"a": random.integers(3, size=90), "b": random.integers(3, size=40)}
    axes = {"a": np.eye(3), "b": np.roll(np.eye(5), 2, axis=1)[:3]}
    embeddings = {
        owner: (3 * axes[owner][y] + 0.1 * random.standard_normal((len(y), axes[owner].shape[1]))).astype(np.float32)
        for owner, y in labels.items()
    }
    return embeddings, labels


def test_translation_worked_example() -> None:
    """Equation 10 with W = [[1, 2], [0, -1], [3, 0]], b = (1, 0, -1): W (2, 5) + b = (13, -5, 5)."""
    layer = {"weight": np.array([[1, 2], [0, -1], [3, 0]], np.float32), "bias": np.array([1, 0, -1], np.float32)}
    assert docking_layer(layer)(torch.tensor([[2.0, 5.0]])).tolist() == [[13, -5, 5]]
    assert not docking_layer(layer).weight.requires_grad


def test_classes_of_different_clients_meet() -> None:
    embeddings, labels = two_clients()
    docked = dock(embeddings, labels, {}, 3, PARAMS, seed=1)
    assert docked.accuracy == 1
    assert {owner: values.shape for owner, values in docked.translated.items()} == {"a": (90, 8), "b": (40, 8)}
    means = {
        owner: np.stack([docked.translated[owner][labels[owner] == c].mean(0) for c in range(3)]) for owner in "ab"
    }
    distances = np.linalg.norm(means["a"][:, None] - means["b"][None], axis=2)
    assert distances.argmin(axis=1).tolist() == [0, 1, 2]  # each class of a is nearest to the same class of b


def test_translated_embeddings_are_those_of_the_layers() -> None:
    embeddings, labels = two_clients()
    docked = dock(embeddings, labels, {}, 3, PARAMS, seed=1)
    for owner, values in embeddings.items():
        expected = docking_layer(docked.layers[owner])(torch.tensor(values))
        np.testing.assert_allclose(docked.translated[owner], expected, rtol=1e-5, atol=1e-5)


def test_the_seed_decides_and_known_layers_continue() -> None:
    embeddings, labels = two_clients()
    first, again = (dock(embeddings, labels, {}, 3, PARAMS, seed=1) for _ in range(2))
    np.testing.assert_array_equal(first.translated["a"], again.translated["a"])
    short = replace(PARAMS, docking_epochs=1, learning_rate=1e-6)
    later = dock(embeddings, labels, first.layers, 3, short, seed=2)
    np.testing.assert_allclose(later.layers["b"]["weight"], first.layers["b"]["weight"], atol=1e-4)
    other = {"a": np.zeros((8, 7), np.float32), "b": np.zeros((8, 5), np.float32)}  # a had a model of 7 features
    anew = dock(embeddings, labels, {owner: {"weight": w} for owner, w in other.items() if owner == "a"}, 3, short, 2)
    assert anew.layers["a"]["weight"].shape == (8, 3)


def test_the_head_is_discarded() -> None:
    docked = dock(*two_clients(), {}, 3, PARAMS, seed=1)
    assert {name: values.shape for name, values in docked.layers["a"].items()} == {"weight": (8, 3), "bias": (8,)}
    assert set(vars(docked)) == {"layers", "translated", "accuracy"}
