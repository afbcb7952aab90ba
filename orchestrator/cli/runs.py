"""Commands that execute runs, and what they share."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from orchestrator.cli.options import (
    RESULT,
    arguments_of_tasks,
    check_places,
    is_quiet,
    is_verbose,
    json_option,
    junit_option,
    override_options,
    print_json,
    printer,
    run_argument,
    runs_option,
    scenario_argument,
    scenario_options,
    track_option,
    waiting,
)
from orchestrator.exports.destinations import Destination
from orchestrator.host.process.signals import INTERRUPTED
from orchestrator.layout import open_console, print_error
from orchestrator.progress import logging_to
from orchestrator.scenario.language.files import piped_text
from orchestrator.scenario.sections.drivers import kind_of
from orchestrator.sweep.schedulers import SCHEDULERS, names_of

if TYPE_CHECKING:
    from orchestrator.record.directory import RunDirectory
    from orchestrator.report.judgement import Conclusion
    from orchestrator.run.display.snapshot import View
    from orchestrator.run.options import RunOptions
    from orchestrator.sweep.running import SweepOutcome
    from orchestrator.sweep.sweeper import Sweeper


@click.command()
@scenario_options
@runs_option
@click.option(
    "--workers", type=click.IntRange(1), help="Processes that train under `sim`; by default one for each processor."
)
@click.option("--pace", help="Under `sim`: virtual seconds per second, like 10x; or start with pause or step.")
@click.option("--serve", "with_page", is_flag=True, help="Open a local page of the run, and keep it until Ctrl-C.")
@click.option("-d", "--detach", is_flag=True, help="Run in the background, and print the run's id.")
@track_option
@junit_option
@json_option
def up(
    scenario: Path,
    overrides: tuple[str, ...],
    runs: Path,
    workers: int | None,
    pace: str | None,
    with_page: bool,
    detach: bool,
    track: Sequence[Destination],
    junit: Path | None,
    as_json: bool,
) -> None:
    """Run SCENARIO: start its nodes, shape its links, train, inject its faults, report."""
    from orchestrator.run.options import RunOptions
    from orchestrator.serve.beside import page_of

    check_places(runs, junit, track)
    with contextlib.ExitStack() as stack:
        page = None
        begun: Callable[[RunDirectory], None] | None = None
        if with_page:
            page = stack.enter_context(page_of(runs))
            begun = page.announce
        if detach:
            background = _background(with_page=with_page, as_json=as_json)
            begun = stack.enter_context(background)
        outcome, directory = _execute(
            scenario,
            overrides,
            runs,
            RunOptions(workers, track=track, pace=pace, begun=begun),
            as_json=as_json or detach,
        )
        _tell(outcome, directory, junit, as_json=as_json, printed=not detach)
        if page is not None and outcome.exit_code != INTERRUPTED:
            page.keep()
    _leave(outcome)


@click.command("resume")
@run_argument
@runs_option
@click.option("--workers", type=click.IntRange(1), help="As for `up`.")
@junit_option
@json_option
def resume_run(
    run: str | None,
    runs: Path,
    workers: int | None,
    junit: Path | None,
    as_json: bool,
) -> None:
    """Resume RUN, by default the latest, from its checkpoints if it was interrupted, killed or failed."""
    from orchestrator.host.places import check_folder
    from orchestrator.record.directory import find_run
    from orchestrator.results.history import History
    from orchestrator.run.launch import resume
    from orchestrator.run.options import check_workers

    directory = find_run(run, runs)
    check_folder(directory.path, "make it writable, or resume a copy of it elsewhere")
    check_places(runs, junit)
    with History.open(directory.path) as history:
        check_workers(workers, kind_of(history.driver))
    outcome = resume(directory, _view(as_json=as_json), workers=workers)
    _tell(outcome, directory, junit, as_json=as_json)
    _leave(outcome)


@click.command("sweep")
@scenario_argument("file", "sweep")
@override_options
@runs_option
@click.option("--on", type=click.Choice(SCHEDULERS), help="Execute the tasks as a job there.")
@click.option("--print", "printing", is_flag=True, help="With --on: write and print the description of the job only.")
@click.option("--image", help="With --on: the image of tasks in containers; by default edgebed.")
@click.option(
    "--parallel",
    type=click.IntRange(2),
    help="Run this many simulations at the same time, each with --workers processes, by default 1.",
)
@click.option("--workers", type=click.IntRange(1), help="As for `up`; with --on the cores of a task, by default 1.")
@click.option("--again", is_flag=True, help="Repeat complete runs too.")
@click.option("--count", is_flag=True, help="Print the number of tasks: one for each case and seed.")
@click.option("--task", type=click.IntRange(0), help="Execute only the task with this number, from 0; write no tables.")
@click.option("--collect", "collecting", is_flag=True, help="Run nothing; write the tables and the page of the runs.")
@track_option
@json_option
def sweep_runs(
    file: Path,
    overrides: tuple[str, ...],
    runs: Path,
    on: str | None,
    printing: bool,
    image: str | None,
    parallel: int | None,
    workers: int | None,
    again: bool,
    count: bool,
    task: int | None,
    collecting: bool,
    track: Sequence[Destination],
    as_json: bool,
) -> None:
    """Run a scenario in each case of the sweep FILE with each seed, and compare; complete runs are kept."""
    from orchestrator.run.options import check_workers
    from orchestrator.sweep.jobs import write_job
    from orchestrator.sweep.reading import load
    from orchestrator.sweep.running import run_task
    from orchestrator.sweep.sweeper import Sweeper
    from orchestrator.sweep.tables import print_tables

    ways = (
        count,
        collecting,
        task is not None,
        on is not None,
        parallel is not None,
    )
    if sum(ways) > 1:
        raise click.UsageError("choose one of --count, --task, --collect, --on and --parallel")
    if again and (count or collecting):
        option = "--count" if count else "--collect"
        raise click.UsageError(f"{option} runs nothing: leave out --again")
    _check_job(on, printing, image)
    sweep = load(file, overrides)
    if (on or parallel) and not sweep.file.is_file():
        raise click.UsageError(f"{sweep.file} can be read only once, but each task reads the sweep: write it to a file")
    if count:
        tasks = len(sweep.combinations)
        if as_json:
            print_json({"count": tasks})
        else:
            click.echo(tasks)
        return
    check_places(runs, track=track)
    if on is None:
        option = "parallel" if parallel else "workers"
        for combination in sweep.combinations:
            check_workers(parallel or workers, combination.scenario.driver_kind, option)
    tell = printer(err=as_json)
    image = image or "edgebed"
    sweeper = Sweeper(sweep, runs / sweep.name, workers, tell, track, again=again)
    arguments = arguments_of_tasks(runs, overrides)
    if again:
        arguments.append("--again")
    if on is not None and printing:
        _, described = write_job(on, sweep, sweeper.directory, arguments, workers=workers, image=image)
        text = described.read_text()
        if as_json:
            print_json({"file": str(described), "text": text})
        else:
            click.echo(text, nl=False)
        return
    with contextlib.nullcontext() if is_verbose() else logging_to(tell):
        if task is not None:
            result, code = run_task(sweeper, task)
            if as_json:
                print_json(result.to_json())
            sys.exit(code)
        outcome = _swept(sweeper, arguments, image, on=on, parallel=parallel, collecting=collecting)
    if as_json:
        print_json(outcome.to_json())
    else:
        print_tables(sweep, outcome.results, open_console())
        click.echo(f"written to {outcome.directory}: sweep.html, sweep.md, sweep.tex, sweep.json, the runs")
    if outcome.interrupted:
        tell(outcome.how_to_continue)
    sys.exit(outcome.exit_code)


def _check_job(on: str | None, printing: bool, image: str | None) -> None:
    if printing and on is None:
        raise click.UsageError("--print is for --on")
    if image is not None and on not in names_of(contained=True):
        schedulers = " or --on ".join(names_of(contained=True))
        raise click.UsageError(f"--image is for tasks in containers: --on {schedulers}")


def _swept(
    sweeper: Sweeper,
    arguments: Sequence[str],
    image: str,
    *,
    on: str | None,
    parallel: int | None,
    collecting: bool,
) -> SweepOutcome:
    from orchestrator.sweep.running import carry_out, carry_out_in_parallel, carry_out_on, collect

    if collecting:
        return collect(sweeper)
    if on is not None:
        return carry_out_on(on, sweeper, arguments, image)
    if parallel is None:
        return carry_out(sweeper)
    return carry_out_in_parallel(parallel, sweeper, arguments)


@click.command()
@scenario_options
@runs_option
@json_option
def calibrate(
    scenario: Path,
    overrides: tuple[str, ...],
    runs: Path,
    as_json: bool,
) -> None:
    """Measure the links of SCENARIO without training and compare them with their settings."""
    from orchestrator.run.options import RunOptions
    from orchestrator.verbs.calibrate import measured, print_measured

    check_places(runs)
    options = RunOptions(calibrate=True)
    outcome, directory = _execute(scenario, overrides, runs, options, as_json=as_json)
    rows = measured(directory)
    if as_json:
        print_json(outcome.summary | {"probes": rows})
    else:
        verdict = outcome.summary["verdict"]
        print_measured(rows, verdict, directory.report, open_console())
    _leave(outcome)


def _execute(
    scenario: Path,
    overrides: tuple[str, ...],
    runs: Path,
    options: RunOptions,
    *,
    as_json: bool,
) -> tuple[Conclusion, RunDirectory]:
    from orchestrator.run.launch import launch, prepared_plan
    from orchestrator.run.options import Origin
    from orchestrator.scenario.reading import load, placed

    loaded = load(scenario, overrides)
    options.check(loaded.driver_kind)
    if options.calibrate and loaded.driver_kind.simulated:
        raise click.UsageError("a simulation computes its links: there is nothing to measure; choose another driver")
    if options.calibrate and not loaded.driver_kind.shapes_links:
        raise click.UsageError(f"the driver {loaded.driver} does not shape links: choose another one")
    with placed(scenario, overrides), waiting(f"planning {scenario}"):
        plan = prepared_plan(loaded, scenario)
    origin = Origin(loaded, scenario, overrides, piped_text(scenario))
    return launch(plan, origin, runs, _view(as_json=as_json), options)


@contextlib.contextmanager
def _background(*, with_page: bool, as_json: bool) -> Iterator[Callable[[RunDirectory], None]]:
    """Continue in the background. Yields the function to call when the run has a folder. The original process prints
    the run's id and exits."""
    from orchestrator.verbs.background import Launcher, split

    if with_page:
        raise click.UsageError("--serve keeps the terminal: leave out --detach, or use `serve` for the page")
    outputs = {1, 2}
    if as_json:
        result = click.get_current_context().meta[RESULT]
        outputs.add(result.fileno())
    process = split(outputs)
    if isinstance(process, Launcher):
        directory, error, code = process.wait()
        if error is not None:
            print_error(error)
        if directory is not None:
            run = directory.run
            if as_json:
                print_json({"run": run, "directory": str(directory.path)})
            else:
                click.echo(run)
            report = printer()
            report(f"it runs in the background: `wait {run}` follows it, `down {run}` ends it")
        sys.exit(code)
    with process.reporting_errors():
        yield process.announce


def _view(*, as_json: bool) -> Callable[[bool], View]:
    """What shows a run, by whether its clock is virtual."""
    from orchestrator.run.display.terminal import open_view

    quiet = is_quiet()
    plain = is_verbose()
    return lambda virtual: open_view(as_json=as_json, virtual=virtual, quiet=quiet, plain=plain)


def _tell(
    outcome: Conclusion,
    directory: RunDirectory,
    junit: Path | None,
    *,
    as_json: bool,
    printed: bool = True,
) -> None:
    """Report the result of a run in each requested form."""
    from orchestrator.results.junit import write_junit
    from orchestrator.results.printed import print_summary

    if printed and as_json:
        print_json(outcome.summary)
    elif printed:
        print_summary(outcome.summary, directory.report, open_console())
    if junit is not None:
        write_junit(outcome.summary, junit)


def _leave(outcome: Conclusion) -> NoReturn:
    if outcome.error:
        print_error(outcome.error)
    sys.exit(outcome.exit_code)
