"""A run in the background of a program. `edgebed` exports `start` and `Handle`."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from orchestrator.errors import RunError
from orchestrator.host.commands import extend_path
from orchestrator.host.process.signals import Interruption, ended_by
from orchestrator.record.directory import RunDirectory
from orchestrator.record.events.run import Training
from orchestrator.record.rows import Event
from orchestrator.run.display.events import Listener
from orchestrator.run.options import RunOptions
from orchestrator.verbs.live.inject import command, fault_of, require_running
from orchestrator.verbs.python_interface import RUNS, Run, destinations, execute
from orchestrator.verbs.sources import Given, Overrides, Source

Begun = Callable[[RunDirectory], object]
"""Called with the directory of a run when its record has started."""


class Handle:
    """A run that continues in the background. `start` makes it.

    ``run`` has the run's tables, which grow while it continues. As a context manager, the handle waits for the end of
    the run. If the body raises an error, it stops the run first. `await handle` is `wait` for programs with an event
    loop, and `async with` does the same as `with`. A run that still continues when the program ends is stopped, too.
    """

    run: Run

    def __init__(self) -> None:
        self._interruption = Interruption()
        self._begun: Future[Run] = Future()
        self._ended: Future[Run] = Future()
        self._ended.set_running_or_notify_cancel()  # so that no task that waits for it can cancel it
        self._trained = threading.Event()  # the training has started, or the run has ended

    def __repr__(self) -> str:
        state = "running" if self.running else "ended"
        return f"<{state}: {self.run!r}>"

    def _repr_html_(self) -> str:
        return self.run._repr_html_()

    @property
    def running(self) -> bool:
        """Whether the run continues."""
        return not self._ended.done()

    def inject(
        self,
        action: str,
        *targets: str,
        **keys: object,
    ) -> list[dict[str, Any]]:
        """Make a fault now, like the command `inject`. If the training has not started yet, wait for its start.

        ``action``, ``targets`` and ``keys`` are those of the command: ``inject("crash", "device-0-1", for_="5s")``,
        ``inject("partition", "edge-0", "cloud")``, ``inject("degrade", "edge-0", loss="5%")``. ``for_`` is the key
        ``for``, a keyword of Python. Returns what took effect: fault (its number), action, target, for (s), at (s of
        training), t (s of the run), round. ValueError if the targets do not fit the action. RunError if the run has
        ended or refuses the fault.
        """
        fault = fault_of(action, targets, keys)
        reply = self._command("inject", {"fault": fault, "via": "Python"})
        reasons = []
        for refusal in reply["refused"]:
            reasons.append(f"{refusal['action']} {refusal['target']}: {refusal['reason']}")
        if reasons:
            raise RunError("\n".join(reasons))
        faults: list[dict[str, Any]] = reply["faults"]
        return faults

    def pace(self, pace: str) -> dict[str, Any]:
        """Set the pace of a simulation, like the command `pace`: "10x", "pause", "step" (to the next round) or "free".

        If the training has not started yet, wait for its start. Returns t (s of the run) and round. RunError if the run
        has ended or has no pace.
        """
        reply = self._command("pace", {"to": pace})
        return {"t": reply["t"], "round": reply["round"]}

    def stop(self) -> Run:
        """Stop the run in order and wait for its end. Its record says "interrupted", unless it had ended before."""
        self._interruption.end()
        return self._ended.result()

    def wait(self, timeout: float | None = None) -> Run:
        """Wait for the end of the run, at most ``timeout`` seconds, and return it as `up` does.

        TimeoutError if the run continues after the timeout. An error of ``on_event`` is raised here. KeyboardInterrupt
        stops the run in order before it is raised.
        """
        try:
            return self._ended.result(timeout)
        except KeyboardInterrupt:
            self.stop()
            raise

    def __await__(self) -> Generator[Any, None, Run]:
        try:
            return (yield from asyncio.wrap_future(self._ended).__await__())
        finally:
            self._interruption.end()  # without effect after the end; a task that is cancelled stops the run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.wait()
        else:
            self._leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            self._interruption.end()
        await self

    def _command(self, op: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self._trained.wait()
        directory = require_running(RunDirectory(self.run.path))
        return command(directory, op, arguments)

    def _start(self, work: Callable[[Begun], Run]) -> None:
        """Run ``work`` in a thread. It calls its argument when the record has started, and then this returns."""

        def carry_out() -> None:
            try:
                run = ended_by(self._interruption, lambda: work(begun))
                self._ended.set_result(run)
            except KeyboardInterrupt:
                self._ended.set_result(self.run)
            except BaseException as error:
                self._ended.set_exception(error)
            finally:
                self._trained.set()

        def begun(directory: RunDirectory) -> None:
            self.run = Run(directory.path)
            self._begun.set_result(self.run)

        threading._register_atexit(self._leave)  # type: ignore[attr-defined]  # `atexit` is too late for a run's threads
        threading.Thread(target=carry_out, name="run").start()
        try:
            wait([self._begun, self._ended], return_when=FIRST_COMPLETED)
        except BaseException:
            self._interruption.end()
            raise
        if not self._begun.done():
            self._ended.result()

    def _receive(self, event: Event, on_event: Callable[[Event], object] | None) -> None:
        if event.name == Training.NAME:
            self._trained.set()
        if on_event is not None:
            on_event(event)

    def _leave(self) -> None:
        self._interruption.end()
        wait([self._ended])


def start(
    scenario: Given,
    overrides: Overrides = (),
    *,
    driver: str | None = None,
    runs: str | os.PathLike[str] = RUNS,
    workers: int | None = None,
    on_event: Callable[[Event], object] | None = None,
    track: str | Iterable[str] = (),
    pace: str | None = None,
) -> Handle:
    """Start a run in the background and return when its record has started.

    The arguments are those of `up`, and the errors too. ``pace`` is that of a simulation when its training starts, see
    `Handle.pace`. A simulation may end within a second, so give it a pace to follow it.
    """
    handle = Handle()
    listener = Listener(lambda event: handle._receive(event, on_event))
    source = Source.of(scenario, overrides, driver)
    places = destinations(track)
    options = RunOptions(workers, listener=listener, track=places, pace=pace)
    extend_path()

    def work(begun: Begun) -> Run:
        announced = replace(options, begun=begun)
        return execute(source, Path(runs), announced)

    handle._start(work)
    return handle
