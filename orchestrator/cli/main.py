"""The command line: its commands, and the exit codes that they end with.

Each command parses its arguments, calls one function, prints the result and ends with an exit code (`EXIT_CODE_HELP`).

* A run is named with ``-r/--run``. If it is the command's only object, it may also be an argument: ``report RUN``.
  Without a name, it is the latest run, or the only running one. ``compare`` needs several, so they are its arguments.
* ``--set``, ``--driver``, ``--engine`` and ``--device`` override the scenario wherever one is read.
* With ``--json``, a command prints one JSON object on standard output, and all text for people on standard error.
* With ``-q``, a command prints its result and errors only; with ``-v``, also what is logged.
"""

from __future__ import annotations

import os

import click

from orchestrator.cli import catalogue, claims, folders, hosts, kernel, limits, nodes, results, running, runs, scenarios
from orchestrator.cli.options import GroupedCommands
from orchestrator.errors import (
    ArchiveError,
    InventoryError,
    MistakeError,
    OrchestratorError,
    PlaceError,
    PlanError,
    ScenarioError,
)
from orchestrator.layout import print_error

GROUPS: dict[str, list[click.Command]] = {
    "Start": [
        *(scenarios.init, scenarios.copy_example, scenarios.list_examples),
        *(runs.up, folders.wait_for_run, runs.resume_run, running.take_down),
    ],
    "Check": [scenarios.validate, scenarios.show_plan, scenarios.schema, runs.calibrate, hosts.doctor],
    "Watch": [running.list_runs, running.logs, results.serve_runs, running.set_pace, running.inject_fault],
    "Nodes": [nodes.run_inside, nodes.open_shell],
    "Results": [
        folders.list_folders,
        folders.open_report,
        folders.remove_runs,
        results.report_run,
        results.compare_runs,
        results.export_runs,
        results.list_faults,
        runs.sweep_runs,
        limits.find_limits,
        results.archive_runs,
        claims.reproduce_claims,
    ],
    "Hosts": [hosts.list_hosts, kernel.show_kernel, scenarios.write_build_folder],
    "Reference": [catalogue.docs, catalogue.list_entries, catalogue.data, catalogue.completion],
}
"""Every command, by the title of its group in the help."""

OTHER_NAMES = {"run": "up", "deploy": "up", "stop": "down", "destroy": "down"}
"""What other tools call a command."""

FIRST_STEPS = """\
First steps:

  edgebed up hello        run an example: 7 nodes, real links, some seconds, a report
  edgebed init lab        make a project with an algorithm of your own
  edgebed doctor          see what this host can do

All commands: edgebed --help"""

EXIT_CODE_HELP = """\
\b
Exit codes:
  0    done, and the run can be trusted
  1    failed
  2    wrong usage, scenario or place
  3    done, but a check of the run failed
  130  interrupted by a signal
"""


def carry_out() -> int:
    """Run the command line and return the exit code. KeyboardInterrupt if interrupted before a run started."""
    try:
        os.getcwd()
    except OSError as error:
        return _fail(f"the working directory is gone ({error.strerror}): change to one that exists", 2)
    try:
        cli.main(prog_name="edgebed", standalone_mode=False)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except (ScenarioError, PlanError, InventoryError, PlaceError, MistakeError, ArchiveError) as error:
        return _fail(str(error), 2)
    except OrchestratorError as error:
        return _fail(str(error), 1)
    except click.ClickException as error:
        return _fail(usage_text(error), 2)
    except click.Abort:  # click turns KeyboardInterrupt into this
        raise KeyboardInterrupt from None
    return 0


def usage_text(error: click.ClickException) -> str:
    """The text of a wrong usage, in the style of all errors, with the command to see."""
    words = error.format_message().split()
    message = " ".join(words).removesuffix(".")
    if message[1:2].islower():
        message = message[:1].lower() + message[1:]
    if isinstance(error, click.UsageError) and error.ctx is not None:
        message += f"\nsee {error.ctx.command_path} --help"
    return message


def _fail(text: str, code: int) -> int:
    print_error(text)
    return code


def _print_versions(context: click.Context, _option: click.Parameter, requested: bool) -> None:
    if requested and not context.resilient_parsing:
        from orchestrator.verbs.versions import versions

        for name, version in versions().items():
            click.echo(f"{name} {version}")
        context.exit()


@click.group(
    "edgebed",
    cls=GroupedCommands,
    invoke_without_command=True,
    epilog=EXIT_CODE_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_versions,
    help="Print the versions that a bug report needs.",
)
@click.pass_context
def _edgebed(context: click.Context) -> None:
    """edgebed: device-edge-cloud federated learning, on links that exist."""
    if context.invoked_subcommand is None:
        click.echo(f"{context.command.help}\n\n{FIRST_STEPS}")


cli: GroupedCommands = _edgebed
cli.sections = GROUPS
cli.other_names = OTHER_NAMES
for commands in GROUPS.values():
    for command in commands:
        cli.add_command(command)
