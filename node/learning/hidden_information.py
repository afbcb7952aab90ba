"""How much noise on features hides: FedFeat+'s equations 39 to 43. Plain numbers and numpy, no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 32  # bins of histograms; N values bias MI by about (BINS - 1)² / 2N
VALUES = 1 << 20  # metrics are computed from the first VALUES values at most


@dataclass(frozen=True)
class Hidden:
    """The information that noised features still hold about the clean ones: mutual information, entropy difference and
    Kullback-Leibler divergence in nats, and correlation (MI, ED, KL, FC of FedFeat+'s Tables IV and V)."""

    mutual_information: float
    entropy_difference: float
    kl_divergence: float
    feature_correlation: float


NOTHING_KNOWN = Hidden(math.nan, math.nan, math.nan, math.nan)


def compare_features(
    clean: NDArray[np.floating],
    noised: NDArray[np.floating],
) -> Hidden:
    """Equations 39 to 43, for the values of all features together, in `BINS` equal bins over their common range. All
    NaN if a feature is not finite, as after diverged training."""
    x = clean.ravel()[:VALUES]
    y = noised.ravel()[:VALUES]
    lowest = min(x.min(), y.min())
    highest = max(x.max(), y.max())
    low = float(lowest)
    high = float(highest)
    if not math.isfinite(high - low):
        return NOTHING_KNOWN
    if low == high:
        high = low + 1
    bins = np.linspace(low, high, BINS + 1)
    counts, _, _ = np.histogram2d(x, y, (bins, bins))
    joint = counts / x.size
    p = joint.sum(axis=1)
    q = joint.sum(axis=0)
    entropies = entropy(p) + entropy(q)
    shared = entropies - entropy(joint.ravel())
    difference = abs(entropy(p) - entropy(q))
    return Hidden(
        mutual_information=shared,
        entropy_difference=difference,
        kl_divergence=divergence(p, q),
        feature_correlation=correlation(x, y),
    )


def entropy(p: NDArray[np.float64]) -> float:
    """−Σ p_i ln(p_i + 1e-9), equation 40."""
    terms = p * np.log(p + 1e-9)
    return float(-terms.sum())


def divergence(
    p: NDArray[np.float64],
    q: NDArray[np.float64],
) -> float:
    """Σ p_i ln((p_i + 1e-9) / (q_i + 1e-9)), equation 42."""
    ratio = (p + 1e-9) / (q + 1e-9)
    terms = p * np.log(ratio)
    return float(terms.sum())


def correlation(
    x: NDArray[np.floating],
    y: NDArray[np.floating],
) -> float:
    """E[(x − μ_x)(y − μ_y)] / (σ_x σ_y), equation 43; 0 if one of them does not vary."""
    x = x.astype(np.float64)
    y = y.astype(np.float64)
    spread = float(x.std() * y.std())
    if spread > 0:
        x_centred = x - x.mean()
        y_centred = y - y.mean()
        products = x_centred * y_centred
        return float(products.mean()) / spread
    return 0.0
