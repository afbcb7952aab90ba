"""``python -m orchestrator``: the process of a command, from its first moment to its exit code.

Little is imported here at first: a signal that comes while the rest is being imported ends the command in order too.
The very first thing is to leave the working directory, or modules would be looked for there.
"""

from __future__ import annotations

from orchestrator.host.python import leave_working_directory

leave_working_directory()

import os  # noqa: E402
import sys  # noqa: E402
from typing import NoReturn  # noqa: E402

from orchestrator.host import signals, streams  # noqa: E402


def main() -> NoReturn:
    """Carry out the command line. What is raised on purpose is one message and an exit code, never a traceback."""
    streams.survive_readers()
    signals.raise_on_signals()
    try:
        code = _command()
    except BaseException:
        if not signals.interrupted():  # an interrupted import, for one, may end in another error
            raise
        print("error: interrupted", file=sys.stderr)
        code = signals.INTERRUPTED
    signals.ignore_signals()
    sys.stdout.flush()
    if (lost := streams.lost_output()) is not None:
        print(f"error: standard output cannot be written ({lost.strerror})", file=sys.stderr)
        code = code or 1
    sys.stderr.flush()
    if "torch" in sys.modules:
        os._exit(code)  # taking torch down object by object takes half a second
    sys.exit(code)


def _command() -> int:
    from orchestrator.cli import carry_out
    from orchestrator.host.commands import extend_path

    extend_path()
    return carry_out()


if __name__ == "__main__":
    main()
