"""``python -m orchestrator``: the process of a command, from its first moment to its exit code.

This module imports little at first, so a signal during the later imports also ends the command in order.
It leaves the working directory before anything else: otherwise Python would search for modules there.
"""

from __future__ import annotations

from orchestrator.host.process.python import leave_working_directory

leave_working_directory()

import os  # noqa: E402
import sys  # noqa: E402
from typing import NoReturn  # noqa: E402

from orchestrator.host.process import signals, streams  # noqa: E402


def main() -> NoReturn:
    """Execute the command line. An error raised on purpose becomes one message and an exit code, not a traceback."""
    streams.survive_readers()
    try:
        signals.raise_on_signals()
        code = _command()
    except BaseException as error:
        # An interrupted import, for example, may raise another error.
        if not signals.interrupted() and not isinstance(error, KeyboardInterrupt):
            raise
        print("error: interrupted", file=sys.stderr)
        code = signals.INTERRUPTED
    signals.ignore_signals()
    sys.stdout.flush()
    lost = streams.lost_output()
    if lost is not None:
        print(f"error: standard output cannot be written ({lost.strerror})", file=sys.stderr)
        code = code or 1
    sys.stderr.flush()
    # Threads and exit functions of plug-ins could keep the process, and destroying torch takes half a second.
    os._exit(code)


def _command() -> int:
    from orchestrator.cli.main import carry_out
    from orchestrator.host.commands import extend_path

    extend_path()
    return carry_out()


if __name__ == "__main__":
    main()
