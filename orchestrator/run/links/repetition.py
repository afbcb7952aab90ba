"""Repeat a measurement of links that failed while this host's processors were saturated.

A probe on a saturated host sends and answers late, so its failure says nothing about the link. It is repeated once the
host has processors left, at most `REPETITIONS` times. A failure on a host that is not saturated counts immediately.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from orchestrator.fidelity.overload import busy_share, was_saturated
from orchestrator.host.kernel.load import HostLoad, read_load

REPETITIONS = 3  # of one measurement
CALM = 1.0  # s without saturation, after which a measurement is repeated
PATIENCE = 30.0  # s to wait for that before each repetition

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Host:
    """What a repetition needs of this host: its counters of load, a clock in seconds, and a pause."""

    load: Callable[[], HostLoad] = read_load
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Meanwhile(NamedTuple):
    """This host while something was measured: whether it was saturated, and the busy share of its processors."""

    saturated: bool
    share: float


def needs_repetition(meanwhile: Meanwhile, repetitions: int, *, failed: bool) -> bool:
    """Whether a measurement is repeated that was already repeated so many times."""
    return failed and meanwhile.saturated and repetitions < REPETITIONS


async def measure_once(
    items: Sequence[Item],
    measure: Callable[[Sequence[Item]], Awaitable[Sequence[Outcome]]],
    host: Host,
) -> list[tuple[Outcome, Meanwhile]]:
    """Measure the items together. For links between hosts: a repetition would need that all of them have processors
    left, and only this one is known."""
    load = host.load()
    start = host.clock()
    outcomes = await measure(items)
    meanwhile = _since(load, start, host)
    return [(outcome, meanwhile) for outcome in outcomes]


async def measure_until_valid(
    items: Sequence[Item],
    measure: Callable[[Sequence[Item]], Awaitable[Sequence[Outcome]]],
    failed: Callable[[Outcome], bool],
    record: Callable[[Item, Outcome, int], None],
    host: Host,
) -> list[tuple[Outcome, Meanwhile]]:
    """Measure the items together, and those again that need it. ``record``: called before each repetition, with the
    outcome that does not count and the number of the repetition, from 1. Returns the outcomes in the order of the
    items."""
    outcomes = await measure_once(items, measure, host)
    waiting = list(range(len(items)))  # places in ``items``
    repetitions = 0
    while True:
        failed_places = []
        for place in waiting:
            if _needs_repetition(outcomes[place], repetitions, failed):
                failed_places.append(place)
        waiting = failed_places
        if not waiting or not await is_calm(host):
            return outcomes
        repetitions += 1
        for place in waiting:
            outcome, _ = outcomes[place]
            record(items[place], outcome, repetitions)
        repeated = [items[place] for place in waiting]
        measured = await measure_once(repeated, measure, host)
        for place, outcome_of_item in zip(waiting, measured, strict=True):
            outcomes[place] = outcome_of_item


def _needs_repetition(
    measured: tuple[Outcome, Meanwhile],
    repetitions: int,
    failed: Callable[[Outcome], bool],
) -> bool:
    outcome, meanwhile = measured
    has_failed = failed(outcome)
    return needs_repetition(meanwhile, repetitions, failed=has_failed)


async def is_calm(host: Host) -> bool:
    """Wait until the host was not saturated for `CALM`. False if it was so for `PATIENCE`."""
    began = host.clock()
    while host.clock() - began < PATIENCE:
        load = host.load()
        start = host.clock()
        await host.sleep(CALM)
        if not _since(load, start, host).saturated:
            return True
    return False


def _since(load: HostLoad, start: float, host: Host) -> Meanwhile:
    now = host.load()
    seconds = host.clock() - start
    saturated = was_saturated(load, now, seconds)
    share = busy_share(load, now, seconds)
    return Meanwhile(saturated, share)
