"""Commands about the kernel of runs in virtual time."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.cli.options import GroupedCommands, json_option, print_json, printer


@click.group("kernel", cls=GroupedCommands, invoke_without_command=True)
@json_option
@click.pass_context
def show_kernel(context: click.Context, as_json: bool) -> None:
    """Show the kernel that `up --virtual` boots, or build it."""
    from orchestrator.drivers.virtual.kernel import needed_kernel

    if context.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError(f"write --json after {context.invoked_subcommand}")
        return
    _print(needed_kernel(), as_json)


@show_kernel.command("build")
@json_option
def build_kernel(as_json: bool) -> None:
    """Build the kernel once, in some minutes, from the distribution's source of Linux.

    \b
    apt-get install linux-source libc6-dev make gcc flex bison bc tar xz-utils   # as root; Debian, Ubuntu
    edgebed kernel build
    """
    from orchestrator.drivers.virtual.kernel import build

    kernel = build(printer())
    _print(kernel, as_json)


def _print(kernel: Path, as_json: bool) -> None:
    if as_json:
        print_json({"kernel": str(kernel)})
    else:
        click.echo(kernel)
