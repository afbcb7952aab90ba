"""The seconds of a step, by the rates of `node.catalogue.sizes`."""

from __future__ import annotations

import pytest

from node.learning.step_seconds import StepCost

COST = StepCost(operations=10**6, values=10**4, layers=10, batch_size=32)
# A sample takes 10^6 · 30 ps + 10^4 · 3.3 ns = 63 µs to train,
# and 10^6 · 21.5 ps + 10^4 · 0.38 ns = 25.3 µs to evaluate.


@pytest.mark.parametrize(
    ("samples", "mode", "seconds"),
    [
        (100, "train", 0.7e-3 + 4 * 10 * 35e-6 + 100 * 63e-6),  # 4 batches of at most 32
        (300, "evaluate", 0.7e-3 + 2 * 10 * 17.5e-6 + 300 * 25.3e-6),  # 2 batches of at most 250
        (1_000_000, "other", 5e-3),
        (1, "train", 0.7e-3 + 10 * 35e-6 + 63e-6),
        (0, "train", 0.0),
        (0, "evaluate", 0.0),
    ],
)
def test_a_step_takes_time_for_itself_its_layers_and_its_samples(samples: int, mode: str, seconds: float) -> None:
    assert COST(samples, mode) == pytest.approx(seconds, rel=1e-9)


def test_a_classifier_alone_has_its_own_cost_if_it_is_known() -> None:
    classifier = StepCost(operations=10**3, values=10, layers=1, batch_size=32)
    whole = StepCost(10**6, 10**4, 10, 32, classifier)
    assert whole(100, "classifier") == classifier(100, "train")
    assert whole(100, "train") == COST(100, "train")
    assert COST(100, "classifier") == COST(100, "train")
