"""The requirements of a run on this host, by its driver, checked before anything is made."""

from __future__ import annotations

from orchestrator.drivers.base import entry_of
from orchestrator.errors import HostError
from orchestrator.host.descriptors import provide
from orchestrator.planning.plan import Plan


def require(plan: Plan, workers: int) -> None:
    """Check this host for a plan. HostError names everything that this host lacks for the plan's driver, or says that
    this process may not open as many files as the run needs."""
    entry = entry_of(plan.driver)
    found = entry.missing(plan)
    if len(found) == 1:
        raise found[0]
    if found:
        raise HostError("\n".join(str(error) for error in found))
    provide(entry.open_files(plan, workers))
