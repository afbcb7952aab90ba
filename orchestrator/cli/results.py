"""Commands about what runs have recorded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from orchestrator import text
from orchestrator.cli.options import (
    json_option,
    print_json,
    run_argument,
    run_option,
    runs_option,
    waiting,
)
from orchestrator.exports.destinations import Destination
from orchestrator.layout import open_console
from orchestrator.scenario.exporters import EXPORTERS, PDF


class _Format(click.Choice):  # type: ignore[type-arg]  # before 8.2 it has no parameter
    """The formats of edgebed. Others may be of installed plug-ins, which are read only to look one up."""

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        if value in self.choices:
            return str(value)
        from orchestrator.verbs.results.export import exporters_with

        names = {*self.choices, *exporters_with(value)}
        with_plugins = click.Choice(sorted(names))
        return str(with_plugins.convert(value, param, ctx))


@click.command("faults")
@run_argument
@click.option(
    "--yaml", "as_yaml", is_flag=True, help="Print them as `faults` of a scenario, which repeats the manual ones."
)
@click.option(
    "--by", type=click.Choice(["time", "round"]), default="time", help="With --yaml: when manual faults start."
)
@runs_option
@json_option
def list_faults(
    run: str | None,
    as_yaml: bool,
    by: str,
    runs: Path,
    as_json: bool,
) -> None:
    """List the planned and the manual faults of RUN, by default the latest, with their effects."""
    from orchestrator.record.directory import find_run
    from orchestrator.results.history import History
    from orchestrator.verbs.results.faults import as_rules, fault_rows, print_faults

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
@run_argument
@runs_option
@json_option
def report_run(run: str | None, runs: Path, as_json: bool) -> None:
    """Write the report of RUN, by default the latest, again from its record, even if the run crashed."""
    from orchestrator.record.damage import using_record
    from orchestrator.record.directory import find_run
    from orchestrator.report.judgement import judge
    from orchestrator.results.printed import print_summary

    directory = find_run(run, runs)
    with waiting(f"reading the record of {directory.run}"):
        result = judge(directory)
    if as_json:
        print_json(result)
        return
    with using_record(directory.path):
        print_summary(result, directory.report, open_console())


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; by default any that is free.")
@click.option(
    "--faults/--no-faults",
    default=None,
    help="Whether the page can make faults and set paces; by default if it listens on this host's loopback only.",
)
@runs_option
@json_option
def serve_runs(
    runs: Path,
    host: str,
    port: int,
    faults: bool | None,
    as_json: bool,
) -> None:
    """Show the runs in a folder on a local web page, live, until Ctrl-C.

    Anyone with the printed address, which has a token, can see each run in the folder, and can make faults in your
    running runs. With --json, the address is printed once the page is ready.
    """
    if not os.path.isdir(runs):
        raise click.UsageError(f"--runs: {runs} is not a folder")
    from orchestrator.serve.server import serve

    def report(address: str) -> None:
        if as_json:
            print_json({"address": address})
        else:
            click.echo(address)

    serve(runs, host, port, report, faults=faults)


@click.command("compare")
@click.argument("names", metavar="RUN RUN...", nargs=-1)
@click.option("--latex", "as_latex", is_flag=True, help="Print the results as a table for LaTeX.")
@click.option(
    "--figures",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write the curves of accuracy and loss to DIR, as PDF.",
)
@runs_option
@json_option
def compare_runs(
    names: tuple[str, ...],
    runs: Path,
    as_latex: bool,
    figures: Path | None,
    as_json: bool,
) -> None:
    """Compare runs by settings, accuracy, time, bytes and verdicts; two runs also check by check."""
    from orchestrator.record.directory import find_each
    from orchestrator.results.history import History
    from orchestrator.verbs.results.compare import (
        compare,
        compare_many,
        latex,
        print_comparison,
        print_many,
        run_overview,
    )

    if len(names) < 2:
        raise click.UsageError("name two runs or more")
    if as_latex and as_json:
        raise click.UsageError("choose one of --latex and --json")
    overviews = []
    with waiting("reading the records"):
        directories = find_each(names, runs)
        for directory in directories:
            with History.open(directory.path) as history:
                overviews.append(run_overview(history))
    if figures is not None:
        from orchestrator.serve.comparison import several
        from orchestrator.verbs.results.figures import write_figures

        by_name = {directory.run: directory for directory in directories}
        shown = several(by_name, over_seeds=None)
        write_figures(shown["figures"], figures)
    if as_latex:
        click.echo(latex(compare_many(overviews)), nl=False)
    elif len(overviews) == 2:
        comparison = compare(*overviews)
        if as_json:
            print_json(comparison.to_json())
        else:
            print_comparison(comparison, open_console())
    else:
        table = compare_many(overviews)
        if as_json:
            print_json(table.to_json())
        else:
            print_many(table, open_console())


@click.command("export")
@click.argument("place", metavar="DIR")
@click.option(
    "--to",
    "kind",
    type=_Format([*EXPORTERS, PDF]),
    required=True,
    help="The format to write.",
)
@run_option("names", many=True)
@runs_option
@json_option
def export_runs(
    names: tuple[str, ...],
    place: str,
    kind: str,
    runs: Path,
    as_json: bool,
) -> None:
    """Write the results of runs to DIR, in a format of other tools.

    pdf is the figures of the report, for papers. Installed plug-ins may add formats.
    """
    from orchestrator.verbs.results.export import export, find_runs
    from orchestrator.verbs.results.figures import export_figures

    with waiting(f"writing to {place}"):
        directories = find_runs(names, runs)
        if kind == PDF:
            exported = export_figures(directories, Path(place))
        else:
            exported = export(directories, Destination(kind, place))
    if as_json:
        places = [{"run": run, "place": where} for run, where in exported.items()]
        print_json({"exported": places})
    else:
        for run, where in exported.items():
            click.echo(f"{run}: written to {where}")


@click.command("archive")
@run_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file; by default RUN.zip.",
)
@click.option(
    "--tolerance",
    "tolerances",
    metavar="FIGURE=VALUE",
    multiple=True,
    help="The tolerance of a figure on other hosts, such as final.global=0.03 or seconds=20%; may be repeated.",
)
@click.option(
    "--author", "authors", metavar="NAME", multiple=True, help="An author, for the description; may be repeated."
)
@click.option(
    "--license", metavar="URL", help="The licence, for the description, such as https://spdx.org/licenses/CC-BY-4.0."
)
@runs_option
@json_option
def archive_runs(
    run: str | None,
    output: Path | None,
    tolerances: tuple[str, ...],
    authors: tuple[str, ...],
    license: str | None,
    runs: Path,
    as_json: bool,
) -> None:
    """Write RUN, a run or a sweep, into one file that `reproduce` can repeat and check on another host."""
    from orchestrator.archive.writing import archive

    by_figure = {}
    for tolerance in tolerances:
        figure, equals, value = tolerance.partition("=")
        if not equals:
            raise click.UsageError(f"--tolerance: {tolerance!r} is not FIGURE=VALUE")
        by_figure[figure] = value
    with waiting("writing the archive"):
        file = archive(
            run,
            output,
            runs=runs,
            tolerances=by_figure,
            authors=authors,
            license=license,
        )
    if as_json:
        print_json({"file": str(file)})
    else:
        size = text.size(file.stat().st_size)
        click.echo(f"{file}: {size}")
