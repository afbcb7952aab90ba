"""When clients are there."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.population.availability import DAY, HOUR, Always, DayAndNight, FromTrace, effect, hashed, normal
from orchestrator.population.table import AvailabilityTable

TABLE = AvailabilityTable.read("device,from,until\na,0,100\na,200,300\nb,50,250\n", "t.csv", 400.0)


def model(clients: int = 2000, **changes: object) -> DayAndNight:
    settings: dict[str, object] = {
        "start": 0.0,
        "time_zones": {0.0: 1.0},
        "wifi": 1.0,
        "nights": 1.0,
        "bedtime": 23 * HOUR,
        "sleep": 7 * HOUR,
        "spread": 0.0,
        "day_charges": 0.0,
        "day_charge": 1800.0,
    }
    return DayAndNight(clients=clients, seed=1, **{**settings, **changes})  # type: ignore[arg-type]


def test_always_is_always() -> None:
    assert Always(3).there(5.0).tolist() == [True, True, True]
    assert Always(3).until(0, 5.0) == math.inf


def test_a_trace_is_followed_and_restarts() -> None:
    trace = FromTrace(1000, 1, TABLE)
    a, b = trace.device == 0, trace.device == 1
    assert a.any()
    assert b.any()
    for t, of_a, of_b in ((0, 1, 0), (60, 1, 1), (100, 0, 1), (220, 1, 1), (260, 1, 0), (350, 0, 0), (400, 1, 0)):
        there = trace.there(float(t))
        assert (there[a] == bool(of_a)).all()
        assert (there[b] == bool(of_b)).all()


def test_a_stay_of_a_trace_ends_when_it_says() -> None:
    trace = FromTrace(1000, 1, TABLE)
    a, b = int(np.flatnonzero(trace.device == 0)[0]), int(np.flatnonzero(trace.device == 1)[0])
    assert trace.until(a, 10.0) == 100.0
    assert trace.until(a, 410.0) == 500.0
    assert trace.until(b, 60.0) == 250.0


def test_stays_of_a_trace_that_touch_are_one() -> None:
    table = AvailabilityTable.read("device,from,until\na,0,100\na,300,400\nb,0,400\n", "t.csv")
    trace = FromTrace(100, 1, table)
    a, b = int(np.flatnonzero(trace.device == 0)[0]), int(np.flatnonzero(trace.device == 1)[0])
    assert trace.until(a, 350.0) == 500.0  # it begins anew at 400
    assert trace.until(b, 350.0) == math.inf


def test_a_stay_ends_after_its_start_in_every_period() -> None:
    """7 · 14.3 + 7.08 is 107.18, whose seconds since the period began are 7.08 or less, as they are rounded."""
    trace = FromTrace(1, 1, AvailabilityTable.read("device,from,until,period\na,3,6,14.3\na,7.08,9,14.3\n", "t.csv"))
    assert trace.there(107.18).all()
    assert trace.until(0, 107.18) == pytest.approx(7 * 14.3 + 9)


def test_each_device_of_a_trace_has_its_own_period() -> None:
    text = "device,from,until,period\na,40,50,100\na,80,100,100\nb,0,20,100\nc,,,100\nd,600,700,1000\n"
    table = AvailabilityTable.read(text, "t.csv")
    trace = FromTrace(400, 1, table)
    a, b, c, d = (int(np.flatnonzero(trace.device == device)[0]) for device in range(4))
    assert [trace.there(t)[d] for t in (100.0, 650.0, 1650.0, 1700.0)] == [False, True, True, False]
    assert [trace.there(t)[b] for t in (100.0, 119.0, 120.0)] == [True, True, False]
    assert not any(trace.there(t)[c] for t in range(0, 2000, 7))
    assert trace.until(a, 190.0) == 200.0
    assert trace.until(d, 5650.0) == 5700.0


@pytest.mark.parametrize(
    ("rows", "first", "change"),
    [
        (["a,0,50,100", "b,0,70,100"], 0.0, 50.0),
        (["a,0,100,100", "b,0,9,9"], 0.0, None),
        (["a,0,100,100", "b,5,9,9"], 0.0, 0.0),
        (["a,36000,72000,86400", "b,40000,50000,86400"], 36000.0, 0.0),
        (["a,0,100,100", "b,,,9"], 0.0, 0.0),
    ],
)
def test_when_a_trace_takes_effect(rows: list[str], first: float, change: float | None) -> None:
    table = AvailabilityTable.read("\n".join(["device,from,until,period", *rows]), "t.csv")
    assert effect(table, np.array([0, 1])) == {"first": first, "change": change}


def test_a_trace_with_drawn_devices_that_never_come_has_no_first_stay() -> None:
    table = AvailabilityTable.read("device,from,until,period\na,0,50,100\nb,,,9\n", "t.csv")
    assert effect(table, np.array([1, 1])) == {"first": None, "change": 0.0}


def test_everybody_sleeps_at_the_same_time_without_spread() -> None:
    night = model()
    for hour, share in ((22.9, 0.0), (23.1, 1.0), (29.9, 1.0), (30.1, 0.0), (47.1, 1.0)):
        assert night.there(hour * HOUR).mean() == share
    assert night.until(5, 23.5 * HOUR) == pytest.approx(30 * HOUR)


def test_time_zones_shift_the_night() -> None:
    zones = model(time_zones={0.0: 0.5, 12 * HOUR: 0.5})
    midnight, noon = zones.there(DAY), zones.there(1.5 * DAY)
    assert (midnight ^ noon).all()  # each client at one of the two
    assert midnight.mean() == pytest.approx(0.5, abs=0.06)  # 2,000 draws: a standard deviation of 0.011


def test_shares_of_nights_and_of_clients_with_wifi() -> None:
    assert model(nights=0.7).there(DAY).mean() == pytest.approx(0.7, abs=0.06)
    some = model(wifi=0.6)
    assert some.there(DAY).mean() == pytest.approx(0.6, abs=0.06)
    assert (some.there(DAY) == some.there(2 * DAY)).all()  # the same clients every night


def test_charges_by_day_come_at_any_time() -> None:
    day = model(nights=0.0, day_charges=1.0, day_charge=HOUR)
    shares = [day.there(DAY + hour * HOUR).mean() for hour in range(24)]
    assert 0.02 < np.mean(shares) < 0.06  # an hour of 24, less what noon cuts off


def test_until_is_when_a_client_is_not_there_any_more() -> None:
    real = model(spread=HOUR, nights=0.8, day_charges=0.5)
    t = 26 * HOUR
    for client in np.flatnonzero(real.there(t))[:200].tolist():
        end = real.until(client, t)
        assert end > t
        assert real.there(end - 0.01)[client]
        assert not real.there(end + 0.01)[client]


def test_hashes_are_even_and_the_normal_numbers_normal() -> None:
    one, other = (hashed(seed, np.arange(20_000)) for seed in (1, 2))
    assert one.mean() == pytest.approx(0.5, abs=0.01)  # a standard deviation of 0.29 / √20000 = 0.002
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.03
    z = normal(one, other)
    assert z.mean() == pytest.approx(0.0, abs=0.03)
    assert z.std() == pytest.approx(1.0, abs=0.03)
