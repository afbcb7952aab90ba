"""The command line. Each verb parses its arguments, calls one function, prints the result and ends with an exit code.

Exit codes: 0 done and trusted; 1 failed; 2 bad usage or scenario; 3 done, but a fidelity or health check failed;
130 interrupted by a signal, with a report if there is a record.
With ``--json`` a command prints one JSON object on standard output. All text for people goes to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

from orchestrator import text
from orchestrator.errors import OrchestratorError, PlaceError, PlanError, RecordError, RunError, ScenarioError
from orchestrator.exports.kinds import KINDS, Destination, check
from orchestrator.layout import open_console, write_table
from orchestrator.options import json_option, junit_option, runs_option, scenario_options, track_option
from orchestrator.scenario.drivers import DRIVERS, kind_of, listed
from orchestrator.scenario.engines import ENGINES

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.host.directory import RunDirectory
    from orchestrator.planning.plan import Plan
    from orchestrator.run.lifecycle import Conclusion
    from orchestrator.scenario.schema import Scenario

T = TypeVar("T")


def carry_out() -> int:
    """Carry out the command line and return the exit code. KeyboardInterrupt if interrupted before a run began."""
    try:
        os.getcwd()
    except OSError as error:
        return _fail(f"the working directory is gone ({error.strerror}): change to one that exists", 2)
    try:
        cli.main(standalone_mode=False)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except (ScenarioError, PlanError, PlaceError) as error:
        return _fail(str(error), 2)
    except OrchestratorError as error:
        return _fail(str(error), 1)
    except click.ClickException as error:
        error.show()
        return 2
    except click.Abort:  # click turns KeyboardInterrupt into this
        raise KeyboardInterrupt from None
    return 0


def _fail(text: str, code: int) -> int:
    print(f"error: {text}", file=sys.stderr)
    return code


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="edgebed")
def cli() -> None:
    """edgebed: device-edge-cloud federated learning, on links that exist."""


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Write a small project into FOLDER: a scenario, an algorithm of its own, its tests and a workflow for CI."""
    from orchestrator.verbs.init import make_project

    for path in make_project(folder):
        click.echo(path)
    click.echo(f"next: cd {folder} && edgebed up scenario.yaml", err=True)


@cli.command("image")
@click.argument("folder", type=click.Path(path_type=Path))
def write_build_folder(folder: Path) -> None:
    """Write into FOLDER what `docker build` makes the image of nodes from."""
    from orchestrator.drivers.docker.node_image import BUILD, image_name
    from orchestrator.verbs.image import make_build_folder

    make_build_folder(folder)
    click.echo(f"next: cd {folder} && {BUILD.format(name=image_name())}", err=True)


@cli.command()
@scenario_options
@runs_option
@click.option("--driver", type=click.Choice(list(DRIVERS)), help="Overrides the scenario's driver.")
@click.option(
    "--workers", type=click.IntRange(1), help="Processes that train under `sim`; by default one for each processor."
)
@click.option("--engine", type=click.Choice(list(ENGINES)), help="Overrides the scenario's engine.")
@track_option
@junit_option
@json_option
def up(
    scenario: Path,
    overrides: tuple[str, ...],
    runs: Path,
    driver: str | None,
    workers: int | None,
    engine: str | None,
    track: Sequence[Destination],
    junit: Path | None,
    as_json: bool,
) -> None:
    """Run SCENARIO: start its nodes, shape its links, train, inject its faults, report."""
    overrides += (f"driver={driver}",) if driver else ()
    overrides += (f"engine={engine}",) if engine else ()
    _check_places(runs, junit, track)
    outcome, directory = _execute(scenario, overrides, runs, as_json=as_json, workers=workers, track=track)
    _end(outcome, directory, junit, as_json=as_json)


