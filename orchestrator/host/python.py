"""How a Python process of ours finds its modules: never in the working directory, where files of the user may have the
names of ours and of the libraries.

It imports no more than Python itself has loaded: `leave_working_directory` comes before every other import.
"""

from __future__ import annotations

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder that our packages lie in."""

_START = (
    "import sys; sys.path[:] = sys.argv.pop(1).splitlines(); import runpy;"
    " runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def leave_working_directory() -> None:
    """Take the working directory out of this process's module search path: `python -m` puts it first, and an empty
    entry of PYTHONPATH stands for it.

    It stays if our packages lie in it, or if PYTHONPATH names it.
    """
    try:
        here = os.getcwd()
    except FileNotFoundError:  # a directory that is gone is not on the path
        return
    named = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if here not in named and not os.path.samefile(here, ROOT):
        sys.path[:] = [entry for entry in sys.path if entry != here]


def module(name: str, *arguments: str) -> list[str]:
    """The argv that runs a module as `python -m` does, in a process with the module search path of this one.

    The path is an argument: not every way into a namespace hands on the environment.
    """
    return [sys.executable, "-P", "-c", _START, "\n".join(sys.path), name, *arguments]
