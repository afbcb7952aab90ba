"""What a run needs of this host, by its driver; looked at before anything is made."""

from __future__ import annotations

from orchestrator.drivers.base import entry_of
from orchestrator.errors import HostError
from orchestrator.host.descriptors import provide
from orchestrator.planning.plan import Plan


def require(plan: Plan, workers: int) -> None:
    """HostError that names all that this host lacks for the plan's driver, or if this process may not open as many
    files as the run needs."""
    entry = entry_of(plan.driver)
    found = entry.missing()
    if len(found) == 1:
        raise found[0]
    if found:
        raise HostError("\n".join(str(error) for error in found))
    provide(entry.open_files(plan, workers))
