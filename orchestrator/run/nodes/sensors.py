"""What hosts tell about themselves while a run trains, in the record. Not under virtual clocks, which never wait.

The agents of a run on several hosts read the sensors of their hosts, under the names of the hosts. The sensors of the
orchestrator's host are read here, unless nodes live there: then its agent reads them, and nothing is told twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from orchestrator.drivers.base import Driver, UsesHosts
from orchestrator.host.sensors.sensing import Sensing
from orchestrator.run.context import RunContext
from orchestrator.run.nodes.session import Session

THIS_HOST = ""


@contextlib.asynccontextmanager
async def sensed(run: RunContext, session: Session, driver: Driver, *, virtual: bool) -> AsyncIterator[None]:
    """Read the sensors once a second while the body runs, and all of them at its beginning and at its end."""
    others = driver if isinstance(driver, UsesHosts) else None
    here = None
    if not virtual and (others is None or not others.here):
        here = Sensing(
            lambda readings: run.record.sensors(run.clock(), THIS_HOST, readings),
            lambda said: run.note("note", {"text": said}),
        )
        await here.begin()
        session.spawn(here.forever())
    if others is not None:
        await others.sense()
    try:
        yield
    finally:
        if here is not None:
            await here.sense(everything=True)
        if others is not None:
            await others.sense()
