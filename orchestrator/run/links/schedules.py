"""Make links, and channels of shared media, follow their schedules while the run trains.

One coroutine changes all links that have the same schedule over the same profile. The link engine makes every change
in place, and the lateness of the change is measured at each link. If the engine or this host is late, changes
that a later change has overtaken are skipped and counted, so lateness does not add up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from netem.schedules.schedule import Change
from orchestrator.errors import OrchestratorError
from orchestrator.planning.plan import Plan
from orchestrator.record.events.links import ScheduleFailed, ScheduleStep
from orchestrator.results.courses import Course, changes_since, courses
from orchestrator.run.links.media import Media
from orchestrator.run.links.states import Links
from orchestrator.scenario.sections.topology import Ends

MOST_RECORDED = 2000  # changes recorded one by one, in equal shares for the courses; the others only as sums
MOST_RECORDED_EACH = 100  # most changes recorded for one course, and most failures
QUIET = 3600.0  # s without a message from a node, after which schedules wait for one; see `Schedules.message_arrived`
AT_ONCE = 16  # links changed at the same time


class Schedules:
    """Runs the schedules on asyncio's clock. ``note`` is called with the event of each change.
    ``spawn`` runs a coroutine, handles its errors, and cancels it at the end."""

    def __init__(
        self,
        plan: Plan,
        links: Links,
        media: Media,
        note: Callable[[ScheduleStep | ScheduleFailed], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self.courses = courses(plan.links, plan.media)
        self._links = links
        self._media = media
        self._note = note
        self._spawn = spawn
        share = MOST_RECORDED // max(1, len(self.courses))
        self._events_each = min(MOST_RECORDED_EACH, share)
        self._going = True
        self._last_message = 0.0
        self._stirred = asyncio.Event()

    def begin(self, elapsed: float = 0.0) -> None:
        """Start the schedules, ``elapsed`` seconds into training. Their times count from the start of training."""
        began = asyncio.get_running_loop().time() - elapsed
        self.message_arrived()
        for number, course in enumerate(self.courses):
            all_changes = course.schedule.changes(course.link.profile)
            changes = changes_since(elapsed, all_changes)
            running = self._run(course, changes, f"schedule {number}", began)
            self._spawn(running)

    def message_arrived(self) -> None:
        """Note that a node has sent a message. Schedules wait while no node sends one: if all nodes waited for ever, a
        repeating schedule would keep a virtual clock going, and the deadlock would not be found."""
        self._last_message = asyncio.get_running_loop().time()
        self._stirred.set()

    def end(self) -> list[Course]:
        """Stop the schedules and return their courses. The links stay as they are."""
        self._going = False
        return self.courses

    async def _run(
        self,
        course: Course,
        changes: Iterator[Change],
        cause: str,
        began: float,
    ) -> None:
        loop = asyncio.get_running_loop()
        change = next(changes, None)
        last = Change(0.0, course.link.profile)
        while change is not None and self._going:
            due = began + change.at
            await asyncio.sleep(max(0.0, due - loop.time()))
            slept = await self._sleep_while_quiet()
            following = next(changes, None)
            while following is not None and began + following.at <= loop.time():
                if following.at > change.at and not slept:
                    course.overtaken += 1
                change = following
                following = next(changes, None)
            is_same = change.profile == last.profile and change.cut == last.cut
            if self._going and not is_same:
                await self._make(course, change, cause, began)
                last = change
            change = following

    async def _sleep_while_quiet(self) -> bool:
        if asyncio.get_running_loop().time() - self._last_message <= QUIET:
            return False
        self._stirred.clear()
        await self._stirred.wait()
        return True

    async def _make(
        self,
        course: Course,
        change: Change,
        cause: str,
        began: float,
    ) -> None:
        latest = 0.0
        for first in range(0, len(course.pairs), AT_ONCE):
            pairs = course.pairs[first : first + AT_ONCE]
            changing = [self._make_one(course, pair, change, cause, began) for pair in pairs]
            lateness = await asyncio.gather(*changing)
            latest = max(latest, *lateness)
        course.changes += 1
        if course.changes <= self._events_each:
            became = "cut" if change.cut else change.profile.describe()
            step = ScheduleStep(course.name, change.at, latest, became)
            self._note(step)

    async def _make_one(
        self,
        course: Course,
        pair: Ends,
        change: Change,
        cause: str,
        began: float,
    ) -> float:
        """Change one link and return how late the change was, in seconds."""
        try:
            if course.channel is None:
                await self._links.follow(pair, change.profile, cause, cut=change.cut)
            else:
                await self._follow_on_channel(course.channel, change, cause)
        except OrchestratorError as error:
            course.failures += 1
            if course.failures <= MOST_RECORDED_EACH:
                failed = ScheduleFailed(" → ".join(pair), change.at, str(error))
                self._note(failed)
        now = asyncio.get_running_loop().time()
        lateness = now - began - change.at
        late = max(0.0, round(lateness, 9))
        course.lateness.add(late)
        return late

    async def _follow_on_channel(self, channel: str, change: Change, cause: str) -> None:
        await self._media.follow(channel, change.profile)
        if change.cut:
            await self._links.close([channel], cause)
        else:
            await self._links.lift(cause)
