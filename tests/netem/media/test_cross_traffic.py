"""Cross traffic: its mean rate, its distribution, and that any time can be reached without those before it."""

from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.media.cross_traffic import arrivals, mean_rates, peak
from netem.media.profile import CrossTraffic
from netem.profile import FULL_FRAME

FRAME = 8 * FULL_FRAME
KINDS = {
    "constant": CrossTraffic("constant", rate=1000 * FRAME),
    "poisson": CrossTraffic("poisson", rate=1000 * FRAME),
    "on-off": CrossTraffic("on-off", rate=1000 * FRAME, on=0.02, off=0.06),
    "trace": CrossTraffic("trace", rows=((0.0, 100 * FRAME), (2.0, 0.0), (3.0, 1000 * FRAME), (3.5, 0.7 * FRAME))),
}
kinds = pytest.mark.parametrize("traffic", KINDS.values(), ids=KINDS)


def until(traffic: CrossTraffic, end: float, seed: int = 1, since: float = 0.0) -> list[float]:
    return list(itertools.takewhile(lambda at: at < end, arrivals(traffic, seed, since)))


def expected(traffic: CrossTraffic, end: float) -> float:
    """The mean number of frames until then."""
    return sum(seconds * rate for seconds, rate in mean_rates(traffic, 0.0, end)) / FRAME


@kinds
@given(since=st.floats(0, 5), seed=st.integers(0, 3))
def test_any_time_can_be_reached(traffic: CrossTraffic, since: float, seed: int) -> None:
    assert until(traffic, 6.0, seed, since) == [at for at in until(traffic, 6.0, seed) if at >= since]


@kinds
def test_times_are_in_order_and_a_function_of_the_seed(traffic: CrossTraffic) -> None:
    times = until(traffic, 10.0)
    assert times == sorted(times) == until(traffic, 10.0)
    assert times != until(traffic, 10.0, seed=2)


@pytest.mark.parametrize(("kind", "error"), [("constant", 0.001), ("poisson", 0.02), ("on-off", 0.1), ("trace", 0.01)])
def test_the_mean_is_as_configured(kind: str, error: float) -> None:
    traffic = KINDS[kind]
    assert len(until(traffic, 20.0)) == pytest.approx(expected(traffic, 20.0), rel=error)


def test_poisson_distances_are_exponential() -> None:
    distances = [b - a for a, b in itertools.pairwise(until(KINDS["poisson"], 100.0))]
    assert statistics.fmean(distances) == pytest.approx(0.001, rel=0.01)
    assert statistics.stdev(distances) == pytest.approx(0.001, rel=0.02)
    longer = sum(distance > 0.002 for distance in distances) / len(distances)
    assert longer == pytest.approx(0.1353, rel=0.05)  # e^-2


def test_on_and_off_last_as_long_as_configured() -> None:
    traffic = KINDS["on-off"]
    times = until(traffic, 200.0)
    gaps = [b - a for a, b in itertools.pairwise(times) if b - a > 0.0015]
    # A gap that can be seen is an off state and up to two frames' distances; short ones are overlooked.
    assert len(gaps) == pytest.approx(200.0 / 0.08, rel=0.06)
    assert statistics.fmean(gaps) == pytest.approx(0.06, rel=0.06)


def test_a_slow_period_that_is_shorter_than_a_frame_has_one_now_and_then() -> None:
    rows = tuple((float(second), (0.3 + second % 2 * 0.1) * FRAME) for second in range(2000))
    assert len(until(CrossTraffic("trace", rows=rows), 2000.0)) == pytest.approx(0.35 * 2000, rel=0.06)


@pytest.mark.parametrize("kind", ["constant", "poisson", "on-off"])
def test_no_rate_is_no_traffic(kind: str) -> None:
    traffic = CrossTraffic(kind, on=0.0, off=1.0)  # type: ignore[arg-type]
    if kind != "on-off":
        assert list(arrivals(traffic, 1)) == []
    assert expected(traffic, 10.0) == expected(traffic, 0.0) == 0.0


def test_the_peak_of_a_trace_is_that_of_its_rows() -> None:
    assert peak(KINDS["trace"]) == 1000 * FRAME
    assert peak(KINDS["constant"]) == 1000 * FRAME
