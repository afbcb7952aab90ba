"""The module search path of edgebed's Python processes. It leaves out the working directory, because a user's files
there may have the names of edgebed's modules or of libraries.

This module imports only modules that Python itself has loaded: `leave_working_directory` runs before all other imports.
"""

from __future__ import annotations

import os
import sys

_process = os.path.dirname(os.path.abspath(__file__))
_host = os.path.dirname(_process)
_orchestrator = os.path.dirname(_host)
ROOT = os.path.dirname(_orchestrator)
"""The folder that contains edgebed's packages."""

_START = (
    "import sys; sys.path[:] = sys.argv.pop(1).splitlines(); import runpy;"
    " runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def leave_working_directory() -> None:
    """Remove the working directory from this process's module search path. `python -m` puts it there, and so does an
    empty entry of PYTHONPATH. It stays if it contains edgebed's packages, or if PYTHONPATH names it."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # a directory that no longer exists is not on the path
        return
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    named = [os.path.abspath(entry) for entry in entries if entry]
    if here in named or os.path.samefile(here, ROOT):
        return
    sys.path[:] = [entry for entry in sys.path if entry != here]


def module(name: str, *arguments: str) -> list[str]:
    """The argv that runs a module like `python -m`, with this process's module search path. The path is passed as an
    argument, because not every way into a namespace passes on the environment."""
    path = "\n".join(sys.path)
    return [sys.executable, "-P", "-c", _START, path, name, *arguments]
