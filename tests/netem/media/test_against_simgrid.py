"""The allocation of channels against SimGrid's, a flow-level simulator. Debian: python3-simgrid."""

from __future__ import annotations

import importlib.machinery

import pytest

from benchmarks.simgrid_media import DEBIAN, FLUID, by_simgrid, cases, fluid


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.machinery.PathFinder.find_spec("simgrid", [DEBIAN]) is None, reason="python3-simgrid is not installed"
)
def test_transfers_end_when_simgrid_says() -> None:
    chosen = cases(30)
    for case, theirs in zip(chosen, by_simgrid(chosen, FLUID, 1.0), strict=True):
        assert fluid(case) == pytest.approx(theirs, rel=1e-6)
