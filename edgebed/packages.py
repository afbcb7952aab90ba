"""Errors in one sentence, if edgebed's own packages cannot be imported.

edgebed consists of the packages ``edgebed``, ``netem``, ``node`` and ``orchestrator``, in one folder. A user's file
``node.py``, or another distribution's package ``node``, may come earlier on Python's module search path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

PACKAGES = ("netem", "node", "orchestrator")
FOLDER = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def check(*names: str) -> None:
    """ImportError if Python finds another module under the name of one of these packages. Imports none."""
    for name in names:
        place = _place(name)
        if place is not None and os.path.realpath(place) != os.path.join(FOLDER, name):
            installed = {"site-packages", "dist-packages"} & set(place.split(os.sep))
            remedy = "install edgebed in a virtual environment of its own" if installed else "rename it"
            raise ImportError(f"{place} hides edgebed's package {name!r}: {remedy}")


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Imports of edgebed's packages for ``what``. ImportError if another module hides one, or if PyTorch is missing."""
    check(*PACKAGES)
    try:
        yield
    except ModuleNotFoundError as error:
        from node.errors import lacking

        if (reason := lacking(error)) is None:
            raise
        raise ImportError(f"{what} {reason}") from None


def _place(name: str) -> str | None:
    """The file of a module, or the folder of a package. None if there is none."""
    try:
        spec = find_spec(name)
    except ValueError:  # it is imported already, and has no spec
        return None
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    return folders[0] if folders else spec.origin
