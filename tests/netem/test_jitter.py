from __future__ import annotations

import pytest

from netem.jitter import quantile


@pytest.mark.parametrize(
    ("distribution", "of_them"),
    [
        ("normal", {0.5: 0.0, 0.841345: 1.0, 0.158655: -1.0, 1.0: 7.03}),
        ("uniform", {0.25: -0.5, 0.5: 0.0, 1.0: 1.0}),
        # Half of them lie below (4/3)(2^(1/3) - 3/2); the largest is cut at 4, from (9/2)^-3 of them on.
        # Of iproute2's table, netem/paretonormal.dist of Debian 12's iproute2, in 1/8192.
        ("paretonormal", {0.1: -0.785, 0.5: -0.240, 0.9: 0.974, 0.99: 3.582}),
        ("pareto", {0.5: -0.320105, 0.989: 3.995, 0.99: 4.0, 1.0: 4.0}),
    ],
)
def test_quantiles(distribution: str, of_them: dict[float, float]) -> None:
    assert {u: quantile(distribution, u) for u in of_them} == pytest.approx(of_them, abs=0.005)
