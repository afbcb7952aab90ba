"""The command that checks the claims of papers, and archives of runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from orchestrator.cli.options import DriverChoice, is_verbose, json_option, print_json, printer, runs_option
from orchestrator.layout import open_console
from orchestrator.progress import logging_to
from orchestrator.scenario.sections.drivers import DRIVERS

if TYPE_CHECKING:
    from orchestrator.claims.reading import Paper


@click.command("reproduce")
@click.argument("names", metavar="[NAME]... | FILE.zip", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="Run nothing; list all claims with their recorded states.")
@click.option("--page", type=click.Path(path_type=Path, dir_okay=False), help="Run nothing; write the scoreboard here.")
@click.option("--cheap", is_flag=True, help="Check all claims that take less than five minutes.")
@click.option("--claims", type=click.Path(path_type=Path), help="The folder of claims; by default those of edgebed.")
@click.option(
    "--driver", type=DriverChoice(list(DRIVERS)), help="Run the nodes with this driver; by default as recorded."
)
@click.option("--workers", type=click.IntRange(1), help="As for `up`.")
@click.option("--trust", is_flag=True, help="Also run the plug-ins, programs and images of an archive.")
@runs_option
@json_option
def reproduce_claims(
    names: tuple[str, ...],
    listed: bool,
    page: Path | None,
    cheap: bool,
    claims: Path | None,
    driver: str | None,
    workers: int | None,
    trust: bool,
    runs: Path,
    as_json: bool,
) -> None:
    """Check claims of papers, or an archive of runs: run each claim NAME, or all runs in FILE.zip, and compare.

    Complete runs of claims are not repeated. The exit code is 0 if every claim has the recorded state, and 3 if not.
    The exit code for an archive is 0 if it is confirmed, 1 if not, 4 if a run cannot be repeated on this host, and 2
    if the archive is refused.
    """
    from orchestrator.claims import page as scoreboard
    from orchestrator.claims.reading import FOLDER, find, load
    from orchestrator.claims.rows import recorded_rows, reproduce
    from orchestrator.host.places import check_file, check_folder
    from orchestrator.record.directory import write_whole

    if names and names[0].lower().endswith(".zip"):
        has_other_options = listed or page or cheap or claims or driver
        if len(names) > 1 or has_other_options:
            raise click.UsageError(
                "an archive takes no claims or other options: name one file, with --trust, --workers and --runs only"
            )
        _reproduce_archive(Path(names[0]), runs, trust=trust, workers=workers, as_json=as_json)
    if trust:
        raise click.UsageError("--trust is for an archive: name its FILE.zip")
    tasks = (bool(names or cheap), listed, page is not None)
    if sum(tasks) != 1:
        raise click.UsageError("name claims, or choose one of --cheap, --list and --page FILE")
    papers = load(claims or FOLDER)
    if page is not None:
        check_file(page, "choose another place for the scoreboard")
        page.parent.mkdir(parents=True, exist_ok=True)
        write_whole(page, scoreboard.page(papers))
        if as_json:
            print_json({"file": str(page)})
        return
    if listed:
        rows = recorded_rows(papers)
        if as_json:
            print_json({"claims": [row.to_json() for row in rows]})
        else:
            scoreboard.print_list(rows, open_console())
        return
    chosen = list(names)
    if cheap:
        chosen += _cheap(papers)
    claims_to_check = [(find(papers, name), name) for name in dict.fromkeys(chosen)]
    check_folder(runs, "choose another folder for runs")
    tell = printer(err=as_json)
    checked = []
    with contextlib.nullcontext() if is_verbose() else logging_to(tell):
        for paper, name in claims_to_check:
            row = reproduce(paper, name, runs, driver=driver, workers=workers, tell=tell)
            checked.append(row)
            if not as_json:
                scoreboard.print_row(row, open_console())
    if as_json:
        print_json({"claims": [row.to_json() for row in checked]})
    as_recorded = all(row.as_recorded for row in checked)
    sys.exit(0 if as_recorded else 3)


def _cheap(papers: Iterable[Paper]) -> list[str]:
    """The names of the claims that take less than five minutes."""
    names = []
    for paper in papers:
        for name, claim in paper.read.claims.items():
            if claim.cheap:
                names.append(name)
    return names


def _reproduce_archive(
    file: Path,
    runs: Path,
    *,
    trust: bool,
    workers: int | None,
    as_json: bool,
) -> NoReturn:
    from orchestrator.archive.reproduction import EXIT_CODE_OF_STATE, print_reproduction, repeat

    tell = printer(err=as_json)
    with contextlib.nullcontext() if is_verbose() else logging_to(tell):
        result = repeat(file, runs, trust=trust, workers=workers, tell=tell)
    if as_json:
        print_json(result.to_json())
    else:
        print_reproduction(result, open_console())
    sys.exit(EXIT_CODE_OF_STATE[result.state])
