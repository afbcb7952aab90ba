from __future__ import annotations

import numpy as np

from orchestrator.population.shards import ClientShards

LABELS = np.repeat(np.arange(10), 100)


def test_a_client_draws_its_samples_alone() -> None:
    shards, again = ClientShards(1, LABELS), ClientShards(1, LABELS)
    first = shards.of(70_000, 30)
    assert len(np.unique(first)) == 30
    assert first.tolist() == sorted(first.tolist())
    again.of(3, 50)  # what others draw makes no difference
    assert again.of(70_000, 30).tolist() == first.tolist()
    assert shards.of(70_001, 30).tolist() != first.tolist()
    assert ClientShards(2, LABELS).of(70_000, 30).tolist() != first.tolist()


def test_all_samples_are_drawn_from() -> None:
    shards = ClientShards(1, LABELS)
    counts = np.bincount(np.concatenate([shards.of(client, 100) for client in range(200)]), minlength=1000)
    # 20,000 draws of 1,000 samples: 20 each, with a standard deviation of √(200 · 0.1 · 0.9) = 4.2
    assert counts.min() > 0
    assert abs(counts.std() - 4.2) < 0.6


def test_a_small_alpha_makes_clients_unlike() -> None:
    def most(alpha: float) -> float:
        shards = ClientShards(1, LABELS, alpha)
        held = [np.bincount(LABELS[shards.of(client, 50)], minlength=10) for client in range(100)]
        return float(np.mean([counts.max() / counts.sum() for counts in held]))

    assert most(0.1) > 0.6
    assert most(100.0) < 0.25


def test_a_class_that_is_used_up_gives_place_to_others() -> None:
    found = ClientShards(1, LABELS, 0.01).of(5, 450)  # more than one class has
    assert len(np.unique(found)) == 450
