"""Errors in one sentence, if edgebed's own packages cannot be imported.

edgebed consists of the packages ``edgebed``, ``netem``, ``node`` and ``orchestrator``, in one folder. A user's file
``node.py``, or another distribution's package ``node``, may come earlier on Python's module search path. Or pip has
installed files of another distribution over those of edgebed.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

PACKAGES = ("netem", "node", "orchestrator")
_OWN_FOLDER = os.path.dirname(os.path.realpath(__file__))
FOLDER = os.path.dirname(_OWN_FOLDER)


@cache  # of success only
def check(*names: str) -> None:
    """ImportError if Python finds others' files under the name of one of these packages. Imports none."""
    for name in names:
        place = _place(name)
        own_place = os.path.join(FOLDER, name)
        if place is not None and os.path.realpath(place) != own_place:
            folders = place.split(os.sep)
            if "site-packages" in folders or "dist-packages" in folders:
                remedy = "install edgebed in a virtual environment of its own"
            else:
                remedy = "rename it"
            raise ImportError(f"{place} hides edgebed's package {name!r}: {remedy}")
        file = _overwritten(name)
        if file is not None:
            remedy = f"pip uninstall {name}, then reinstall edgebed"
            raise ImportError(f"the installed package {name!r} has overwritten edgebed's {file}: {remedy}")


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Imports of edgebed's packages for ``what``. ImportError if another module hides one, or if PyTorch is missing."""
    check(*PACKAGES)
    try:
        yield
    except ModuleNotFoundError as error:
        from node.extras import lacking

        reason = lacking(error)
        if reason is None:
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
    if folders:
        return folders[0]
    return spec.origin


def _overwritten(name: str) -> str | None:
    """A file of edgebed that another distribution of this name has installed too, if it has another size now."""
    theirs = _sizes(name)
    if not theirs:
        return None
    for file, size in _sizes("edgebed").items():
        if file in theirs and os.path.getsize(file) != size:
            return file
    return None


def _sizes(distribution: str) -> dict[str, int]:
    """The files that a distribution has installed in edgebed's folder, with their sizes in bytes, by pip's RECORD."""
    sizes = {}
    for record in glob.glob(f"{FOLDER}/{distribution}-*.dist-info/RECORD"):
        with open(record, encoding="utf-8") as lines:
            for line in lines:
                file, _, size = line.rstrip().rsplit(",", 2)
                if size and file.endswith(".py"):
                    path = os.path.join(FOLDER, file)
                    sizes[path] = int(size)
    return sizes
