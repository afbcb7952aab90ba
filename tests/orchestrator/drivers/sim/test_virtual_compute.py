"""Work on a virtual clock; a sample costs a second on a core of speed 1."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from node.runtime.compute import Mode
from orchestrator.drivers.sim.virtual_compute import ModelledCompute
from tests.virtual import virtual


def cost(samples: int, mode: Mode) -> float:
    return 0.0 if mode == "other" else float(samples)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize(("speed", "slow", "seconds"), [(None, 1.0, 8.0), (2.0, 1.0, 4.0), (2.0, 0.25, 16.0)])
@virtual
async def test_a_step_lasts_by_its_samples_and_the_nodes_speed(
    pool: ThreadPoolExecutor, speed: float | None, slow: float, seconds: float
) -> None:
    compute = ModelledCompute(pool, cost, speed)
    compute.slow = slow
    assert await compute.run(sum, ([1, 2],), 8, "train") == 3
    assert now() == pytest.approx(seconds)


@virtual
async def test_what_is_not_modelled_takes_no_time(pool: ThreadPoolExecutor) -> None:
    assert await ModelledCompute(pool, cost, None).run(max, (1, 2), 0, "other") == 2
    assert now() == 0


@virtual
async def test_steps_of_one_node_come_one_after_the_other(pool: ThreadPoolExecutor) -> None:
    compute = ModelledCompute(pool, cost, None)
    steps = [compute.run(str, (k,), 2, "train") for k in range(3)]
    assert await asyncio.gather(*steps) == ["0", "1", "2"]
    assert now() == pytest.approx(6)


@virtual
async def test_steps_of_several_nodes_are_done_at_once_and_end_in_virtual_order(pool: ThreadPoolExecutor) -> None:
    together = threading.Barrier(2, timeout=30)  # neither step can end before both are being done
    ended: list[tuple[float, str]] = []

    async def node(name: str, samples: int) -> None:
        await ModelledCompute(pool, cost, None).run(together.wait, (), samples, "train")
        ended.append((now(), name))

    await asyncio.gather(node("slow", 5), node("fast", 3))
    assert ended == [(3.0, "fast"), (5.0, "slow")]


@virtual
async def test_time_continues_only_when_the_result_is_there(pool: ThreadPoolExecutor) -> None:
    release = threading.Event()

    async def meanwhile() -> None:
        await asyncio.sleep(9.5)  # before the step ends: this does not wait for it
        release.set()

    side = asyncio.create_task(meanwhile())
    assert await ModelledCompute(pool, cost, None).run(release.wait, (30.0,), 10, "train")
    assert now() == pytest.approx(10)
    await side


@virtual
async def test_while_a_node_is_frozen_its_step_is_stalled(pool: ThreadPoolExecutor) -> None:
    compute = ModelledCompute(pool, cost, None)
    loop = asyncio.get_running_loop()
    for at, frozen in ((2.0, True), (5.0, False), (6.0, True), (20.0, False)):
        loop.call_at(at, compute.freeze, frozen)
    await compute.run(int, (), 8, "train")
    assert now() == pytest.approx(8 + 3 + 14)


@virtual
async def test_what_a_step_raises_is_raised_where_it_is_awaited(pool: ThreadPoolExecutor) -> None:
    with pytest.raises(ZeroDivisionError):
        await ModelledCompute(pool, cost, None).run(divmod, (1, 0), 2, "train")
