"""The command line: its commands, and what the errors of a command end with.

Each command parses its arguments, calls one function, prints the result and ends with an exit code: 0 done and trusted;
1 failed; 2 bad usage or scenario; 3 done, but a fidelity or health check failed; 130 interrupted by a signal, with a
report if there is a record. With ``--json`` a command prints one JSON object on standard output. All text for people
goes to standard error.
"""

from __future__ import annotations

import os

import click

from orchestrator.commands import folders, hosts, living, nodes, results, runs, scenarios
from orchestrator.errors import (
    InventoryError,
    MistakeError,
    OrchestratorError,
    PlaceError,
    PlanError,
    ScenarioError,
)
from orchestrator.layout import print_error


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
    except (ScenarioError, PlanError, InventoryError, PlaceError, MistakeError) as error:
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
    print_error(text)
    return code


class _Commands(click.Group):
    """Commands whose list has the first sentence of each as a whole. click would cut it at the end of the line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        whole = 1000  # characters, more than any first sentence has
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(whole)) for name, each in sorted(self.commands.items())])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="edgebed")
def cli() -> None:
    """edgebed: device-edge-cloud federated learning, on links that exist."""


for command in (
    *(scenarios.init, scenarios.write_build_folder, scenarios.validate, scenarios.show_plan, scenarios.schema),
    *(runs.up, runs.resume_run, runs.sweep_runs, runs.calibrate),
    *(living.list_runs, living.inject_fault, living.set_pace, living.logs, living.take_down),
    *(nodes.run_inside, nodes.open_shell),
    *(folders.list_folders, folders.wait_for_run, folders.open_report, folders.remove_runs),
    *(hosts.doctor, hosts.list_hosts),
    *(results.list_faults, results.report_run, results.serve_runs, results.compare_runs, results.export_runs),
):
    cli.add_command(command)
