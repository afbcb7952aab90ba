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
    from orchestrator.record.rows import Event
    from orchestrator.scenario.typed import CrossTraffic, Fault, Link, Medium, Scenario
    from orchestrator.sweep.python import SweepRuns, sweep
    from orchestrator.verbs.handle import Handle, start
    from orchestrator.verbs.python_interface import Run, compare, load, runs, up
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

_NAMES = {
    "orchestrator.archive.reproduction": "Reproduction reproduce",
    "orchestrator.archive.writing": "archive",
    "orchestrator.record.rows": "Event",
    "orchestrator.scenario.typed": "CrossTraffic Fault Link Medium Scenario",
    "orchestrator.sweep.python": "SweepRuns sweep",
    "orchestrator.verbs.handle": "Handle start",
    "orchestrator.verbs.python_interface": "Run compare load runs up",
    "orchestrator.verbs.sources": "plan validate",
}
_MODULES: dict[str, str] = {}
for _module, _names in _NAMES.items():
    _MODULES |= dict.fromkeys(_names.split(), _module)


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
        module = import_module(modules[name])
        value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
