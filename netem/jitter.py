"""The distributions of jitter, in jitters: what a packet's delay deviates from the latency by."""

from __future__ import annotations

from statistics import NormalDist

_normal = NormalDist().inv_cdf


def quantile(distribution: str, u: float) -> float:
    """What a share ``u`` of the deviations lie below, 0 ≤ u ≤ 1; 0 < u if normal, whose tail is cut at 1 - 1e-12.

    ``distribution``: one of `netem.profile.DISTRIBUTIONS`. The pareto one is that of iproute2's table
    (netem/pareto.c): (4/3)((1-u)^(-1/3) - 3/2), at most 4.
    """
    if distribution == "normal":
        return _normal(min(u, 1 - 1e-12))
    if distribution == "uniform":
        return 2 * u - 1
    return 4.0 if u == 1 else min(4 / 3 * ((1 - u) ** (-1 / 3) - 1.5), 4.0)
