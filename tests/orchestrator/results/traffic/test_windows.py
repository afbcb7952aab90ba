"""How exactly the rate of a window is known."""

from __future__ import annotations

import pytest

from orchestrator.results.traffic.windows import Window


def test_a_window_has_a_rate_and_its_bounds() -> None:
    window = Window(bits=25e6, seconds=5.0, extra_bits=1e6, unsure_seconds=0.5)
    assert window.rate == 5e6
    assert window.least_rate == pytest.approx(24e6 / 5.5)
    # At this limit, the bits that were sent at least are exactly what the limit allows in 5.5 s.
    assert window.largest_rate(24e6 / 5.5) == pytest.approx(5e6)
    assert window.largest_rate(5e6) == pytest.approx((5e6 * 5.5 + 1e6) / 5)
