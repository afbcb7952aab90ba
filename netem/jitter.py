"""The distributions of jitter: the deviation of a packet's delay from the latency, in units of the jitter."""

from __future__ import annotations

from statistics import NormalDist

_normal = NormalDist().inv_cdf


def quantile(distribution: str, u: float) -> float:
    """The quantile of the deviation at ``u``, 0 ≤ u ≤ 1. The normal one needs 0 < u; its tail is cut at 1 - 1e-12.

    ``distribution``: one of `netem.profile.DISTRIBUTIONS`. "pareto" is the distribution of iproute2's table
    (netem/pareto.c): (4/3)((1-u)^(-1/3) - 3/2), at most 4.
    """
    if distribution == "normal":
        return _normal(min(u, 1 - 1e-12))
    if distribution == "uniform":
        return 2 * u - 1
    return 4.0 if u == 1 else min(4 / 3 * ((1 - u) ** (-1 / 3) - 1.5), 4.0)
