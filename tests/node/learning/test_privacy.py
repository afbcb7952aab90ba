from __future__ import annotations

import math

import numpy as np
import pytest

from node.learning.hidden_information import BINS, compare_features, correlation, divergence, entropy
from node.learning.privacy import draw_noise, gaussian_delta, gaussian_epsilon, guarantee, noise_scale


def test_equation_5() -> None:
    """ε = 2, δ = e⁻², Δ = 3: σ² = 2 * 9 * 2 / 4 = 9; λ = 3 / 2."""
    assert noise_scale("gaussian", 2.0, math.exp(-2), 3.0) == pytest.approx(3.0)
    assert noise_scale("laplace", 2.0, 0.5, 3.0) == 1.5
    assert noise_scale("none", 2.0, 0.5, 3.0) == 0.0
    # The paper's own: Δ = 1, ε = 2, δ = 1e-5.
    assert noise_scale("gaussian", 2.0, 1e-5, 1.0) == pytest.approx(2.399, abs=1e-3)


@pytest.mark.parametrize(("noise", "deviation"), [("gaussian", 2.0), ("laplace", 2.0 * math.sqrt(2))])
def test_noise_has_the_spread_of_its_scale(noise: str, deviation: float) -> None:
    """Laplace noise of scale λ has the standard deviation √2 λ."""
    drawn = draw_noise(noise, 2.0, (200, 500), np.random.default_rng(0))
    assert drawn.dtype == np.float32
    assert drawn.mean() == pytest.approx(0, abs=0.05)
    assert drawn.std() == pytest.approx(deviation, rel=0.02)


def test_gaussian_delta_is_the_difference_of_two_normals() -> None:
    """δ = P(N(0, 1) > εσ/Δ − Δ/2σ) − e^ε P(N(0, 1) > εσ/Δ + Δ/2σ): at σ = Δ = 1, ε = 1 it is
    P(N > 0.5) − e P(N > 1.5) = 0.308538 − 2.718282 * 0.066807 = 0.126936; at ε = 0, the total variation distance
    of N(0, 1) and N(1, 1), 2 Φ(0.5) − 1 = 0.382925."""
    assert gaussian_delta(1.0, 1.0, 1.0) == pytest.approx(0.126936, abs=1e-6)
    assert gaussian_delta(0.0, 1.0, 1.0) == pytest.approx(0.382925, abs=1e-6)
    assert gaussian_delta(1.0, 5.0, 5.0) == gaussian_delta(1.0, 1.0, 1.0)
    assert 0 <= gaussian_delta(1000.0, 1.0, 1.0) < 1e-300


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.4, 20.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_gaussian_epsilon_is_its_inverse(sigma: float, delta: float) -> None:
    epsilon = gaussian_epsilon(delta, sigma, 1.0)
    assert gaussian_delta(epsilon, sigma, 1.0) == pytest.approx(delta, rel=1e-3)
    assert gaussian_epsilon(0.5, sigma, 0.1) == 0.0  # so little differs that δ allows it all


def test_without_clipping_or_noise_nothing_is_guaranteed() -> None:
    assert guarantee("gaussian", 1.5, 1e-5, None, rounds=10) is None
    assert guarantee("none", 1.5, 1e-5, 0.5, rounds=10) is None


def test_what_clipped_gaussian_noise_guarantees() -> None:
    """Equation 5 gives more noise than ε = 1.5 takes, so that less is lost; the clip norm cancels out."""
    given = guarantee("gaussian", 1.5, 1e-5, 0.5, rounds=1)
    assert given is not None
    assert given == guarantee("gaussian", 1.5, 1e-5, 8.0, rounds=1)
    assert 1.0 < given.epsilon < 1.5
    assert given.epsilon == given.total_epsilon
    # Four rounds at σ leave what one round at σ / 2 does.
    four = guarantee("gaussian", 1.5, 1e-5, 0.5, rounds=4)
    assert four is not None
    assert four.total_epsilon == pytest.approx(gaussian_epsilon(1e-5, noise_scale("gaussian", 1.5, 1e-5, 1.0) / 2, 1.0))


def test_equation_5_is_too_little_noise_for_a_large_epsilon() -> None:
    """At ε = 30, δ = 1e-5 it gives σ = 0.16 Δ; the noise loses more than it says, and that is what is reported."""
    given = guarantee("gaussian", 30.0, 1e-5, 0.5, rounds=1)
    assert given is not None
    assert given.epsilon > 30.0


def test_what_clipped_laplace_noise_guarantees() -> None:
    given = guarantee("laplace", 1.5, 1e-5, 0.25, rounds=10)
    assert given is not None
    assert (given.epsilon, given.total_epsilon, given.delta) == (1.5, 15.0, 0.0)


def test_equations_40_and_42() -> None:
    """p = (1/2, 1/4, 1/4), q = (1/4, 1/2, 1/4): H = 1.5 ln 2, KL = 1/2 ln 2 − 1/4 ln 2."""
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.5, 0.25])
    assert entropy(p) == pytest.approx(1.5 * math.log(2), abs=1e-6)
    assert divergence(p, q) == pytest.approx(0.25 * math.log(2), abs=1e-6)
    assert divergence(p, p) == 0.0
    assert math.isfinite(divergence(np.array([1.0, 0.0]), np.array([0.0, 1.0])))


def test_equation_43() -> None:
    """x = (0, 1, 2), y = (0, 2, 1): covariance 1/3, variances 2/3."""
    assert correlation(np.array([0.0, 1, 2]), np.array([0.0, 2, 1])) == pytest.approx(0.5)
    assert correlation(np.array([1.0, 1, 1]), np.array([0.0, 2, 1])) == 0.0


def test_features_that_are_not_noised_are_known() -> None:
    """As many values in each of the bins: mutual information is the entropy, ln 32."""
    clean = np.arange(BINS * 100, dtype=np.float32).reshape(BINS, 100)
    same = compare_features(clean, clean)
    assert same.mutual_information == pytest.approx(math.log(BINS), abs=1e-3)
    assert (same.entropy_difference, same.kl_divergence) == (0.0, 0.0)
    assert same.feature_correlation == pytest.approx(1.0)


def test_more_noise_hides_more() -> None:
    random = np.random.default_rng(1)
    clean = random.standard_normal((400, 500), dtype=np.float32)
    noises = (draw_noise("gaussian", scale, clean.shape, random) for scale in (0.2, 5.0))
    little, much = (compare_features(clean, clean + noise) for noise in noises)
    assert much.mutual_information < little.mutual_information
    assert much.feature_correlation < little.feature_correlation
    assert much.kl_divergence > little.kl_divergence
    # Correlation of x and x + noise: 1 / √(1 + σ²).
    assert much.feature_correlation == pytest.approx(1 / math.sqrt(26), abs=0.01)
    # Mutual information of Gaussian x and x + noise: ½ ln(1 + 1 / σ²); bins and their bias, 961 / 400,000, blur it.
    assert much.mutual_information == pytest.approx(math.log(1 + 1 / 25) / 2, abs=0.005)


def test_features_that_are_not_numbers_have_no_figures() -> None:
    for odd in (np.nan, np.inf):
        values = np.array([[0.0, odd]], dtype=np.float32)
        assert math.isnan(compare_features(values, values).mutual_information)


def test_features_that_are_all_alike() -> None:
    dead = np.zeros((3, 4), dtype=np.float32)
    assert compare_features(dead, dead).feature_correlation == 0.0
