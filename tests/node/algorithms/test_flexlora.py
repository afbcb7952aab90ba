from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from node.algorithms.flexlora import cut, mean_product, merged, split, truncated
from node.learning.aggregation import State, weighted_mean
from node.learning.models import build
from node.messaging.wire import Message, encode

ALPHA, OUT, INSIDE = 8.0, 6, 10


def adapter(seed: int, rank: int) -> State:
    random = np.random.default_rng(seed)
    return {
        "layer.down.weight": random.normal(size=(rank, INSIDE)).astype(np.float32),
        "layer.up.weight": random.normal(size=(OUT, rank)).astype(np.float32),
        "norm.running_mean": np.full(2, seed, np.float32),
    }


def product(w: State) -> np.ndarray[Any, Any]:
    """s B A."""
    return mean_product([w], [1.0], "layer", ALPHA)


def test_the_mean_of_products_by_samples() -> None:
    states = [adapter(1, 2), adapter(2, 4)]
    a, b = ({name.split(".")[1]: each.astype(float) for name, each in w.items()} for w in states)
    expected = 0.25 * (8 / 2) * a["up"] @ a["down"] + 0.75 * (8 / 4) * b["up"] @ b["down"]
    np.testing.assert_allclose(mean_product(states, [0.25, 0.75], "layer", ALPHA), expected)
    made = merged(adapter(0, 6), states, [10, 30], ALPHA)
    np.testing.assert_allclose(product(made), expected, atol=1e-5)  # 6 is the rank of the sum
    assert made["norm.running_mean"][0] == np.float32(1.75)


def test_the_split_is_the_nearest_of_its_rank() -> None:
    """‖W − s B A‖² is the sum of the squares of the other singular values (C. Eckart, G. Young 1936)."""
    w = np.random.default_rng(5).normal(size=(OUT, INSIDE))
    up, down = split(w, 3, ALPHA)
    assert (up.shape, down.shape) == ((OUT, 3), (3, INSIDE))
    lost = np.linalg.svd(w, compute_uv=False)[3:]
    assert np.sum((w - ALPHA / 3 * up @ down) ** 2) == pytest.approx(np.sum(lost**2))
    np.testing.assert_allclose(down @ down.T, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("rank", [2, 3, 6])
def test_what_the_largest_rank_cannot_hold_is_counted(rank: int) -> None:
    """Two adapters of rank 3 have a mean product of rank 6. The share is of the squares of its singular values."""
    states, samples = [adapter(1, 3), adapter(2, 3)], [2, 6]
    singular = np.linalg.svd(mean_product(states, [0.25, 0.75], "layer", ALPHA), compute_uv=False)
    made = merged(adapter(0, rank), states, samples, ALPHA)
    expected = np.sum(singular[rank:] ** 2) / np.sum(singular**2)
    assert truncated(made, states, samples, ALPHA) == pytest.approx(expected, abs=1e-6)


def test_a_client_has_what_a_split_to_its_rank_gives() -> None:
    made = merged(adapter(0, 6), [adapter(1, 3), adapter(2, 3)], [1, 1], ALPHA)
    whole, low = product(made), cut(made, 2)
    up, down = split(whole, 2, ALPHA)
    assert low["layer.down.weight"].shape == (2, INSIDE)
    np.testing.assert_allclose(product(low), ALPHA / 2 * up @ down, atol=1e-5)
    assert all(cut(made, 6)[name] is made[name] or np.array_equal(cut(made, 6)[name], made[name]) for name in made)


def test_one_rank_for_all_gives_fedavgs_product_if_all_have_the_same_a() -> None:
    """Otherwise not: the mean of products is not the product of means."""
    first, second = adapter(1, 3), adapter(2, 3)
    same = second | {"layer.down.weight": first["layer.down.weight"]}
    for other, equal in ((same, True), (second, False)):
        flex, fed = merged(first, [first, other], [2, 6], ALPHA), weighted_mean([first, other], [2, 6])
        assert np.allclose(product(flex), product(fed), atol=1e-5) == equal


def test_only_a_clients_own_rank_travels_to_the_byte() -> None:
    def model(rank: int) -> State:
        lora = {"rank": rank, "alpha": ALPHA, "targets": ["query", "wide"]}
        return build("char-transformer", (16,), 11, 1, {"layers": 2, "width": 32, "lora": lora}).get()

    whole = model(16)
    for rank in (4, 8, 16):
        w = cut(whole, rank)
        assert {name: each.shape for name, each in w.items()} == {n: each.shape for n, each in model(rank).items()}
        for precision, width in {"": 4, "bf16": 2}.items():
            _, body = encode(Message("model", "cloud", 1, {}, w, precision))
            values = 2 * rank * ((32 + 32) + (32 + 128))  # blocks, r (d_in + d_out) of query and wide
            assert sum(map(len, body)) == width * values
