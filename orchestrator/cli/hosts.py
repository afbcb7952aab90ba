"""Commands about this host, and about those that it manages."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import GroupedCommands, json_option, print_json, printer, waiting
from orchestrator.layout import open_console

if TYPE_CHECKING:
    from orchestrator.drivers.base import HostsResult


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Show what this host can do, and what to install or load for the rest."""
    from orchestrator.verbs.doctor import examine, print_findings

    with waiting("trying what this host can do"):
        findings = asyncio.run(examine())
    if as_json:
        print_json({"findings": [vars(finding) for finding in findings]})
    else:
        print_findings(findings, open_console())
    failed = any(finding.ok is False for finding in findings)
    sys.exit(1 if failed else 0)


@click.group("hosts", cls=GroupedCommands, invoke_without_command=True)
@json_option
@click.pass_context
def list_hosts(context: click.Context, as_json: bool) -> None:
    """List the hosts that this host manages, on which the nodes of one run can be."""
    from orchestrator.drivers.base import hosting

    if context.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError(f"write --json after {context.invoked_subcommand}")
        return
    with waiting("asking for the hosts"):
        result = hosting().list_hosts()
    _print(result, as_json)


@list_hosts.command("doctor")
@click.argument("names", metavar="[HOST]...", nargs=-1)
@json_option
def examine_hosts(names: tuple[str, ...], as_json: bool) -> None:
    """Show what each HOST, by default all, lacks for runs, and how fast the network between them is."""
    from orchestrator.drivers.base import UnknownHostError, hosting

    try:
        result = hosting().examine_hosts(names, printer())
    except UnknownHostError as error:
        raise click.UsageError(str(error)) from None
    _print(result, as_json)


@list_hosts.command("up")
@json_option
def leave_agents(as_json: bool) -> None:
    """Start an agent on each host, so that runs start sooner, and copy the image of nodes to the hosts."""
    from orchestrator.drivers.base import hosting

    result = hosting().leave_agents(printer())
    _print(result, as_json)


@list_hosts.command("down")
@click.option("--data", is_flag=True, help="Also remove the data sets that the hosts keep.")
@json_option
def end_agents(data: bool, as_json: bool) -> None:
    """End the agents that `hosts up` started."""
    from orchestrator.drivers.base import hosting

    with waiting("ending the agents"):
        result = hosting().end_agents(data=data)
    _print(result, as_json)


def _print(result: HostsResult, as_json: bool) -> None:
    """Print the result. The exit code is 1 if something needs attention."""
    if as_json:
        print_json(result.to_json())
    else:
        result.show(open_console())
    if not result.complete:
        sys.exit(1)