@cli.command("resume")
@click.argument("run", required=False)
@runs_option
@click.option("--workers", type=click.IntRange(1), help="As for `up`.")
@junit_option
@json_option
def resume_run(run: str | None, runs: Path, workers: int | None, junit: Path | None, as_json: bool) -> None:
    """Go on with RUN (the latest by default), which was interrupted, killed or failed, from its checkpoints."""
    from orchestrator.host.directory import find_run
    from orchestrator.host.places import check_folder
    from orchestrator.results.history import History
    from orchestrator.run.launch import resume
    from orchestrator.run.view import open_view

    directory = find_run(run, runs)
    check_folder(directory.path, "make it writable, or resume a copy of it elsewhere")
    _check_places(runs, junit)
    with History.open(directory.path) as history:
        _check_workers(workers, history.driver)
    outcome = resume(directory, lambda virtual: open_view(as_json=as_json, virtual=virtual), workers=workers)
    _end(outcome, directory, junit, as_json=as_json)


@cli.command("sweep")
@click.argument("file", type=click.Path(path_type=Path))
@runs_option
@click.option("--driver", type=click.Choice(list(DRIVERS)), help="Overrides the scenario's driver.")
@click.option("--workers", type=click.IntRange(1), help="As for `up`.")
@click.option("--again", is_flag=True, help="Repeat complete runs too.")
@click.option("--page", is_flag=True, help="Run nothing; draw the complete runs again, in sweep.html.")
@track_option
@json_option
def sweep_runs(
    file: Path,
    runs: Path,
    driver: str | None,
    workers: int | None,
    again: bool,
    page: bool,
    track: Sequence[Destination],
    as_json: bool,
) -> None:
    """Run a scenario in every case of the sweep FILE, with every seed, and compare; what was run before is kept."""
    from orchestrator.sweep.reading import load
    from orchestrator.sweep.running import carry_out, draw
    from orchestrator.sweep.tables import print_tables

    if page and again:
        raise click.UsageError("--page runs nothing: leave out --again, or --page")
    _check_places(runs, track=track)
    sweep = load(file, (f"driver={driver}",) if driver else ())
    for each in sweep.combinations:
        _check_workers(workers, each.scenario.driver)
    tell, directory = partial(click.echo, err=as_json), runs / sweep.name
    outcome = (
        draw(sweep, directory, tell=tell)
        if page
        else carry_out(sweep, directory, workers=workers, again=again, tell=tell, track=track)
    )
    if as_json:
        click.echo(json.dumps(outcome.to_json()))
    else:
        print_tables(sweep, outcome.results, open_console())
        written = "sweep.html" if page else "sweep.html, sweep.md, sweep.json, the runs"
        click.echo(f"written to {outcome.directory}: {written}")
    sys.exit(outcome.exit_code)


@cli.command()
@scenario_options
@runs_option
@click.option("--engine", type=click.Choice(list(ENGINES)), help="Overrides the scenario's engine.")
@json_option
def calibrate(scenario: Path, overrides: tuple[str, ...], runs: Path, engine: str | None, as_json: bool) -> None:
    """Measure every kind of link of SCENARIO at length, asked against measured; nobody trains."""
    from orchestrator.verbs.calibrate import measured, print_measured

    overrides += (f"engine={engine}",) if engine else ()
    _check_places(runs)
    outcome, directory = _execute(scenario, overrides, runs, as_json=as_json, calibrate=True)
    rows = measured(directory)
    if as_json:
        click.echo(json.dumps(outcome.summary | {"probes": rows}))
    else:
        print_measured(rows, outcome.summary["verdict"], directory.report, open_console())
    _leave(outcome)


