"""The command `completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from orchestrator.cli.options import json_option, print_json

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@json_option
@click.pass_context
def completion(context: click.Context, shell: str, as_json: bool) -> None:
    """Print a script that completes the command line in SHELL.

    \b
    bash: edgebed completion bash > ~/.local/share/bash-completion/completions/edgebed
    zsh:  edgebed completion zsh > "${fpath[1]}/_edgebed"
    fish: edgebed completion fish > ~/.config/fish/completions/edgebed.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    template = kind(context.find_root().command, {}, "edgebed", "_EDGEBED_COMPLETE")
    script = template.source_template % template.source_vars()
    print_json({"shell": shell, "script": script}) if as_json else click.echo(script, nl=False)
