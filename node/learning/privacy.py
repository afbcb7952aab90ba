"""Noise on features and its privacy guarantee: FedFeat+'s equations 3 to 5.

ε, δ privacy budget and failure probability, Δ sensitivity, σ standard deviation of Gaussian noise, λ scale of Laplace
noise. Plain numbers and numpy, no torch: plans and reports of a run compute its guarantee, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def noise_scale(
    noise: str,
    epsilon: float,
    delta: float,
    sensitivity: float,
) -> float:
    """σ = Δ √(2 ln(1/δ)) / ε of "gaussian" noise, λ = Δ / ε of "laplace", 0 of "none": equation 5."""
    match noise:
        case "gaussian":
            factor = math.sqrt(2 * math.log(1 / delta))
            return sensitivity * factor / epsilon
        case "laplace":
            return sensitivity / epsilon
        case _:
            return 0.0


def standard_deviation(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """σ = √(2 ln(1.25 / δ)) Δ / ε of the Gaussian mechanism, for ε ≤ 1 (C. Dwork, A. Roth 2014, Theorem A.1), as in
    DFFKE and FEELPGen⁺."""
    factor = math.sqrt(2 * math.log(1.25 / delta))
    return factor * sensitivity / epsilon


def draw_noise(
    noise: str,
    scale: float,
    shape: tuple[int, ...],
    random: np.random.Generator,
) -> NDArray[np.float32]:
    """Independent "gaussian" or "laplace" noise for each value, equation 3."""
    if noise == "laplace":
        values = random.laplace(0.0, scale, shape)
        return values.astype(np.float32)
    standard = random.standard_normal(shape, dtype=np.float32)
    return standard * np.float32(scale)


def gaussian_delta(epsilon: float, sigma: float, sensitivity: float) -> float:
    """The least δ for which Gaussian noise is (ε, δ)-differentially private (B. Balle, Y.-X. Wang, ICML 2018,
    arXiv 1805.06530, Theorem 8): Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ)."""
    ratio = sensitivity / sigma
    lost = _normal(-ratio / 2 - epsilon / ratio)
    gained = _normal(ratio / 2 - epsilon / ratio)
    if lost <= 0:
        return gained
    return gained - math.exp(epsilon + math.log(lost))


def gaussian_epsilon(delta: float, sigma: float, sensitivity: float) -> float:
    """The least ε for which Gaussian noise is (ε, δ)-differentially private, by bisection; 0 if δ alone allows it."""
    if gaussian_delta(0.0, sigma, sensitivity) <= delta:
        return 0.0
    low = 0.0
    high = 1.0
    while gaussian_delta(high, sigma, sensitivity) > delta:
        low = high
        high = 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        if gaussian_delta(middle, sigma, sensitivity) > delta:
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True)
class Guarantee:
    """The privacy guarantee of noise on clipped vectors: ε and δ of a vector that is sent once, and ``total_epsilon``
    of a vector that is sent in each of ``rounds`` rounds, at the same δ."""

    epsilon: float
    total_epsilon: float
    delta: float
    rounds: int


def guarantee(
    noise: str,
    epsilon: float,
    delta: float,
    clip_norm: float | None,
    rounds: int,
) -> Guarantee | None:
    """The guarantee for vectors clipped to ``clip_norm``, with noise for Δ = 2 ``clip_norm``, the largest difference of
    two vectors. None without clipping or noise. The norm is the L2 norm for Gaussian noise, the L1 norm for Laplace's.

    ε is computed from the scale of the noise and may differ from the parameter: equation 5 is not the least noise for
    (ε, δ), and for large ε it is not enough. Over rounds, Gaussian noise composes as noise of sensitivity Δ √rounds
    (J. Dong, A. Roth, W. J. Su, arXiv 1905.02383, Corollary 2), Laplace noise by addition.
    """
    if clip_norm is None or noise == "none":
        return None
    sensitivity = 2 * clip_norm
    scale = noise_scale(noise, epsilon, delta, sensitivity)
    if noise == "laplace":
        once = sensitivity / scale
        in_total = rounds * sensitivity / scale
        return Guarantee(once, in_total, 0.0, rounds)
    once = gaussian_epsilon(delta, scale, sensitivity)
    in_total = gaussian_epsilon(delta, scale, sensitivity * math.sqrt(rounds))
    return Guarantee(once, in_total, delta, rounds)


def _normal(z: float) -> float:
    """Φ, the standard normal distribution function."""
    return math.erfc(-z / math.sqrt(2)) / 2
