"""Run a command in a node of a guest: `python -m orchestrator.drivers.virtual.enter FOLDER NODE COMMAND...`.

The run's orchestrator on this host passes the command on. Its standard input is read to the end first, unless that is a
terminal; its output, and its errors with it, come as they are written.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from pathlib import Path
from typing import Any

from orchestrator.drivers.virtual.guest import FOLDER
from orchestrator.host.process.user_socket import ask
from orchestrator.record.directory import RunDirectory

LOOK_EVERY = 0.05  # s between two looks at the output


def main() -> int:
    directory = RunDirectory(Path(sys.argv[1]))
    node = sys.argv[2]
    argv = sys.argv[3:]
    folder = directory.path / FOLDER
    name = f"command-{secrets.token_hex(4)}"
    given = folder / f"{name}.in"
    output = folder / f"{name}.out"
    if sys.stdin.isatty():
        given.touch(mode=0o600)
    else:
        given.write_bytes(sys.stdin.buffer.read())
    output.touch(mode=0o600)
    reply: dict[str, Any] = {}

    def request() -> None:
        order = {"op": "run", "node": node, "argv": argv, "files": name}
        reply.update(ask(directory.commands, order) or {"error": "the run has ended"})

    asking = threading.Thread(target=request, daemon=True)
    asking.start()
    try:
        with output.open("rb") as written:
            while asking.is_alive():
                _copy(written.read())
                time.sleep(LOOK_EVERY)
            _copy(written.read())
    finally:
        given.unlink(missing_ok=True)
        output.unlink(missing_ok=True)
    if "error" in reply:
        print(f"error: {reply['error']}", file=sys.stderr)
        return 1
    code = int(reply.get("code", 1))
    return code if code >= 0 else 128 - code


def _copy(data: bytes) -> None:
    if data:
        os.write(1, data)


if __name__ == "__main__":
    sys.exit(main())
