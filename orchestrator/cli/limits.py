"""The command that searches what a deployment survives."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import click

from orchestrator.cli.options import (
    arguments_of_tasks,
    check_places,
    is_verbose,
    json_option,
    override_options,
    print_json,
    printer,
    runs_option,
    scenario_argument,
)
from orchestrator.layout import open_console
from orchestrator.progress import logging_to


def _list_studies(context: click.Context, _option: click.Parameter, requested: bool) -> None:
    if requested and not context.resilient_parsing:
        from orchestrator.verbs.examples import examples, print_examples

        studies = [example for example in examples() if example.kind == "study"]
        print_examples(studies, open_console())
        context.exit()


@click.command("limits")
@scenario_argument("file", "study")
@override_options
@runs_option
@click.option("--axis", "axes", multiple=True, help="Try this axis only; may be given several times.")
@click.option("--parallel", type=click.IntRange(2), help="Make this many searches at the same time, under `sim`.")
@click.option("--workers", type=click.IntRange(1), help="As for `up`.")
@click.option("--count", is_flag=True, help="Print the number of searches: one for each case and axis.")
@click.option("--task", type=click.IntRange(0), help="Make only the search with this number, from 0; write no files.")
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_studies,
    help="List the studies that edgebed ships.",
)
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write the limits here as JUnit XML.")
@json_option
def find_limits(
    file: Path,
    overrides: tuple[str, ...],
    runs: Path,
    axes: tuple[str, ...],
    parallel: int | None,
    workers: int | None,
    count: bool,
    task: int | None,
    junit: Path | None,
    as_json: bool,
) -> None:
    """Find the latency, loss, rate or outage that a study FILE, or a scenario, does not survive, and why."""
    from orchestrator.limits.page import write_page
    from orchestrator.limits.reading import load
    from orchestrator.limits.results import to_json, write_files, write_junit
    from orchestrator.limits.study import carry_out, how_it_ended
    from orchestrator.limits.tables import print_limits
    from orchestrator.run.options import check_workers

    study = load(file, overrides, axes)
    if count:
        if as_json:
            print_json({"count": study.searches})
        else:
            click.echo(study.searches)
        return
    check_places(runs, junit)
    for case in study.cases:
        option = "parallel" if parallel else "workers"
        check_workers(parallel or workers, case.scenario.driver_kind, option)
    tell = printer(err=as_json)
    directory = runs / study.name
    with contextlib.nullcontext() if is_verbose() else logging_to(tell):
        if parallel is not None and task is None:
            from orchestrator.limits.parallel import carry_out_in_parallel

            arguments = arguments_of_tasks(runs, overrides)
            for axis in axes:
                arguments += ["--axis", axis]
            result = carry_out_in_parallel(parallel, study, directory, tell, arguments, workers)
        else:
            result = carry_out(study, directory, tell, workers, task)
    if task is None:
        facts = to_json(result)
        write_files(result, facts)
        write_page(result)
        if junit is not None:
            write_junit(result, junit)
        if as_json:
            print_json(facts)
        else:
            print_limits(result, open_console())
            click.echo(f"written to {directory}: limits.html, limits.json, limits.csv, the runs")
    if result.ended is not None:
        tell(how_it_ended(result).strip())
    sys.exit(result.exit_code)
