"""The distributions of jitter: the deviation of a packet's delay from the latency, in units of the jitter."""

from __future__ import annotations

from statistics import NormalDist

_normal = NormalDist().inv_cdf


def quantile(distribution: str, u: float) -> float:
    """The quantile of the deviation at ``u``, 0 ≤ u ≤ 1. The tails of the normal one are cut at 1e-12.

    ``distribution``: one of `netem.profile.DISTRIBUTIONS`. "pareto" is the distribution of iproute2's table
    (netem/pareto.c): (4/3)((1-u)^(-1/3) - 3/2), at most 4. The quantiles of "paretonormal" are those of its table, a
    quarter of the normal ones and three quarters of pareto's.
    """
    if distribution == "normal":
        inside = min(max(u, 1e-12), 1 - 1e-12)
        return _normal(inside)
    if distribution == "uniform":
        return 2 * u - 1
    if distribution == "paretonormal":
        normal = quantile("normal", u)
        pareto = quantile("pareto", u)
        return 0.25 * normal + 0.75 * pareto
    if u == 1:
        return 4.0
    deviation: float = 4 / 3 * ((1 - u) ** (-1 / 3) - 1.5)
    return min(deviation, 4.0)
