"""The links of a running scenario, measured by programs that know nothing of us: ping and iperf3.

Tolerances are those of docs/fidelity.md: round trips within max(1 ms, 2 %), rates within 3 %, losses by exact binomial
intervals. Chance and a busy machine are allowed a second and a third try; a link that is wrong is wrong each time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from netem.intervals import binomial_range
from tests.e2e.harness import Background

pytestmark = [pytest.mark.e2e, pytest.mark.netns]

NEEDED = {"ping": "iputils-ping", "iperf3": "iperf3", "nsenter": "util-linux"}
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
TRIES = 3
TCP_SHARE = 1448 / 1514  # payload of a full frame with timestamps
UDP_SIZE = 1400
UDP_SHARE = UDP_SIZE / (UDP_SIZE + 42)  # Ethernet, IP and UDP


class Nodes:
    """The nodes' network namespaces, entered by the processes that live there."""

    def __init__(self, run: Background) -> None:
        entering = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        self._enter = {
            node: ["nsenter", "--target", str(run.pid_of(node)), *entering, "--net", "--"] for node in ADDRESSES
        }

    def ping(self, source: str, target: str, count: int, interval: float, size: int = 56) -> list[float]:
        """Round-trip times in seconds; those of lost echoes are missing."""
        options = ["-n", "-c", str(count), "-i", str(interval), "-s", str(size), "-W", "2"]
        done = subprocess.run(
            [*self._enter[source], "ping", *options, address(target)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert f"{count} packets transmitted" in done.stdout, done.stdout[-500:] + done.stderr
        return [float(each) / 1000 for each in re.findall(r"time=([\d.]+) ms", done.stdout)]

    def iperf(self, source: str, target: str, *options: str) -> dict[str, Any]:
        """What the client at ``source`` says in the end, in iperf3's own words.

        Where a link loses much, the two sometimes lose one another over their last words, and try again.
        """
        for _ in range(TRIES):
            said = self._iperf(source, target, *options)
            if {"sum", "sum_received"} & said["end"].keys():
                ending: dict[str, Any] = said["end"]
                return ending
        pytest.fail(f"iperf3 between {source} and {target}: {said.get('error')}")

    def _iperf(self, source: str, target: str, *options: str) -> dict[str, Any]:
        serving = subprocess.Popen(
            [*self._enter[target], "iperf3", "--server", "--one-off", "--forceflush", "--bind", address(target)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert serving.stdout is not None
            for line in serving.stdout:
                if "listening" in line:
                    break
            done = subprocess.run(
                [*self._enter[source], "iperf3", "--client", address(target), "--json", *options],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            said: dict[str, Any] = json.loads(done.stdout)
        finally:
            serving.kill()
            serving.communicate()
        return said


def address(node: str) -> str:
    return f"10.77.0.{ADDRESSES[node]}"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """The nodes of a run that trains; ping and iperf3 must be there where CI is set."""
    missing = sorted({package for program, package in NEEDED.items() if shutil.which(program) is None})
    if missing:
        (pytest.fail if "CI" in os.environ else pytest.skip)(f"to measure links, install {' and '.join(missing)}")
    with tempfile.TemporaryDirectory() as place, Background(Path(place), SCENARIO) as run:
        run.wait_round(1)
        yield Nodes(run)


def settled(measure: Callable[[], float], low: float, high: float) -> float:
    values = []
    for _ in range(TRIES):
        values.append(measure())
        if low <= values[-1] <= high:
            print(f"measured {values[-1]:.6g}, accepted {low:.6g} to {high:.6g}")
            return values[-1]
    pytest.fail(f"measured {values}, none within {low} to {high}")


BOTH = pytest.mark.parametrize("turned", [False, True], ids=["up", "down"])


def ends(one: str, other: str, turned: bool) -> tuple[str, str]:
    return (other, one) if turned else (one, other)


@BOTH
@pytest.mark.parametrize(("one", "other", "asked"), [("device-0-0", "edge-0", 0.05), ("edge-1", "cloud", 0.004)])
def test_round_trip(nodes: Nodes, one: str, other: str, asked: float, turned: bool) -> None:
    def median() -> float:
        times = nodes.ping(*ends(one, other, turned), 40, 0.02)
        assert len(times) == 40  # nothing is lost
        return statistics.median(times)

    settled(median, asked, asked + max(0.001, 0.02 * asked))


@BOTH
def test_jitter(nodes: Nodes, turned: bool) -> None:
    """30 ± 5 ms one way and 20 ± 2 ms the other: 50 ms with a standard deviation of sqrt(29) = 5.4 ms."""
    times: list[float] = []

    def mean() -> float:  # 99.9 % of samples' means lie within 3.3 standard errors, and the link adds up to 1 ms
        times[:] = nodes.ping(*ends("device-0-1", "edge-0", turned), 100, 0.025)
        return statistics.mean(times)

    error = 3.3 * 0.0054 / 10
    settled(mean, 0.05 - error, 0.05 + error + 0.001)
    # The standard error of a standard deviation is 1 / sqrt(2 n) of it, 7 %; 3.3 of those.
    assert statistics.stdev(times) == pytest.approx(0.0054, rel=0.23)


@BOTH
def test_loss_of_echoes(nodes: Nodes, turned: bool) -> None:
    """An echo crosses both ways: 1 - 0.95 * 0.98 = 6.9 % are lost."""
    count = 1000
    low, high = binomial_range(count, 1 - 0.95 * 0.98, 0.999)
    settled(lambda: count - len(nodes.ping(*ends("device-1-0", "edge-1", turned), count, 0.002)), low, high)


@pytest.mark.parametrize(("asked", "turned"), [(0.05, False), (0.02, True)], ids=["up", "down"])
def test_loss_of_datagrams_each_way(nodes: Nodes, asked: float, turned: bool) -> None:
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
def test_rate(nodes: Nodes, asked: float, turned: bool) -> None:
    source, target = ends("device-1-1", "edge-1", turned)

    def tcp() -> float:
        found = nodes.iperf(source, target, "--time", "3", "--omit", "1")["sum_received"]
        return float(found["bits_per_second"]) / TCP_SHARE

    def udp() -> float:  # half as much again as the link carries
        bitrate = str(int(1.5 * asked * UDP_SHARE))
        options = ("--udp", "--bitrate", bitrate, "--length", str(UDP_SIZE), "--time", "2", "--omit", "1")
        found = nodes.iperf(source, target, *options)["sum_received"]
        return float(found["bits_per_second"]) / UDP_SHARE

    settled(tcp, 0.97 * asked, 1.03 * asked)
    settled(udp, 0.97 * asked, 1.03 * asked)
