from __future__ import annotations

import asyncio

import pytest

from node.process.orders import UnderOrders
from node.runtime.clock import run_virtual
from tests.texts import containing


class FakeRole:
    """A role that takes 10 s, and its compute."""

    def __init__(self) -> None:
        self.slow = 1.0
        self.stopped = False
        self.performed = 0.0
        self.leaving: list[bool] = []

    async def perform(self) -> None:
        await asyncio.sleep(10.0)
        self.performed = asyncio.get_running_loop().time()

    def stop(self, *, leaving: bool = False) -> None:
        self.stopped = True
        self.leaving.append(leaving)


def performed(*types: str) -> FakeRole:
    """The role after these orders, one each second."""

    async def main() -> FakeRole:
        role = FakeRole()
        orders = UnderOrders(role, role)
        performing = asyncio.create_task(orders.perform())
        for type in types:
            await asyncio.sleep(1.0)
            orders.obey({"type": type, "factor": "0.25"})
        await performing
        return role

    return run_virtual(main())


def test_a_role_is_performed_from_the_word_to_start_on() -> None:
    assert performed("slow", "start").performed == 12.0


def test_speed() -> None:
    assert performed("start", "slow").slow == 0.25


@pytest.mark.parametrize(("order", "leaving"), [("stop", False), ("leave", True)])
def test_a_role_that_is_stopped_before_it_starts_never_does(order: str, leaving: bool) -> None:
    role = performed(order, "start")
    assert (role.performed, role.leaving) == (0.0, [leaving])


def test_what_is_not_known_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert performed("dance", "start").performed == 12.0
    assert caplog.messages == [containing("the orchestrator says 'dance'", "version")]
