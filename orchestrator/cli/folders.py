"""Commands about the folders of runs: list them, wait for the end of a run, open its report, remove runs."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from orchestrator import text
from orchestrator.cli.options import is_quiet, json_option, print_json, run_argument, runs_option
from orchestrator.layout import Cell, open_console, print_error, write_table
from orchestrator.results.checks.verdicts import STYLES


@click.command("ls")
@runs_option
@json_option
def list_folders(runs: Path, as_json: bool) -> None:
    """List the runs in the folder of runs, with their verdict, accuracy, duration and start; the latest first."""
    from orchestrator.results.listing import Listing

    rows = Listing(runs).rows()
    if as_json:
        print_json({"runs": rows})
    elif rows:
        headings = ("run", "verdict", "accuracy", "rounds", "time", "started")
        write_table(open_console(), headings, map(_cells, rows), right={2, 3, 4})
    else:
        click.echo(f"there is no run in {runs}: start one with `up SCENARIO`")


def _cells(row: dict[str, Any]) -> list[Cell]:
    finished = row["status"] == "finished"
    if finished and row["verdict"]:
        verdict = Text(row["verdict"], style=STYLES[row["verdict"]])
    else:
        verdict = row["status"]
    accuracy = row["accuracy"]
    rounds = row["rounds"]
    seconds = row["seconds"]
    start = ""
    if row["began"]:
        began = time.localtime(row["began"])
        start = time.strftime("%Y-%m-%d %H:%M", began)
    return [
        row["run"],
        verdict,
        "" if accuracy is None else text.percent(accuracy),
        "" if rounds is None else str(rounds),
        "" if seconds is None else text.duration(seconds),
        start,
    ]


@click.command("wait")
@run_argument
@runs_option
@json_option
def wait_for_run(run: str | None, runs: Path, as_json: bool) -> None:
    """Wait until RUN has ended, by default the latest; print its summary, and return its exit code."""
    from orchestrator.record.damage import using_record
    from orchestrator.record.directory import find_run
    from orchestrator.results.printed import print_summary
    from orchestrator.verbs.results.folders import conclusion, follow_to_end

    directory = find_run(run, runs)
    shown = not as_json and not is_quiet()
    for piece in follow_to_end(directory):
        if shown:
            click.echo(text.visible(piece), nl=False, err=True)
    summary, code = conclusion(directory)
    if as_json:
        print_json(summary)
    else:
        with using_record(directory.path):
            print_summary(summary, directory.report, open_console())
    if summary["error"]:
        print_error(summary["error"])
    sys.exit(code)


@click.command("open")
@run_argument
@runs_option
@json_option
def open_report(run: str | None, runs: Path, as_json: bool) -> None:
    """Open the report of RUN in a browser, by default of the latest run; without a display print its path."""
    from orchestrator.record.directory import find_run
    from orchestrator.report.judgement import judge

    directory = find_run(run, runs)
    if not directory.report.exists() or directory.holder() is not None:
        judge(directory)
    opened = _has_display() and webbrowser.open(directory.report.as_uri())
    if as_json:
        print_json({"run": directory.run, "report": str(directory.report), "opened": opened})
    else:
        click.echo(directory.report)


def _has_display() -> bool:
    if sys.platform == "darwin":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@click.command("rm")
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@runs_option
@json_option
def remove_runs(
    names: tuple[str, ...],
    yes: bool,
    runs: Path,
    as_json: bool,
) -> None:
    """Remove the folder of each RUN, with its record and report; a running run is refused."""
    from orchestrator.verbs.results.folders import removable, remove

    directories = removable(list(names), runs)
    if not yes and on_terminal():
        listed = "".join(f"  {directory.run}\n" for directory in directories)
        click.echo(listed, nl=False, err=True)
        count = text.count(len(directories), "run")
        if not click.confirm(f"remove {count} for good?", err=True):
            sys.exit(1)
    for directory in directories:
        remove(directory)
        if not as_json:
            click.echo(f"{directory.run}: removed")
    if as_json:
        print_json({"removed": [directory.run for directory in directories]})


def on_terminal() -> bool:
    """Whether a person can answer a question."""
    return sys.stdin.isatty()
