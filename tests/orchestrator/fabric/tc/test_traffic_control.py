"""Against the real `tc`, in a hub with no interface but lo: what it refuses and shows there, every kernel does."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from netem.kernel.batch import Reply
from orchestrator.errors import HostError
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.tc.traffic_control import TrafficControl

SHOW = ["tc", "qdisc", "show", "dev", "lo"]
REFUSED = ["tc", "qdisc", "delete", "dev", "lo", "root"]  # there is none
ELSEWHERE = ["tc", "qdisc", "show", "dev", "v9.9"]


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[TrafficControl]:
    try:
        hub = await Hub.open("run", tmp_path)
    except HostError as error:
        pytest.skip(str(error))
    control = TrafficControl(hub, {"TC_LIB_DIR": str(tmp_path)})
    yield control
    await control.close()
    await hub.close()


def pid(control: TrafficControl) -> int:
    assert control._process is not None
    return control._process.pid


async def test_one_process_for_all_batches(control: TrafficControl) -> None:
    shown, refused, gone, again = await control.attempt([SHOW, REFUSED, ELSEWHERE, SHOW])
    first = pid(control)
    assert shown == again == Reply(shown="[]")
    assert refused.error.startswith("Error: ")
    assert gone == Reply(error='Cannot find device "v9.9"')
    assert [reply.error for reply in await control.attempt([SHOW, REFUSED])] == ["", refused.error]
    assert await control.run([SHOW, SHOW]) == "[]"
    assert await control.attempt([]) == []
    assert pid(control) == first


async def test_batches_do_not_mix(control: TrafficControl) -> None:
    batches = [[SHOW] * number + [REFUSED] for number in range(1, 9)]
    results = await asyncio.gather(*map(control.attempt, batches))
    assert [[bool(reply.error) for reply in result] for result in results] == [
        [False] * number + [True] for number in range(1, 9)
    ]


@pytest.mark.slow
async def test_more_than_a_pipe_holds(control: TrafficControl) -> None:
    """Both ways: tc is written 400 kB, and says 2 MB of it in the meantime."""
    results = await control.attempt([ELSEWHERE, REFUSED] * 10_000)
    assert len(results) == 20_000
    assert all(reply.error for reply in results)


async def test_a_refused_command_is_named(control: TrafficControl) -> None:
    with pytest.raises(HostError, match=r"`tc qdisc delete dev lo root` failed \(Error: "):
        await control.run([REFUSED, SHOW])


async def test_a_killed_one_is_reported_and_replaced(control: TrafficControl) -> None:
    await control.run([SHOW])
    killed = pid(control)
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(HostError, match=r"tc ended before.*run all commands"):
        await control.run([SHOW])
    assert await control.run([SHOW]) == "[]"
    assert pid(control) != killed


async def test_who_gives_up_leaves_nothing_to_the_next(control: TrafficControl) -> None:
    await control.run([SHOW])
    waiting = asyncio.create_task(control.attempt([ELSEWHERE] * 1000))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await control.attempt([SHOW, REFUSED, SHOW]) == [
        Reply("[]"),
        (await control.attempt([REFUSED]))[0],
        Reply("[]"),
    ]
