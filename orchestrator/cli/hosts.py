"""Commands about this host, and about those of a swarm."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict

import click

from orchestrator.cli.options import GroupedCommands, json_option, print_json, printer, waiting
from orchestrator.layout import open_console


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
    """List the hosts of the Docker Swarm that this host manages, on which the nodes of one run can be."""
    from orchestrator.verbs.hosting.hosts import described, offered, print_hosts

    if context.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError(f"write --json after {context.invoked_subcommand}")
        return
    with waiting("asking the swarm"):
        hosts, agents = offered()
    if as_json:
        print_json({"hosts": [described(host) for host in hosts], "agents": agents})
    else:
        print_hosts(hosts, agents, open_console())


@list_hosts.command("doctor")
@click.argument("names", metavar="[HOST]...", nargs=-1)
@json_option
def examine_hosts(names: tuple[str, ...], as_json: bool) -> None:
    """Show what each HOST, by default all, lacks for runs, and how fast the network between them is."""
    from orchestrator.verbs.hosting.hosts_doctor import UnknownHostError, examine_swarm, print_report

    try:
        examination = examine_swarm(names, printer())
    except UnknownHostError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        print_json(examination.to_json())
    else:
        print_report(examination, open_console())
    sys.exit(0 if examination.usable else 1)


@list_hosts.command("up")
@json_option
def leave_agents(as_json: bool) -> None:
    """Start an agent on each host, so that runs start sooner, and copy the image of nodes to the hosts."""
    from orchestrator.verbs.hosting.hosts_up import up

    result = up(printer())
    if as_json:
        print_json(asdict(result))
    else:
        if result.hosts:
            click.echo(f"agents are left running on {', '.join(result.hosts)}")
        for host, reason in sorted(result.refused.items()):
            click.echo(f"{host}: {reason}", err=True)
    sys.exit(1 if result.refused else 0)


@list_hosts.command("down")
@click.option("--data", is_flag=True, help="Also remove the data sets that the hosts keep.")
@json_option
def end_agents(data: bool, as_json: bool) -> None:
    """End the agents that `hosts up` started."""
    from orchestrator.verbs.hosting.hosts_up import down

    with waiting("ending the agents"):
        result = down(data=data)
    if as_json:
        print_json(asdict(result))
    else:
        click.echo(result.describe())
    sys.exit(1 if result.left else 0)
