"""The command that checks the claims of papers."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import click

from orchestrator.cli.options import is_verbose, json_option, print_json, printer, runs_option
from orchestrator.layout import open_console
from orchestrator.progress import logging_to
from orchestrator.scenario.sections.drivers import DRIVERS


@click.command("reproduce")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="Run nothing; list all claims with their recorded states.")
@click.option("--page", type=click.Path(path_type=Path, dir_okay=False), help="Run nothing; write the scoreboard here.")
@click.option("--cheap", is_flag=True, help="Check all claims that take less than five minutes.")
@click.option("--claims", type=click.Path(path_type=Path), help="The folder of claims; by default those of edgebed.")
@click.option(
    "--driver", type=click.Choice(list(DRIVERS)), help="Run the nodes with this driver; by default as recorded."
)
@click.option("--workers", type=click.IntRange(1), help="As for `up`.")
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
    runs: Path,
    as_json: bool,
) -> None:
    """Check claims of papers: run the sweep of each claim NAME, and compare its figures; complete runs are kept.

    The exit code is 0 if every state is as recorded, and 3 if not.
    """
    from orchestrator.claims import page as scoreboard
    from orchestrator.claims.reading import FOLDER, find, load
    from orchestrator.claims.rows import recorded_rows, reproduce
    from orchestrator.host.directory import write_whole
    from orchestrator.host.places import check_folder

    if not names and not (listed or page or cheap):
        raise click.UsageError("name a claim, or choose --list, --cheap or --page FILE")
    papers = load(claims or FOLDER)
    if page is not None:
        write_whole(page, scoreboard.page(papers))
    if listed:
        rows = recorded_rows(papers)
        print_json({"claims": [each.to_json() for each in rows]}) if as_json else scoreboard.print_list(
            rows, open_console()
        )
    chosen = [*names, *(name for each in papers for name, claim in each.read.claims.items() if cheap and claim.cheap)]
    if not chosen:
        return
    check_folder(runs, "choose another folder for runs")
    found, tell = [(find(papers, name), name) for name in dict.fromkeys(chosen)], printer(err=as_json)
    with contextlib.nullcontext() if is_verbose() else logging_to(tell):
        rows = [reproduce(paper, name, runs, driver=driver, workers=workers, tell=tell) for paper, name in found]
    if as_json:
        print_json({"claims": [each.to_json() for each in rows]})
    else:
        for each in rows:
            scoreboard.print_row(each, open_console())
    codes = {each.exit_code for each in rows}
    sys.exit(next((code for code in (1, 3) if code in codes), 0))
