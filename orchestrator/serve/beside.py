"""The page of a run that `up` starts: a process of its own, separate from the orchestrator."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

from orchestrator.host.process.python import module
from orchestrator.record.directory import RunDirectory

CLOSES = 5  # s


class Page:
    """The page of the runs in a folder. ``process`` serves it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def announce(self, directory: RunDirectory) -> None:
        """Print the address of a run's page on standard error. A page that could not be opened is a warning."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline() or '{"error": "its process ended"}'
        greeting = json.loads(line)
        if "error" in greeting:
            print(f"warning: there is no page of this run: {greeting['error']}", file=sys.stderr, flush=True)
            return
        path = f"/run/{quote(directory.run)}"
        address = urlsplit(greeting["address"])._replace(path=path)
        print(f"page of this run: {address.geturl()}", file=sys.stderr, flush=True)

    def keep(self) -> None:
        """Wait for Ctrl-C."""
        if self._process.poll() is None:
            with contextlib.suppress(KeyboardInterrupt):
                print("the page stays until Ctrl-C", file=sys.stderr, flush=True)
                self._process.wait()


@contextlib.contextmanager
def page_of(runs: Path) -> Iterator[Page]:
    """The page of the runs in a folder, during the body."""
    process = subprocess.Popen(
        module("orchestrator.serve", str(runs.absolute())),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C in a terminal reaches only the orchestrator
    )
    try:
        yield Page(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(CLOSES)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