@cli.command()
@scenario_options
@json_option
def validate(scenario: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check SCENARIO, with its data and its partition; touches nothing."""
    loaded, plan = _looked_up(scenario, overrides)
    facts = {"scenario": str(scenario), "name": loaded.name, "valid": True, "nodes": len(plan.nodes)}
    click.echo(json.dumps(facts) if as_json else f"{scenario}: valid ({len(plan.nodes)} nodes)")


@cli.command("plan")
@scenario_options
@json_option
def show_plan(scenario: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show all that `up` would do: nodes, addresses, links and their commands, data shards, faults."""
    from orchestrator.verbs.show import print_plan

    _, plan = _looked_up(scenario, overrides)
    if as_json:
        click.echo(json.dumps(plan.to_json()))
    else:
        print_plan(plan, open_console())


@cli.command()
def schema() -> None:
    """Print the scenario's JSON Schema, for editors."""
    from orchestrator.scenario.schema import json_schema

    click.echo(json.dumps(json_schema(), indent=2))


@cli.command("ps")
@runs_option
@json_option
def list_runs(runs: Path, as_json: bool) -> None:
    """List this user's runs that live on this host, with their nodes."""
    from orchestrator.verbs.ps import living

    found = living(runs)
    if as_json:
        click.echo(json.dumps({"runs": found}))
        return
    if not found:
        click.echo("nothing is running")
    for run in found:
        rows = [
            (node["node"], node["state"], str(node["pid"] or ""), "" if node["rss"] is None else text.size(node["rss"]))
            for node in run["nodes"]
        ]
        title, headings = f"{run['run']}: {run['phase']}", ("node", "state", "pid", "memory")
        write_table(open_console(), headings, rows, title=title, right={2, 3})


@cli.command()
@click.argument("node")
@click.option("-r", "--run", help="The run; the latest by default.")
@click.option("-f", "--follow", is_flag=True, help="Go on printing what is written.")
@runs_option
@json_option
def logs(node: str, run: str | None, follow: bool, runs: Path, as_json: bool) -> None:
    """Print the log of NODE (or of `switch` or `forkserver`); of a simulated node what the record holds of it."""
    from orchestrator.host.directory import find_run
    from orchestrator.host.tail import follow_file, log_of
    from orchestrator.results.history import History
    from orchestrator.verbs.logs import follow_record

    directory = find_run(run, runs)

    def go_on() -> bool:
        return follow and not as_json and directory.holder() is not None

    with contextlib.ExitStack() as stack:
        try:
            history = stack.enter_context(History.open(directory.path))
        except RecordError:
            history = None  # the log files of the nodes can still be read
        if history is not None and history.simulated:
            pieces = follow_record(history, node, go_on)
        else:
            pieces = follow_file(log_of(directory, node), go_on)
        if as_json:
            lines = "".join(pieces).splitlines()
            click.echo(json.dumps({"run": directory.run, "node": node, "lines": lines}))
            return
        with contextlib.suppress(KeyboardInterrupt):  # --follow usually ends this way
            for piece in pieces:
                click.echo(piece, nl=False)


@cli.command("down")
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="Every run of this user's that left a trace on this host.")
@runs_option
@json_option
def take_down(run: str | None, everything: bool, runs: Path, as_json: bool) -> None:
    """End RUN (the latest by default) and remove everything of it but its directory."""
    from orchestrator.host.directory import find_run
    from orchestrator.run.down import down, traces

    found = traces(runs)
    if everything:
        targets = found
    elif run is not None and run in found:
        targets = {run: found[run]}
    else:
        try:
            directory = find_run(run, runs)
        except RunError as error:
            raise RunError(f"{error}; on this host are: {', '.join(sorted(found)) or 'none'}") from None
        targets = {directory.run: directory}
    results = [down(name, directory) for name, directory in targets.items()]
    if as_json:
        click.echo(json.dumps({"runs": [{**vars(result), "clean": not result.left} for result in results]}))
    else:
        for result in results:
            click.echo(result.told())
        if not results:
            click.echo("nothing of any run is left on this host")
        if others := sorted(found.keys() - targets.keys()):
            click.echo(f"other runs are still here: {', '.join(others)}; `down RUN` ends one of them, `down --all` all")
    sys.exit(1 if any(result.left for result in results) else 0)


@cli.command()
@json_option
def doctor(as_json: bool) -> None:
    """Tell what this host can do, and what to install or load for the rest."""
    from orchestrator.verbs.doctor import examine, print_findings

    findings = asyncio.run(examine())
    if as_json:
        click.echo(json.dumps({"findings": [vars(finding) for finding in findings]}))
    else:
        print_findings(findings, open_console())
    sys.exit(1 if any(finding.ok is False for finding in findings) else 0)


