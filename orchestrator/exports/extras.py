"""Libraries that only exports need. They are extras of edgebed, and are imported only when they are asked for."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from orchestrator.errors import RunError


def imported(module: str, extra: str) -> Any:
    """A module of a library. RunError if the library is not installed; ``extra`` is the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise _missing((error.name or module).partition(".")[0], extra) from None


def require(modules: tuple[str, ...], extra: str) -> None:
    """RunError if one of these modules is not installed. Imports none of them."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise _missing(module, extra)


def _missing(module: str, extra: str) -> RunError:
    return RunError(f"{extra} needs the package {module}, which is not installed: pip install 'edgebed[{extra}]'")
