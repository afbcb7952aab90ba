"""The public interface of edgebed. Only the names in ``__all__`` are stable.

Each name is imported at its first use, so ``import edgebed`` is fast and needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from node.algorithms.registry import Algorithm
    from node.messaging.wire import Message
    from node.parameters import Parameters
    from node.role import Role
    from orchestrator.verbs.runs import Run, load, up

    __version__: str

__all__ = ["Algorithm", "Message", "Parameters", "Role", "Run", "__version__", "load", "up"]

_MODULES = {
    "Algorithm": "node.algorithms.registry",
    "Message": "node.messaging.wire",
    "Parameters": "node.parameters",
    "Role": "node.role",
    "Run": "orchestrator.verbs.runs",
    "load": "orchestrator.verbs.runs",
    "up": "orchestrator.verbs.runs",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("edgebed")
    if name not in _MODULES:
        raise AttributeError(f"module 'edgebed' has no attribute {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