@cli.command("report")
@click.argument("run", required=False)
@runs_option
@json_option
def report_run(run: str | None, runs: Path, as_json: bool) -> None:
    """Write RUN's report.html anew from its record (the latest run by default), also of a run that crashed."""
    from orchestrator.host.directory import find_run
    from orchestrator.results.summary import print_summary
    from orchestrator.run.lifecycle import judge

    directory = find_run(run, runs)
    result = judge(directory)
    if as_json:
        click.echo(json.dumps(result))
    else:
        print_summary(result, directory.report, open_console())


@cli.command("compare")
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
        click.echo(json.dumps(result))
    else:
        show(open_console())


@cli.command("export")
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
        click.echo(json.dumps({"exported": [vars(each) for each in exported]}))
    else:
        for each in exported:
            click.echo(f"{each.run}: written to {each.place}")


def _execute(
    scenario: Path,
    overrides: tuple[str, ...],
    runs: Path,
    *,
    as_json: bool,
    workers: int | None = None,
    calibrate: bool = False,
    track: Sequence[Destination] = (),
) -> tuple[Conclusion, RunDirectory]:
    """Run a scenario to its end."""
    from orchestrator.run.launch import launch, prepared_plan
    from orchestrator.run.view import open_view
    from orchestrator.scenario.reading import load, placed

    loaded = load(scenario, overrides)
    _check_workers(workers, loaded.driver)
    if calibrate and DRIVERS[loaded.driver].simulated:
        raise click.UsageError("a simulation computes its links: there is nothing to measure; choose another driver")
    with placed(scenario, overrides):
        plan = prepared_plan(loaded, scenario)
    return launch(
        plan,
        loaded,
        scenario,
        overrides,
        runs,
        lambda virtual: open_view(as_json=as_json, virtual=virtual),
        workers=workers,
        calibrate=calibrate,
        track=track,
    )


def _check_places(runs: Path, junit: Path | None = None, track: Sequence[Destination] = ()) -> None:
    """PlaceError if the run cannot write its files here. Checked before anything is made."""
    from orchestrator.host.places import check_file, check_folder

    check_folder(runs, "choose another folder with --runs")
    if junit is not None:
        check_file(junit, "choose another file with --junit")
    check(track)


def _check_workers(workers: int | None, driver: str) -> None:
    if workers is not None and not kind_of(driver).simulated:
        raise click.UsageError(
            f"--workers is for --driver {listed(simulated=True)}; under {driver} every node has a process"
        )


def _end(outcome: Conclusion, directory: RunDirectory, junit: Path | None, *, as_json: bool) -> NoReturn:
    """Report the result of a run in each requested form, then exit."""
    from orchestrator.results.junit import write_junit
    from orchestrator.results.summary import print_summary

    if as_json:
        click.echo(json.dumps(outcome.summary))
    else:
        print_summary(outcome.summary, directory.report, open_console())
    if junit is not None:
        write_junit(outcome.summary, junit)
    _leave(outcome)


def _leave(outcome: Conclusion) -> NoReturn:
    if outcome.error:
        _fail(outcome.error, outcome.exit_code)
    sys.exit(outcome.exit_code)


def _looked_up(scenario: Path, overrides: Sequence[str]) -> tuple[Scenario, Plan]:
    """Load a scenario and plan it on the data that is present. Writes nothing."""
    from orchestrator.planning.data import looked_up
    from orchestrator.planning.making import make_plan
    from orchestrator.planning.shards import PreparedLabels
    from orchestrator.scenario.reading import load, placed

    loaded = load(scenario, overrides)
    if loaded.algorithm is None:
        return loaded, make_plan(loaded, None, str(scenario.parent.absolute()))
    with placed(scenario, overrides), looked_up(loaded.data, scenario.parent) as prepared:
        return loaded, make_plan(loaded, PreparedLabels.read(prepared))
