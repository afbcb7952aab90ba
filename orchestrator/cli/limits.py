"""The command that searches what a deployment survives."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

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
from orchestrator.errors import RunError
from orchestrator.host.process.signals import INTERRUPTED
from orchestrator.layout import open_console
from orchestrator.progress import logging_to

if TYPE_CHECKING:
    from orchestrator.limits.study import StudyResult


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
@click.option("--faults", is_flag=True, help="Try thirteen faults instead, and show what each does.")
@click.option(
    "--parallel",
    type=click.IntRange(2),
    help="Make this many searches at the same time, under `sim`; with --faults runs, under all drivers.",
)
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
@click.option("--beside", metavar="STUDY", help="Show another study on the page, with the runs that it has.")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write the limits here as JUnit XML.")
@json_option
def find_limits(
    file: Path,
    overrides: tuple[str, ...],
    runs: Path,
    axes: tuple[str, ...],
    faults: bool,
    parallel: int | None,
    workers: int | None,
    count: bool,
    task: int | None,
    beside: str | None,
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
    if faults or not study.axes:
        if axes or junit is not None:
            raise click.UsageError("--axis and --junit are for searches: leave out --faults, or them")
        _try_faults(file, overrides, runs, parallel, task, count=count, as_json=as_json)
    if count:
        _print_count(study.searches, as_json=as_json)
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
        write_page(result, _present(beside, overrides, runs))
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


def _print_count(tasks: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"count": tasks})
    else:
        click.echo(tasks)


def _present(
    given: str | None,
    overrides: tuple[str, ...],
    runs: Path,
) -> StudyResult | None:
    """What the present runs of a study show; None without its name. RunError if there are none."""
    from orchestrator.limits.reading import load
    from orchestrator.limits.runs import ignore
    from orchestrator.limits.study import carry_out
    from orchestrator.verbs.examples import chosen

    if given is None:
        return None
    file = chosen(given, "study")
    study = load(file, overrides)
    directory = runs / study.name
    result = carry_out(study, directory, ignore, ended="left out")
    if not any(search.tries for search in result.searches):
        raise RunError(f"{directory} has no runs of {file}: make them first, with `edgebed limits {file}`")
    return result


def _try_faults(
    file: Path,
    overrides: tuple[str, ...],
    runs: Path,
    parallel: int | None,
    task: int | None,
    *,
    count: bool,
    as_json: bool,
) -> NoReturn:
    """Make the runs of the thirteen faults, or one of them, and show their effects."""
    from orchestrator.limits.fault_table import print_faults, to_json, write_files
    from orchestrator.limits.suite import carry_out, load_suite, runs_of
    from orchestrator.sweep.running import run_task
    from orchestrator.sweep.sweeper import Sweeper

    suite = load_suite(file, overrides)
    tasks = len(suite.sweep.combinations)
    if count:
        _print_count(tasks, as_json=as_json)
        sys.exit(0)
    check_places(runs)
    tell = printer(err=as_json)
    sweeper = Sweeper(suite.sweep, runs / suite.sweep.name, None, tell)
    with contextlib.nullcontext() if is_verbose() else logging_to(tell):
        if task is not None:
            _, code = run_task(sweeper, task)
            sys.exit(code)
        arguments = ["limits", str(file), *arguments_of_tasks(runs, overrides), "--faults"]
        carry_out(sweeper, arguments, parallel)
    ended = runs_of(suite, sweeper)
    if not ended:
        raise RunError(f"no run of {suite.sweep.name} has ended: see the lines above")
    facts = to_json(suite.sweep.name, suite.sweep.scenario.name, ended)
    write_files(facts, sweeper.directory)
    if as_json:
        print_json(facts)
    else:
        print_faults(facts, open_console())
        click.echo(f"written to {sweeper.directory}: faults.json, faults.md, the runs")
    if sweeper.interrupted:
        tell("interrupted: repeat the command to continue")
        sys.exit(INTERRUPTED)
    sys.exit(0 if len(facts["runs"]) == tasks else 1)
