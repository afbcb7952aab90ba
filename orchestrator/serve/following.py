"""Runs that are watched. All watchers of a run share one reader, which reads the record a few times a second.

The reader opens the record, reads what is new in a short transaction, and closes it again. So the orchestrator has its
record to itself, and the record of an ended run becomes a single file.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

from orchestrator.errors import OrchestratorError
from orchestrator.record.directory import RunDirectory
from orchestrator.record.rows import Ends
from orchestrator.results.checks.registry import Check, checks
from orchestrator.results.history import History
from orchestrator.results.listing import Signature, current_summary, is_held, signature
from orchestrator.results.story import Story
from orchestrator.serve.figures import faults_of, figures_of
from orchestrator.serve.present import present, rates_of

EVERY = 0.25  # s between two looks at a running run
SELDOM = 2.0  # s between two looks at one that is over: `resume` may continue it
DRAW_EVERY = 1.0  # s between two sets of figures
DRAW_SHARE = 0.1  # of a processor that may be spent on figures and checks
GLANCE = 0.5  # s between two looks whether the server is closing
ALIVE = 15.0  # s after which a watcher receives the message that nothing is new
KEPT = 8  # runs without watchers that are kept, for watchers that come back

Json = dict[str, Any]
Clock = Callable[[], float]
Update = tuple[int, Json]  # how new its parts are, and what is new


class Reader:
    """Reads one run. ``read`` is called in threads, ``update`` by watchers: each sees whole looks only."""

    def __init__(self, directory: RunDirectory, clock: Clock = time.monotonic) -> None:
        self.directory = directory
        self.story: Story | None = None  # from the first look on
        self._latest: tuple[Json, str | None] | None = None  # the latest look, or an error
        self._parts: dict[str, tuple[int, Any]] = {}  # figures and faults by name, with how new they are
        self._version = 0  # of the newest part
        self._drawn = False  # whether the parts are of the latest look
        self._draw_at = 0.0  # until when no figures are due
        self._reading = threading.Lock()
        self._rates: dict[Ends, float | None] | None = None  # of links, from the first look on
        self._running = False
        self._seen: Signature | None = None
        self._again = False
        self._results: list[Check] = []
        self._checked: Signature | None = None  # the record that all checks have read
        self._clock = clock

    @property
    def plan(self) -> Json | None:
        """Known from the first look on."""
        return None if self.story is None else self.story.plan

    @property
    def pause(self) -> float:
        """The seconds until the next look is due."""
        if self._behind and self._latest:
            _, error = self._latest
            if not error:
                return 0.0
        if self._running or self._unjudged:
            return EVERY
        return SELDOM

    @property
    def _behind(self) -> bool:
        return self.story is None or self.story.behind

    def read(self) -> bool:
        """Look at the run. Returns whether anything is new."""
        with self._reading:
            now = signature(self.directory)
            changed = now != self._seen
            if not self._is_due(changed=changed):
                return False
            # SQLite shows a commit a moment after it has written it: the next look comes back for it.
            self._seen = now
            self._again = changed
            try:
                with History.open(self.directory.path, self.plan) as history:
                    self._latest = (self._look(history, changed=changed), None)
            except OrchestratorError as error:
                self._latest = ({}, str(error))
                self._drawn = True
            return True

    def _is_due(self, *, changed: bool) -> bool:
        """Whether the run must be looked at. ``changed``: whether its files have changed since the latest look."""
        draws = not self._drawn and self._clock() >= self._draw_at  # figures are not of the latest look
        if changed or draws or self._behind or self._unjudged or self._again:
            return True
        return self._running and not is_held(self.directory)  # it has ended: no file shows that

    def update(self, since: int) -> Update | None:
        """How the run stands, and those figures that are newer than ``since``; None before the first look."""
        if self._latest is None:
            return None
        standing, error = self._latest
        if error is not None:
            return since, {"error": error}
        version = self._version
        parts = self._parts
        if since > version:  # of another server
            since = 0
        newer = {}
        for id, (part_version, part) in parts.items():
            if part_version > since:
                newer[id] = part
        return version, {"present": standing, "parts": newer}

    def _look(self, history: History, *, changed: bool) -> Json:
        if self.story is None:
            self.story = Story(history.plan)
        story = self.story
        story.read(history)
        if self._rates is None:
            self._rates = rates_of(story.plan)
        self._running = story.status == "running"
        if not self._running:
            self._judge(history, changed=changed)
        self._draw(story)
        return present(story, self._results, self._rates)

    @property
    def _unjudged(self) -> bool:
        return not self._running and not self._behind and self._checked != self._seen

    def _judge(self, history: History, *, changed: bool) -> None:
        """Read the checks of an ended run from its summary, or make them after the look that found its end."""
        recorded = _recorded_checks(self.directory)
        if recorded is not None:
            self._results = recorded
            self._checked = self._seen
        elif self._unjudged and not changed:
            self._results = checks(history)
            self._checked = self._seen

    def _draw(self, story: Story) -> None:
        """Make the figures, and the checks of a running run: once a second, less often if that takes long."""
        self._drawn = not self._running or self._clock() >= self._draw_at
        if not self._drawn:
            return
        began = time.thread_time()
        if self._running and not story.behind:
            self._results = checks(story)
        drawn: Json = {**figures_of(story), "faults": faults_of(story)}
        changed = {}
        for id, part in drawn.items():
            _, before = self._parts.get(id, (0, None))
            if part != before:
                changed[id] = part
        if changed:
            now = int(time.time() * 1000)  # ms: above the versions of an earlier server
            version = max(self._version + 1, now)
            parts = dict(self._parts)
            for id, part in changed.items():
                parts[id] = (version, part)
            self._parts = parts
            self._version = version  # last: a watcher that reads it first has these parts, too
        spent = time.thread_time() - began
        pause = max(DRAW_EVERY, spent / DRAW_SHARE)
        self._draw_at = self._clock() + pause


class Following:
    """The runs that are watched. It belongs to one event loop. All watchers leave when ``closing`` is set."""

    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing
        self._readers: dict[str, Reader] = {}
        self._watchers: Counter[str] = Counter()
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._news: dict[str, asyncio.Condition] = {}
        self._looks: Counter[str] = Counter()  # that found something new

    def known_plan(self, directory: RunDirectory) -> Json | None:
        """The plan of a run that is watched already: it may be long. May be called in any thread."""
        reader = self._readers.get(str(directory.path))
        if reader is None:
            return None
        return reader.plan

    async def watch(self, directory: RunDirectory, since: int) -> AsyncIterator[Update | None]:
        """Updates of a run from a cursor on. None: nothing is new since ``ALIVE`` seconds."""
        key = str(directory.path)
        reader = self._enter(key, directory)
        try:
            news = True
            while not self._closing.is_set():
                looks = self._looks[key]  # one that ends while a watcher handles the last is news, too
                if news:
                    update = reader.update(since)
                    if update is not None:
                        since, _ = update
                        yield update
                else:
                    yield None
                news = await self._wait(key, looks)
        finally:
            self._leave(key)

    def _enter(self, key: str, directory: RunDirectory) -> Reader:
        reader = self._readers.pop(key, None) or Reader(directory)
        self._readers[key] = reader  # the latest is the last
        self._watchers[key] += 1
        if key not in self._looking:
            self._news[key] = asyncio.Condition()
            looking = self._look(key, reader)
            self._looking[key] = asyncio.create_task(looking)
        return reader

    def _leave(self, key: str) -> None:
        self._watchers[key] -= 1
        if not self._watchers[key]:
            self._looking.pop(key).cancel()
        idle = [watched for watched in self._readers if not self._watchers[watched]]
        excess = max(0, len(idle) - KEPT)
        for oldest in idle[:excess]:
            del self._readers[oldest]
            del self._watchers[oldest]
            del self._news[oldest]
            del self._looks[oldest]

    async def _wait(self, key: str, looks: int) -> bool:
        """Wait for news after so many looks, at most ``ALIVE`` seconds. Returns whether there are any."""

        def has_news() -> bool:
            return self._looks[key] != looks

        for _ in range(round(ALIVE / GLANCE)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GLANCE), self._news[key]:
                    await self._news[key].wait_for(has_news)
                    return True
            if self._closing.is_set():
                return True
        return False

    async def _look(self, key: str, reader: Reader) -> None:
        while True:
            if await asyncio.to_thread(reader.read):
                async with self._news[key]:
                    self._looks[key] += 1
                    self._news[key].notify_all()
            await asyncio.sleep(reader.pause)


def _recorded_checks(directory: RunDirectory) -> list[Check] | None:
    """The checks of a run that has ended, from its summary; None if they must be made."""
    summary = current_summary(directory) or {}
    rows = summary.get("checks")
    if not isinstance(rows, list):
        return None
    recorded = []
    for row in rows:
        if not isinstance(row, dict):
            return None
        if not Check.__required_keys__ <= row.keys():
            return None
        name = row["name"]
        check = Check(name=name, verdict=row["verdict"], detail=row["detail"])
        recorded.append(check)
    return recorded
