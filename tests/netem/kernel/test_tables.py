from __future__ import annotations

import statistics

import pytest

from netem.kernel.tables import distribution_tables


def test_distribution_tables() -> None:
    tables = {name: [int(n) for n in text.split()] for name, text in distribution_tables().items()}
    assert sorted(tables) == ["normal.dist", "pareto.dist", "paretonormal.dist", "uniform.dist"]
    assert all(len(values) == 4096 and max(map(abs, values)) <= 32767 for values in tables.values())
    # In jitters: deviations 1, 1/sqrt(3), and 0.821 for the pareto cut at 4 (derived in test_impair).
    deviations = {name: statistics.pstdev(values) / 8192 for name, values in tables.items()}
    assert deviations == {
        "normal.dist": pytest.approx(1.0, abs=0.002),
        "uniform.dist": pytest.approx(0.57735, abs=0.001),
        "pareto.dist": pytest.approx(0.8210, abs=0.002),
        "paretonormal.dist": pytest.approx(0.834, abs=0.002),  # as of iproute2's table
    }
    assert (min(tables["uniform.dist"]), max(tables["uniform.dist"])) == (-8190, 8190)
