"""The readings of the hosts' sensors while a run trains, in the record. Not under virtual clocks, which never wait.

The agents of a run on several hosts read the sensors of their hosts, under the names of the hosts. The sensors of the
orchestrator's host are read here, unless nodes run there: then its agent reads them, so no reading is recorded twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from orchestrator.drivers.base import Driver, UsesHosts
from orchestrator.host.sensors.sensing import Sensing
from orchestrator.host.sensors.sensor import Reading
from orchestrator.run.context import RunContext
from orchestrator.run.nodes.session import Session

THIS_HOST = ""


@contextlib.asynccontextmanager
async def sensed(
    run: RunContext,
    session: Session,
    driver: Driver,
    *,
    virtual: bool,
) -> AsyncIterator[None]:
    """Read the sensors once a second while the body runs, and all of them at its start and at its end."""
    agents = driver if isinstance(driver, UsesHosts) else None
    agent_is_here = agents is not None and agents.here

    def record(readings: Sequence[Reading]) -> None:
        run.record.sensors(run.clock(), THIS_HOST, readings)

    here = None
    if not virtual and not agent_is_here and not run.plan.driver_kind.virtual:
        here = Sensing(record, run.note)
        await here.begin()
        session.spawn(here.forever())
    if agents is not None:
        await agents.sense()
    try:
        yield
    finally:
        if here is not None:
            await here.sense(everything=True)
        if agents is not None:
            await agents.sense()
