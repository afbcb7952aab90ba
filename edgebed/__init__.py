"""The public interface of edgebed: run scenarios and sweeps, and read their results. Only the names in ``__all__`` are
stable. `edgebed.plugin` has the names for plug-ins, which can also be imported from here.

Each name is imported at its first use, so ``import edgebed`` is fast and needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgebed import plugin
    from edgebed.plugin import *  # noqa: F403
    from orchestrator.archive.reproduction import Reproduction, reproduce
    from orchestrator.archive.writing import archive
    from orchestrator.results.record.rows import Event
    from orchestrator.scenario.typed import CrossTraffic, Fault, Link, Medium, Scenario
    from orchestrator.sweep.python import SweepRuns, sweep
    from orchestrator.verbs.handle import Handle, start
    from orchestrator.verbs.runs import Run, compare, load, runs, up
    from orchestrator.verbs.sources import plan, validate

    __version__: str

__all__ = [
    "CrossTraffic",
    "Event",
    "Fault",
    "Handle",
    "Link",
    "Medium",
    "Reproduction",
    "Run",
    "Scenario",
    "SweepRuns",
    "__version__",
    "archive",
    "compare",
    "load",
    "plan",
    "plugin",
    "reproduce",
    "runs",
    "start",
    "sweep",
    "up",
    "validate",
]

_MODULES = {
    "CrossTraffic": "orchestrator.scenario.typed",
    "Event": "orchestrator.results.record.rows",
    "Fault": "orchestrator.scenario.typed",
    "Handle": "orchestrator.verbs.handle",
    "Link": "orchestrator.scenario.typed",
    "Medium": "orchestrator.scenario.typed",
    "Reproduction": "orchestrator.archive.reproduction",
    "Run": "orchestrator.verbs.runs",
    "Scenario": "orchestrator.scenario.typed",
    "SweepRuns": "orchestrator.sweep.python",
    "archive": "orchestrator.archive.writing",
    "compare": "orchestrator.verbs.runs",
    "load": "orchestrator.verbs.runs",
    "plan": "orchestrator.verbs.sources",
    "reproduce": "orchestrator.archive.reproduction",
    "runs": "orchestrator.verbs.runs",
    "start": "orchestrator.verbs.handle",
    "sweep": "orchestrator.sweep.python",
    "up": "orchestrator.verbs.runs",
    "validate": "orchestrator.verbs.sources",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("edgebed")
    from importlib import import_module

    if name == "plugin":
        return import_module("edgebed.plugin")
    modules = _MODULES | import_module("edgebed.plugin").MODULES
    if name not in modules:
        raise AttributeError(f"module 'edgebed' has no attribute {name!r}; it has {', '.join(__all__)}")
    from edgebed.packages import explained

    with explained(f"edgebed.{name}"):
        value = globals()[name] = getattr(import_module(modules[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
