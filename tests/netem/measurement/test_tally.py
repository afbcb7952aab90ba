from __future__ import annotations

import pytest

from netem.measurement.tally import Flood, arrival_rate, stream_rate, train_counts


def test_a_train_that_arrives_whole() -> None:
    assert train_counts(range(5), 5) == {"sent": 5, "received": 5, "bursts": 0, "duplicated": 0, "reordered": 0}


def test_losses_come_in_bursts() -> None:
    # 0 | 3 4 | 9 are missing of 0..9
    counts = train_counts([1, 2, 5, 6, 7, 8], 10)
    assert (counts["received"], counts["bursts"]) == (6, 3)


def test_nothing_arrived_is_one_burst() -> None:
    assert train_counts([], 4) == {"sent": 4, "received": 0, "bursts": 1, "duplicated": 0, "reordered": 0}


def test_duplicates_do_not_count_as_reordered() -> None:
    counts = train_counts([0, 1, 1, 0, 2], 3)
    assert (counts["received"], counts["duplicated"], counts["reordered"]) == (3, 2, 0)


def test_reordered_packets_come_behind_a_higher_number() -> None:
    # RFC 4737: of 0 3 1 2 4 the packets 1 and 2 are reordered, not the 3 that overtook them.
    assert train_counts([0, 3, 1, 2, 4], 5)["reordered"] == 2


def test_rate_of_regular_arrivals() -> None:
    # 12,112 bits every 121.12 µs are 100 Mbit/s.
    assert arrival_rate([number * 121.12e-6 for number in range(100)], 12112) == pytest.approx(100e6)


def test_a_pause_of_the_receiver_does_not_change_the_rate() -> None:
    times = [max(number * 0.001, 0.010 if number < 10 else 0.0) for number in range(100)]  # the first ten came together
    assert arrival_rate(times, 1000) == pytest.approx(1e6)


def test_too_few_arrivals_have_no_rate() -> None:
    assert arrival_rate([0.0, 0.1, 0.2], 1000) is None
    assert arrival_rate([0.0] * 10, 1000) is None


def test_stream_rate_counts_headers_and_leaves_the_ramp_out() -> None:
    # Half speed for the first second, then 1,448,000 bytes a second: with headers 1,514,000 bytes, 12.112 Mbit/s.
    ramp = [(tenth / 10, tenth * 72_400) for tenth in range(10)]
    steady = [(1 + tenth / 10, 724_000 + tenth * 144_800) for tenth in range(21)]
    assert stream_rate(ramp + steady, 1448) == pytest.approx(12.112e6)


def test_stream_rate_is_that_of_the_last_two_thirds_to_the_very_last_arrival() -> None:
    # 4,000 bytes from 1 s to 3 s are 16 kbit/s; segments of 66 bytes have as many bytes of headers.
    assert stream_rate([(0.0, 0), (1.0, 1000), (2.0, 2000), (3.0, 5000)], 66) == pytest.approx(32_000)


def test_a_stream_of_one_arrival_has_no_rate() -> None:
    assert stream_rate([], 1448) is None
    assert stream_rate([(0.0, 100)], 1448) is None
    assert stream_rate([(0.0, 100), (1.0, 200)], 1448) is None
    assert stream_rate([(1.0, 100), (1.0, 200)], 1448) is None


def test_flood_reports_rate_and_queueing_delay() -> None:
    flood = Flood()
    for number in range(50):  # sent every 0.5 ms, arriving every 1 ms: each waits 0.5 ms longer than the one before
        flood.add(number * 0.0005, 0.02 + number * 0.001, 958)
    assert flood.result() == {
        **{"rate": pytest.approx(8e6), "queue_delay": pytest.approx(49 * 0.0005)},
        **{"bytes": 50_000, "first": pytest.approx(0.02), "last": pytest.approx(0.069)},
        "loaded": pytest.approx(8e6),
    }


def test_a_flood_reports_the_rate_while_it_was_sent() -> None:
    flood = Flood()
    for number in range(100):  # sent within 0.1 s; afterwards the queue leaves twice as fast
        flood.add(number * 0.001, number * 0.002 if number < 50 else 0.1 + (number - 50) * 0.001, 958)
    found = flood.result()
    assert found["loaded"] == pytest.approx(4e6)
    assert found["rate"] is not None
    assert found["rate"] > 4.5e6


def test_a_flood_reports_how_much_longer_than_the_fastest_its_last_datagram_took() -> None:
    """Whatever the clocks of both ends differ by: here the far one is an hour ahead."""
    flood = Flood()
    for took in (0.03, 0.02, 0.07):
        flood.add(3600.0, took, 958)
    assert flood.count == 3
    assert flood.waited == pytest.approx(0.05)


def test_an_empty_flood_shows_nothing() -> None:
    assert Flood().result() == {"rate": None, "queue_delay": None, "bytes": 0}
