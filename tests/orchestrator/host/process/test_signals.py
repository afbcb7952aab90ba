from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator.host.process import signals
from orchestrator.host.process.signals import INTERRUPTED, Interruption, answered, interruptible


class EndedError(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened; the process of the test goes on."""
    happened: list[str] = []

    def end(code: int) -> None:
        happened.append(f"exit {code}")
        raise EndedError

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(signals, "_asked", False)
    return happened


def send(interruption: Interruption, *numbers: signal.Signals) -> None:
    for number in numbers:
        try:
            interruption.handle(number, None)
        except EndedError:
            return


def send_one(interruption: Interruption) -> int:
    send(interruption, signal.SIGINT)
    return 0


async def hear(said: list[str], *numbers: signal.Signals) -> None:
    interruption, loop = Interruption(), asyncio.get_running_loop()
    with interruption.handled_by(loop, lambda: said.append("in order"), lambda: said.append("at once")):
        for number in numbers:
            send(interruption, number)
            await asyncio.sleep(0)


async def test_the_first_signal_ends_in_order_and_the_second_at_once(said: list[str]) -> None:
    await hear(said, signal.SIGINT, signal.SIGTERM)
    assert said == ["in order", "at once", f"exit {INTERRUPTED}"]


async def test_sigquit_ends_at_once(said: list[str]) -> None:
    await hear(said, signal.SIGQUIT)
    assert said == ["at once", f"exit {INTERRUPTED}"]


async def test_a_terminal_that_goes_away_is_reported_more_than_once(said: list[str]) -> None:
    await hear(said, signal.SIGHUP, signal.SIGHUP)
    assert said == ["in order"]


async def test_requests_before_the_listener_starts_are_received(said: list[str]) -> None:
    interruption = Interruption()
    send(interruption, signal.SIGINT)
    with interruption.handled_by(asyncio.get_running_loop(), lambda: said.append("in order"), lambda: None):
        assert said == ["in order"]


async def test_a_blocked_loop_does_not_keep_the_run_alive(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "REACTION", 0.05)
    loop = asyncio.get_running_loop()
    with (
        interruptible() as interruption,
        interruption.handled_by(loop, lambda: said.append("in order"), lambda: said.append("at once")),
    ):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(EndedError):
            signal.pause()  # a step of a plug-in, in the loop's thread
    assert said == ["at once", f"exit {INTERRUPTED}"]


def test_a_third_signal_does_not_wait(said: list[str]) -> None:
    interruption = Interruption()
    interruption.at_once = lambda: interruption.handle(signal.SIGINT, None)  # it comes in the middle
    send(interruption, signal.SIGINT, signal.SIGINT)
    assert said[0] == f"exit {INTERRUPTED}"


def test_handlers_are_those_of_before_when_the_run_is_over(said: list[str]) -> None:
    before = [signal.getsignal(number) for number in signals.ENDING]
    with interruptible() as interruption:
        assert [signal.getsignal(number) for number in signals.ENDING] == [interruption.handle] * 4
        signal.raise_signal(signal.SIGTERM)
        assert interruption.asked
    assert [signal.getsignal(number) for number in signals.ENDING] == before
    with pytest.raises(KeyboardInterrupt), interruptible():  # no further run begins
        pass


def test_a_program_that_continues_has_its_next_run(said: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt), answered(), interruptible() as interruption:
        send(interruption, signal.SIGINT)
    with answered(), interruptible():
        said.append("next")
    with pytest.raises(ZeroDivisionError), answered(), interruptible() as interruption:
        1 / send_one(interruption)
    assert not signals.interrupted()
    assert said == ["next"]


def test_another_thread_does_not_answer(said: list[str]) -> None:
    send(Interruption(), signal.SIGINT)

    def work() -> str:
        with answered():
            return "done"

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() == "done"
    assert signals.interrupted()
    assert said == []
