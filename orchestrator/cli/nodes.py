"""Commands inside the nodes of a running run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import click

from orchestrator.cli.options import json_option, print_json, run_option, runs_option

SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash || exec sh")


@click.command("exec")
@click.argument("node")
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True)
@run_option()
@runs_option
@json_option
def run_inside(
    node: str,
    command: tuple[str, ...],
    run: str | None,
    runs: Path,
    as_json: bool,
) -> None:
    """Run COMMAND inside NODE of a running run, with the node's network and files, and return its exit code.

    \b
    exec device-0 -- ip addr
    exec device-0 -- ping -c 3 10.77.0.1
    """
    from orchestrator.record.directory import find_run
    from orchestrator.verbs.live.inside import entry

    directory = find_run(run, runs)
    if not as_json:
        prefix, variables = entry(directory, node, terminal=_on_terminal())
        _become([*prefix, *command], variables)
    prefix, variables = entry(directory, node)
    environment = os.environ | variables
    done = subprocess.run([*prefix, *command], env=environment, capture_output=True, check=False)
    code = done.returncode
    facts = {
        "run": directory.run,
        "node": node,
        "command": list(command),
        "code": code,
        "stdout": done.stdout.decode(errors="replace"),
        "stderr": done.stderr.decode(errors="replace"),
    }
    print_json(facts)
    killed_by_signal = code < 0
    sys.exit(128 - code if killed_by_signal else code)


@click.command("shell")
@click.argument("node")
@run_option()
@runs_option
def open_shell(node: str, run: str | None, runs: Path) -> None:
    """Open a shell inside NODE of a running run, with the node's network and files."""
    from orchestrator.record.directory import find_run
    from orchestrator.verbs.live.inside import entry

    directory = find_run(run, runs)
    prefix, variables = entry(directory, node, terminal=_on_terminal())
    _become([*prefix, *SHELL], variables)


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _become(argv: list[str], variables: Mapping[str, str]) -> NoReturn:
    """Replace this process, so that the terminal, the signals and the exit code are those of the command."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and so would the command
    os.execvpe(argv[0], argv, os.environ | variables)
