"""Measurements on a host with a written load: its clock moves only while it measures or sleeps."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from orchestrator.host.kernel.load import HostLoad
from orchestrator.run.links.repetition import (
    CALM,
    PATIENCE,
    REPETITIONS,
    Host,
    Meanwhile,
    is_calm,
    measure_until_valid,
    needs_repetition,
)

TOOK = 2.0  # s of each measurement
SATURATED, IDLE = Meanwhile(saturated=True, share=1.0), Meanwhile(saturated=False, share=0.0)


class OneProcessor:
    """It is saturated until the time ``free``, and idle from then on, except for measurements that saturate it."""

    def __init__(self, free: float, *, measuring_saturates: bool = False) -> None:
        self.free, self.measuring_saturates = free, measuring_saturates
        self.now = self.extra = 0.0

    def load(self) -> HostLoad:
        busy = min(self.now, self.free) + self.extra
        return HostLoad(busy=busy, idle=self.now - busy, waiting=busy, dropped=0)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def measure(self) -> None:
        if self.measuring_saturates:
            self.extra += TOOK
        await self.sleep(TOOK)

    @property
    def host(self) -> Host:
        return Host(self.load, lambda: self.now, self.sleep)


class Links:
    """Each link fails as many times as it says, and then passes."""

    def __init__(self, processor: OneProcessor, failures: dict[str, int]) -> None:
        self.processor, self.failures = processor, dict(failures)
        self.measured: list[list[str]] = []
        self.recorded: list[tuple[str, str, int]] = []

    async def measure(self, links: Sequence[str]) -> list[str]:
        self.measured.append(list(links))
        await self.processor.measure()
        verdicts = []
        for link in links:
            verdicts.append("fail" if self.failures[link] else "pass")
            self.failures[link] = max(0, self.failures[link] - 1)
        return verdicts

    async def verdicts(self) -> list[tuple[str, bool]]:
        """The verdict on each link, and whether the host was saturated."""
        outcomes = await measure_until_valid(
            list(self.failures),
            self.measure,
            lambda verdict: verdict == "fail",
            lambda link, verdict, repetition: self.recorded.append((link, verdict, repetition)),
            self.processor.host,
        )
        return [(verdict, meanwhile.saturated) for verdict, meanwhile in outcomes]


@pytest.mark.parametrize(
    ("failed", "meanwhile", "repetitions", "again"),
    [
        (True, SATURATED, 0, True),
        (True, SATURATED, REPETITIONS - 1, True),
        (True, SATURATED, REPETITIONS, False),
        (True, IDLE, 0, False),
        (False, SATURATED, 0, False),
    ],
)
def test_only_a_failure_on_a_saturated_host_is_repeated(
    failed: bool, meanwhile: Meanwhile, repetitions: int, again: bool
) -> None:
    assert needs_repetition(meanwhile, repetitions, failed=failed) is again


async def test_the_link_that_failed_is_measured_again_when_the_host_has_processors_left() -> None:
    processor = OneProcessor(free=10.0)
    links = Links(processor, {"a": 1, "b": 0})
    assert await links.verdicts() == [("pass", False), ("pass", True)]
    assert links.measured == [["a", "b"], ["a"]]
    assert links.recorded == [("a", "fail", 1)]
    assert processor.now == 10.0 + CALM + TOOK


async def test_a_failure_on_an_idle_host_counts_at_once() -> None:
    links = Links(OneProcessor(free=0.0), {"a": 9})
    assert await links.verdicts() == [("fail", False)]
    assert (len(links.measured), links.recorded) == (1, [])


async def test_a_failure_that_stays_on_a_host_with_processors_left_counts() -> None:
    links = Links(OneProcessor(free=5.0), {"a": 9})
    assert await links.verdicts() == [("fail", False)]
    assert links.recorded == [("a", "fail", 1)]


async def test_a_host_that_stays_saturated_is_not_waited_for_without_end() -> None:
    processor = OneProcessor(free=1e6)
    links = Links(processor, {"a": 9})
    assert await links.verdicts() == [("fail", True)]
    assert (links.recorded, processor.now) == ([], TOOK + PATIENCE)


async def test_at_most_three_repetitions_and_each_is_recorded() -> None:
    """The host is calm between the measurements, and each of them saturates it."""
    links = Links(OneProcessor(free=0.0, measuring_saturates=True), {"a": 9})
    assert await links.verdicts() == [("fail", True)]
    assert len(links.measured) == 1 + 3
    assert links.recorded == [("a", "fail", 1), ("a", "fail", 2), ("a", "fail", 3)]


async def test_a_host_is_calm_after_a_second_without_saturation() -> None:
    processor = OneProcessor(free=3.0)
    assert await is_calm(processor.host)
    assert processor.now == 3.0 + CALM
