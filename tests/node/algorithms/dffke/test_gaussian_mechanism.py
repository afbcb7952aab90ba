from __future__ import annotations

from math import inf, log, sqrt

import numpy as np
import pytest
import torch

from node.algorithms.dffke.gaussian_mechanism import clip_rows, release
from node.algorithms.dffke.parameters import DFFKE
from node.learning.privacy import gaussian_delta, standard_deviation


def test_equation_15_worked_example() -> None:
    """δ = 1.25 e⁻⁸ makes ln(1.25 / δ) = 8 and the root 4: σ = 4 Δ / ε."""
    assert standard_deviation(0.5, 1.25 * np.exp(-8), 3) == pytest.approx(24)


@pytest.mark.parametrize("epsilon", [0.25, 0.5, 1.0])
def test_the_bound_holds_by_the_exact_condition(epsilon: float) -> None:
    """Balle and Wang 2018, Theorem 8, gives the least δ for σ: it is below the one that was asked for."""
    assert gaussian_delta(epsilon, standard_deviation(epsilon, 1e-3, 2.0), 2.0) < 1e-3


def test_long_rows_are_clipped_and_short_ones_are_not() -> None:
    clipped = clip_rows(torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]), 1)
    assert clipped.tolist() == [pytest.approx([0.6, 0.8]), pytest.approx([0.3, 0.4]), [0, 0]]


def never() -> torch.Tensor:
    raise AssertionError("nothing has to be changed")


def test_without_privacy_nothing_is_added() -> None:
    rows = torch.randn(4, 3)
    sent = release(rows, never, DFFKE(), 10, torch.Generator())
    np.testing.assert_array_equal(sent.values, rows)
    assert sent.sigma == 0


def test_clipped_rows_get_the_noise_of_twice_the_norm() -> None:
    params = DFFKE(privacy="clip", clip_norm=0.5, epsilon=0.8)
    rows = torch.full((4000, 5), 7.0)
    sent = release(rows, never, params, 100, torch.Generator().manual_seed(0))
    assert sent.delta == 1 / 100
    assert sent.sigma == pytest.approx(sqrt(2 * log(125)) * 1.0 / 0.8)
    assert sent.values.std() == pytest.approx(sent.sigma, rel=0.02)
    assert sent.values.mean() == pytest.approx(0.5 / sqrt(5), abs=0.1)  # rows of norm 0.5


def test_the_empirical_sensitivity_is_the_largest_change() -> None:
    rows, changed = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([[3.0, 4.0], [1.0, 2.0]])
    params = DFFKE(privacy="empirical", delta=1.25 * float(np.exp(-8)))
    sent = release(rows, lambda: changed, params, 100, torch.Generator().manual_seed(0))
    assert sent.sensitivity == 5
    assert sent.sigma == pytest.approx(20)


def test_a_norm_that_clips_nothing_only_adds_noise() -> None:
    rows = torch.zeros(4000, 5)
    for norm in (0.5, 50.0):
        sent = release(rows, never, DFFKE(privacy="clip", clip_norm=norm), 100, torch.Generator().manual_seed(0))
        assert sent.clipped == 0
        assert sent.values.std() == pytest.approx(sqrt(2 * log(125)) * 2 * norm, rel=0.02)


def test_what_the_noise_guarantees() -> None:
    """Nothing for a client with one sample, for which δ is 1, unless δ is given; nothing if it is empirical."""
    rows = torch.ones(1, 3)
    random = torch.Generator().manual_seed(0)
    alone = release(rows, never, DFFKE(privacy="clip"), 1, random)
    assert (alone.delta, alone.bounded) == (1.0, False)
    assert alone.sigma == pytest.approx(sqrt(2 * log(1.25)) * 2)
    assert release(rows, never, DFFKE(privacy="clip", delta=0.01), 1, random).bounded
    assert release(rows, never, DFFKE(privacy="clip"), 2, random).bounded
    still = release(rows, lambda: rows, DFFKE(privacy="empirical"), 2, random)
    assert (still.sigma, still.bounded) == (0.0, False)
    np.testing.assert_array_equal(still.values, rows)


def test_the_edges_of_epsilon_and_delta() -> None:
    least = release(torch.ones(1, 3), never, DFFKE(privacy="clip"), 10, torch.Generator()).sigma
    tiny = release(torch.ones(1, 3), never, DFFKE(privacy="clip", epsilon=1e-6), 10, torch.Generator()).sigma
    assert tiny == pytest.approx(1e6 * least)
    for values in ({"epsilon": 0.0}, {"epsilon": 1.5}, {"epsilon": inf}, {"delta": 0.0}, {"delta": 1.0}):
        with pytest.raises(ValueError, match=rf"{next(iter(values))}: .* is not.*above 0"):
            DFFKE(privacy="clip", **values)  # type: ignore[arg-type]


def test_the_generator_decides() -> None:
    params, rows = DFFKE(privacy="clip"), torch.ones(2, 2)
    first, again, other = (release(rows, never, params, 9, torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.values, again.values)
    assert not np.allclose(first.values, other.values)
