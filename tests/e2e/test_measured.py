"""The links of a running scenario, measured by programs that know nothing of us: ping and iperf3.

Tolerances are those of docs/explanation/fidelity.md: round trips within max(1 ms, 2 %), rates within 3 %,
losses by exact binomial intervals. Chance and a busy machine are allowed
some more tries; a link that is wrong is wrong each time. This is how exact links are on a host, whose processor delays
packets; how exact the engines are is measured in virtual time, in `tests/lab/inside`.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from netem.measurement.intervals import binomial_range
from tests.e2e.harness import Background
from tests.netem.measured import settled
from tests.netem.tools import Tools, needs_tools

pytestmark = [pytest.mark.e2e, pytest.mark.netns, needs_tools]

SCENARIO = """\
# Do ping and iperf3 find the links that were asked for?
name: measured
seed: 3
driver: namespaces
algorithm: {name: hierfavg, rounds: 2, kappa1: 4, kappa2: 1, learning_rate: 0.2}
data: {dataset: digits, partition: iid}
model: mlp
topology: {edges: 2, devices_per_edge: 2, cloud: true}
hardware: {device: {speed: 0.0001}}  # it trains for as long as the measuring takes, and the links are quiet
probe: {before: false}
links:
  device-edge: {latency: 25ms}
  device-0-1 -> edge-0: {latency: 30ms, jitter: 5ms}
  edge-0 -> device-0-1: {latency: 20ms, jitter: 2ms}
  device-1-0 -> edge-1: {latency: 1ms, loss: 5%}
  edge-1 -> device-1-0: {latency: 1ms, loss: 2%}
  device-1-1 -> edge-1: {latency: 5ms, rate: 20mbit}
  edge-1 -> device-1-1: {latency: 5ms, rate: 5mbit}
  edge-cloud: {latency: 2ms}
"""
ADDRESSES = {  # 10.77.0.n, counted from the cloud over the edges to the devices
    "cloud": 1,
    "edge-0": 2,
    "edge-1": 3,
    "device-0-0": 4,
    "device-0-1": 5,
    "device-1-0": 6,
    "device-1-1": 7,
}
TCP_SHARE = 1448 / 1514  # payload of a full frame with timestamps
UDP_SIZE = 1400
UDP_SHARE = UDP_SIZE / (UDP_SIZE + 42)  # Ethernet, IP and UDP


def address(node: str) -> str:
    return f"10.77.0.{ADDRESSES[node]}"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Tools]:
    """The nodes of a run that trains."""
    with tempfile.TemporaryDirectory() as place, Background(Path(place), SCENARIO) as run:
        run.wait_round(1)
        enter = {node: run.network_of(node) for node in ADDRESSES}
        yield Tools(enter.__getitem__, address)


def ends(one: str, other: str, turned: bool) -> tuple[str, str]:
    return (other, one) if turned else (one, other)


@pytest.mark.parametrize(("one", "other", "asked"), [("device-0-0", "edge-0", 0.05), ("cloud", "edge-1", 0.004)])
def test_round_trip(nodes: Tools, one: str, other: str, asked: float) -> None:
    def median() -> float:
        times = nodes.ping(one, other, 40, 0.02)
        assert len(times) == 40  # nothing is lost
        return statistics.median(times)

    settled(median, asked, asked + max(0.001, 0.02 * asked))


def test_jitter(nodes: Tools) -> None:
    """30 ± 5 ms one way and 20 ± 2 ms the other: 50 ms with a standard deviation of sqrt(29) = 5.4 ms."""
    times: list[float] = []

    def mean() -> float:  # 99.9 % of samples' means lie within 3.3 standard errors, and the link adds up to 1 ms
        times[:] = nodes.ping("edge-0", "device-0-1", 100, 0.025)
        return statistics.mean(times)

    error = 3.3 * 0.0054 / 10
    settled(mean, 0.05 - error, 0.05 + error + 0.001)
    # The standard error of a standard deviation is 1 / sqrt(2 n) of it, 7 %; 3.3 of those.
    assert statistics.stdev(times) == pytest.approx(0.0054, rel=0.23)


def test_loss_of_echoes(nodes: Tools) -> None:
    """An echo crosses both ways: 1 - 0.95 * 0.98 = 6.9 % are lost."""
    count = 1000
    low, high = binomial_range(count, 1 - 0.95 * 0.98, 0.999)
    settled(lambda: count - len(nodes.ping("device-1-0", "edge-1", count, 0.002)), low, high)


@pytest.mark.parametrize(("asked", "turned"), [(0.05, False), (0.02, True)], ids=["up", "down"])
def test_loss_of_datagrams_each_way(nodes: Tools, asked: float, turned: bool) -> None:
    source, target = ends("device-1-0", "edge-1", turned)

    def beyond() -> float:
        """By how many standard deviations of a binomial count the lost datagrams differ from those asked."""
        found = nodes.iperf(source, target, "--udp", "--bitrate", "4M", "--length", "500", "--time", "2")["sum"]
        sent, lost = found["packets"], found["lost_packets"]
        assert sent > 1500
        low, high = binomial_range(sent, asked, 0.999)
        return float(max(0, low - lost, lost - high))

    settled(beyond, 0, 0)


@pytest.mark.parametrize(("asked", "turned"), [(20e6, False), (5e6, True)], ids=["up", "down"])
def test_rate(nodes: Tools, asked: float, turned: bool) -> None:
    source, target = ends("device-1-1", "edge-1", turned)

    def tcp() -> float:
        found = nodes.iperf(source, target, "--time", "2", "--omit", "1")["sum_received"]
        return float(found["bits_per_second"]) / TCP_SHARE

    def udp() -> float:  # half as much again as the link carries
        bitrate = str(int(1.5 * asked * UDP_SHARE))
        options = ("--udp", "--bitrate", bitrate, "--length", str(UDP_SIZE), "--time", "1", "--omit", "1")
        found = nodes.iperf(source, target, *options)["sum_received"]
        return float(found["bits_per_second"]) / UDP_SHARE

    settled(tcp, 0.97 * asked, 1.03 * asked)
    settled(udp, 0.97 * asked, 1.03 * asked)
