"""Commands about what runs have recorded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from orchestrator.exports.kinds import KINDS, Destination
from orchestrator.layout import open_console
from orchestrator.options import (
    RUNS,
    json_option,
    print_json,
    runs_option,
)

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.results.history import History

T = TypeVar("T")


@click.command("faults")
@click.argument("run", required=False)
@click.option(
    "--yaml", "as_yaml", is_flag=True, help="Print them as `faults` of a scenario: those by hand happen again."
)
@click.option("--by", type=click.Choice(["time", "round"]), default="time", help="When, of those by hand.")
@runs_option
@json_option
def list_faults(run: str | None, as_yaml: bool, by: str, runs: Path, as_json: bool) -> None:
    """List the faults of RUN (the latest by default): the planned ones and those by hand, and what became of them."""
    from orchestrator.host.directory import find_run
    from orchestrator.results.history import History
    from orchestrator.verbs.faults import as_rules, fault_rows, print_faults

    if as_yaml and as_json:
        raise click.UsageError("choose --yaml or --json")
    with History.open(find_run(run, runs).path) as history:
        if as_yaml:
            click.echo(as_rules(history, by_round=by == "round"), nl=False)
        elif as_json:
            print_json({"run": history.run, "faults": fault_rows(history)})
        else:
            print_faults(history, open_console())


@click.command("report")
@click.argument("run", required=False)
@runs_option
@json_option
def report_run(run: str | None, runs: Path, as_json: bool) -> None:
    """Write RUN's report.html anew from its record (the latest run by default), also of a run that crashed."""
    from orchestrator.host.directory import find_run
    from orchestrator.results.summary import print_summary
    from orchestrator.run.judging import judge

    directory = find_run(run, runs)
    result = judge(directory)
    if as_json:
        print_json(result)
    else:
        print_summary(result, directory.report, open_console())


@click.command("serve")
@click.argument("runs", type=click.Path(path_type=Path, exists=True, file_okay=False), default=RUNS)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; by default any that is free.")
@click.option(
    "--faults/--no-faults",
    default=None,
    help="Whether the page can make faults and set paces; by default if it listens on this host's loopback only.",
)
@json_option
def serve_runs(runs: Path, host: str, port: int, faults: bool | None, as_json: bool) -> None:
    """Show the runs in the folder RUNS (by default runs/) on a local web page, live, until Ctrl-C.

    Whoever has the address that is printed, with its token, sees every run in the folder, and can make faults in those
    of yours that are running. With --json the address is printed as soon as the page is there.
    """
    from orchestrator.serve.server import serve

    def tell(address: str) -> None:
        print_json({"address": address}) if as_json else click.echo(address)

    serve(runs, host, port, tell, faults=faults)


@click.command("compare")
@click.argument("names", metavar="RUN RUN ...", nargs=-1)
@runs_option
@json_option
def compare_runs(names: tuple[str, ...], runs: Path, as_json: bool) -> None:
    """Hold runs against each other: settings, accuracy, time, bytes, verdicts; two runs also check by check."""
    from orchestrator.host.directory import find_run
    from orchestrator.results.history import History
    from orchestrator.verbs.compare import compare, print_comparison, side
    from orchestrator.verbs.compare_many import compare_many, print_many, run_overview

    def read(name: str, what: Callable[[History], T]) -> T:
        with History.open(find_run(name, runs).path) as history:
            return what(history)

    show: Callable[[Console], None]
    if len(names) < 2:
        raise click.UsageError("give two runs or more")
    if len(names) == 2:
        pair = compare(*[read(name, side) for name in names])
        result, show = pair.to_json(), partial(print_comparison, pair)
    else:
        many = compare_many([read(name, run_overview) for name in names])
        result, show = many.to_json(), partial(print_many, many)
    if as_json:
        print_json(result)
    else:
        show(open_console())


@click.command("export")
@click.argument("names", metavar="[RUN]...", nargs=-1)
@click.argument("place", metavar="DIR")
@click.option("--to", "kind", type=click.Choice(KINDS), required=True, help="What to write.")
@runs_option
@json_option
def export_runs(names: tuple[str, ...], place: str, kind: str, runs: Path, as_json: bool) -> None:
    """Write the results of each RUN (the latest by default; or a sweep's) to DIR, for other tools to read."""
    from orchestrator.verbs.export import export, find_runs

    exported = export(find_runs(names, runs), Destination(kind, place))
    if as_json:
        print_json({"exported": [vars(each) for each in exported]})
    else:
        for each in exported:
            click.echo(f"{each.run}: written to {each.place}")
