from __future__ import annotations

import pytest

from netem.userspace.lateness import Lateness


def test_nothing_sent_is_not_late() -> None:
    assert Lateness().quantile(0.99) == 0.0


def test_quantile_is_the_upper_edge_of_its_step() -> None:
    lateness = Lateness()
    for hundredth in range(100):  # 0.005, 0.105, ... 9.905 ms
        lateness.add(hundredth * 1e-4 + 5e-6)
    assert lateness.quantile(0.5) == pytest.approx(49e-4 + 1e-5)
    assert lateness.quantile(0.99) == pytest.approx(98e-4 + 1e-5)
    assert lateness.maximum == pytest.approx(99e-4 + 5e-6)


def test_quantile_never_exceeds_the_maximum_even_far_beyond_the_steps() -> None:
    lateness = Lateness()
    lateness.add(3.0)
    assert lateness.quantile(0.99) == lateness.maximum == 3.0


def test_how_many_were_later_than_this() -> None:
    lateness = Lateness()
    lateness.add(0.02, 5)
    lateness.add(0.0501, 3)
    lateness.add(2.0)
    assert (lateness.above(0.05), lateness.above(0.01), lateness.above(0.1)) == (4, 9, 1)
