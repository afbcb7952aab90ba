"""Commands about running runs: list them, disturb them, pace them, read their logs, end them."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import click

from orchestrator import text
from orchestrator.cli.options import (
    fault_options,
    json_option,
    print_json,
    run_argument,
    run_option,
    runs_option,
    waiting,
)
from orchestrator.errors import RecordError, RunError
from orchestrator.layout import open_console, print_error, write_table
from orchestrator.scenario.actions import ACTIONS


@click.command("ps")
@runs_option
@json_option
def list_runs(runs: Path, as_json: bool) -> None:
    """List your running runs on this host, with their nodes."""
    from orchestrator.verbs.live.ps import running_runs

    running = running_runs(runs)
    if as_json:
        print_json({"runs": running})
        return
    if not running:
        click.echo("nothing is running")
    for run in running:
        rows = []
        for node in run["nodes"]:
            process = str(node["pid"] or "")
            memory = "" if node["pss"] is None else text.size(node["pss"])
            rows.append((node["node"], node["state"], process, memory))
        name = run["run"]
        title = f"{name}: {run['phase']}"
        headings = ("node", "state", "pid", "memory")
        write_table(open_console(), headings, rows, title=title, right={2, 3})
        if run["phase"] == "orphaned":
            resume = f"`resume {name}` continues it, " if run["directory"] else ""
            click.echo(f"its orchestrator was killed: {resume}`down {name}` removes what is left")


@click.command("inject")
@click.argument("action", type=click.Choice(ACTIONS), metavar="ACTION")
@click.argument("targets", metavar="TARGET...", nargs=-1)
@run_option(default="the only running one")
@fault_options
@runs_option
@json_option
def inject_fault(
    action: str,
    targets: tuple[str, ...],
    run: str | None,
    runs: Path,
    as_json: bool,
    **options: str | None,
) -> None:
    """Make a fault in a running run now; ACTION and the options are the keys of `faults` in a scenario.

    \b
    inject crash device-0-1 --for 5s         also pause, disconnect, join, leave; several nodes; devices --count 2
    inject crash cloud --program watcher     one program of a node; also pause
    inject partition edge-0 cloud --for 10s  commas join the nodes of a side: edge-0,edge-1 cloud
    inject degrade edge-0 cloud --loss 5%    the links of one node, or those between two; --profile lte
    inject slow device-0-1 --factor 4
    inject degrade --medium cell-0 --rate 2mbit    also disconnect; --direction up
    inject handover device-0-1 --to cell-1
    inject new-address device-0-1
    inject move device-0-1 --to edge-1
    """
    from orchestrator.scenario.language.document import read_value
    from orchestrator.verbs.live.inject import chosen, command, fault_of, in_words

    try:
        values = {key: read_value(value) for key, value in options.items() if value is not None}
        fault = fault_of(action, targets, values)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    reply = command(chosen(run, runs), "inject", {"fault": fault, "via": "inject"})
    if as_json:
        print_json(reply)
    else:
        for line in in_words(reply):
            click.echo(line)
        for refusal in reply["refused"]:
            print_error(f"{refusal['action']} {refusal['target']}: {refusal['reason']}")
    sys.exit(1 if reply["refused"] else 0)


@click.command("pace")
@click.argument("pace")
@run_option(default="the only running one")
@runs_option
@json_option
def set_pace(pace: str, run: str | None, runs: Path, as_json: bool) -> None:
    """Set the pace of a running simulation: 10x, pause, step (to the next round) or free.

    The results stay the same to the last bit.
    """
    from orchestrator.run.control.pace import speed_of
    from orchestrator.verbs.live.inject import chosen, command

    try:
        speed_of(pace)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    reply = command(chosen(run, runs), "pace", {"to": pace})
    if as_json:
        print_json(reply)
        return
    where = f"at {reply['t']:g} s"
    if reply["round"]:
        where += f", round {reply['round']}"
    click.echo(f"{reply['run']}: {pace}, {where}")


@click.command()
@click.argument("node")
@run_option()
@click.option("-f", "--follow", is_flag=True, help="Continue to print what is written.")
@click.option("--record", is_flag=True, help="Print what the record has of NODE: states, events, metrics.")
@runs_option
@json_option
def logs(
    node: str,
    run: str | None,
    follow: bool,
    record: bool,
    runs: Path,
    as_json: bool,
) -> None:
    """Print the log of NODE, or of `switch` or `forkserver`; of a simulated node, what the record has of it."""
    from orchestrator.host.tail import follow_file, log_of
    from orchestrator.record.directory import find_run
    from orchestrator.results.history import History
    from orchestrator.verbs.results.logs import follow_lines, follow_record

    directory = find_run(run, runs)

    def continues() -> bool:
        return follow and not as_json and directory.holder() is not None

    with contextlib.ExitStack() as stack:
        try:
            history = stack.enter_context(History.open(directory.path))
        except RecordError:
            if record:
                raise
            history = None  # the log files of the nodes can still be read
        if history is not None and history.simulated:
            pieces = follow_record(history, node, continues)
        elif history is not None and record:
            pieces = follow_lines(history, node, continues)
        else:
            pieces = follow_file(log_of(directory, node), continues)
        if as_json:
            lines = "".join(pieces).splitlines()
            print_json({"run": directory.run, "node": node, "lines": lines})
            return
        with contextlib.suppress(KeyboardInterrupt):  # --follow usually ends this way
            for piece in pieces:
                lines_of_piece = piece.replace("\r\n", "\n").replace("\r", "\n")
                click.echo(text.visible(lines_of_piece), nl=False)


@click.command("down")
@run_argument
@click.option("--all", "everything", is_flag=True, help="End each of your runs that left a trace on this host.")
@runs_option
@json_option
def take_down(run: str | None, everything: bool, runs: Path, as_json: bool) -> None:
    """End RUN, by default the latest, and remove everything of it but its directory."""
    from orchestrator.record.directory import find_run, is_id
    from orchestrator.run.down import down, known_hosts, traces

    left = traces(runs)
    if everything:
        targets = left
    elif run is not None and run in left:
        targets = {run: left[run]}
    else:
        try:
            directory = find_run(run, runs)
            targets = {directory.run: directory}
        except RunError as error:
            if run is None or not is_id(run) or not known_hosts():
                here = "on this host is none"
                if left:
                    here = f"on this host are: {', '.join(sorted(left))}"
                raise RunError(f"{error}; {here}") from None
            targets = {run: None}  # a host that was away may have something of it
    with waiting("ending " + ", ".join(targets)):
        results = [down(name, directory) for name, directory in targets.items()]
    if as_json:
        facts = [{**vars(result), "clean": not result.left} for result in results]
        print_json({"runs": facts})
    else:
        for result in results:
            click.echo(result.describe())
        if not results:
            click.echo("nothing of any run is left on this host")
        others = sorted(left.keys() - targets.keys())
        if others:
            click.echo(f"other runs are still here: {', '.join(others)}; `down RUN` ends one of them, `down --all` all")
    incomplete = any(result.left for result in results)
    sys.exit(1 if incomplete else 0)
