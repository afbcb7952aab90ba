from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from orchestrator.errors import ChildError
from orchestrator.host.process.child import JsonChild

ECHO = """
import json, sys
print(json.dumps({"event": "ready"}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["op"] == "echo":
        print(json.dumps({"id": request["id"], "ok": True, "text": request["text"]}), flush=True)
    elif request["op"] == "news":
        print(json.dumps({"event": "news"}), flush=True)
        print(json.dumps({"id": request["id"], "ok": True}), flush=True)
    elif request["op"] == "die":
        sys.exit(7)
    elif request["op"] == "refuse":
        print(json.dumps({"id": request["id"], "error": "I will not"}), flush=True)
"""


async def start(tmp_path: Path, program: str = ECHO, events: list[str] | None = None) -> JsonChild:
    heard = [] if events is None else events
    return await JsonChild.start(
        "the echo",
        [sys.executable, "-I", "-S", "-c", program],
        environment={},
        log=tmp_path / "echo.log",
        on_event=lambda event: heard.append(event["event"]),
    )


async def test_a_request_gets_its_own_reply(tmp_path: Path) -> None:
    child = await start(tmp_path)
    await child.wait_ready(20)
    replies = await asyncio.gather(*(child.request("echo", text=str(i)) for i in range(20)))
    assert [reply["text"] for reply in replies] == [str(i) for i in range(20)]
    await child.close()
    assert child.returncode == 0


async def test_news_reach_the_listener(tmp_path: Path) -> None:
    events: list[str] = []
    child = await start(tmp_path, events=events)
    await child.request("news")
    await child.close()
    assert events == ["ready", "news"]


async def test_a_refusal_is_an_error_with_its_reason(tmp_path: Path) -> None:
    child = await start(tmp_path)
    with pytest.raises(ChildError, match="the echo refused 'refuse': I will not"):
        await child.request("refuse")
    await child.close()


async def test_a_child_that_dies_fails_the_request_in_flight_and_every_later_one(tmp_path: Path) -> None:
    child = await start(tmp_path)
    with pytest.raises(ChildError, match=r"the echo ended \(exit code 7\): see `logs echo`"):
        await child.request("die")
    assert child.ended.is_set()
    with pytest.raises(ChildError, match="exit code 7"):
        await child.request("echo", text="anybody?")
    await child.close()


async def test_a_silent_child_times_out(tmp_path: Path) -> None:
    child = await start(tmp_path)
    with pytest.raises(ChildError, match="did not answer 'unheard of'"):
        await child.request("unheard of", timeout=0.05)
    await child.close()


async def test_a_child_that_ends_before_it_is_ready(tmp_path: Path) -> None:
    child = await start(tmp_path, program="import sys; sys.exit(3)")
    with pytest.raises(ChildError, match=r"ended \(exit code 3\)"):
        await child.wait_ready(20)
    await child.close()


async def test_a_child_that_is_killed_ends_though_another_process_holds_its_output(tmp_path: Path) -> None:
    forks = "import os, time\nif os.fork() == 0: time.sleep(60)\n"
    child = await start(tmp_path, program=forks + ECHO)
    await child.wait_ready(20)
    request = asyncio.create_task(child.request("unheard of", timeout=20))
    watch = asyncio.create_task(child.watch())
    await asyncio.sleep(0)
    try:
        os.kill(child.pid, signal.SIGKILL)
        async with asyncio.timeout(10):
            for waiting in (request, watch):
                with pytest.raises(ChildError, match=r"the echo ended \(SIGKILL\)"):
                    await waiting
        await child.close()
    finally:
        os.killpg(child.pid, signal.SIGKILL)


async def test_a_child_that_writes_nonsense_ends_with_it_as_the_reason(tmp_path: Path) -> None:
    child = await start(
        tmp_path, program=ECHO + "    elif request['op'] == 'babble': print('Warning: hot', flush=True)\n"
    )
    with pytest.raises(ChildError, match=r"echo ended \(it wrote 'Warning: hot'"):
        await child.request("babble", timeout=20)
    await child.close()


async def test_what_a_child_says_last_is_received(tmp_path: Path) -> None:
    child = await start(
        tmp_path, program=ECHO + "    elif request['op'] == 'bye': print(json.dumps({'id': request['id']})); break\n"
    )
    assert await child.request("bye") == {"id": 1}
    await child.close()
    assert child.returncode == 0
