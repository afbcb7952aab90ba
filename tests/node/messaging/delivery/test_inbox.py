from __future__ import annotations

import asyncio

import pytest

from node.messaging.delivery.inbox import Inbox


async def test_items_come_out_in_their_order() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put(1)
    inbox.put(2)
    assert [await inbox.get(), await inbox.get()] == [1, 2]


async def test_a_reader_waits_for_the_first_item() -> None:
    inbox: Inbox[str] = Inbox()
    reader = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    assert not reader.done()
    inbox.put("a")
    inbox.put("b")
    assert await reader == "a"
    assert await inbox.get() == "b"


async def test_an_item_outlives_a_reader_that_is_cancelled() -> None:
    inbox: Inbox[str] = Inbox()
    reader = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    inbox.put("a")
    reader.cancel()  # it was woken and has not run since
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert await inbox.get() == "a"
    reader = asyncio.create_task(inbox.get())
    await asyncio.sleep(0)
    reader.cancel()
    inbox.put("b")
    assert await inbox.get() == "b"
