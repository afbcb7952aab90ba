"""Commands about what scenarios may name: lists of it, and data sets; and completion of the shell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from click.shell_completion import get_completion_class

from orchestrator.cli.options import json_option, print_json, printer, waiting
from orchestrator.layout import PROSE, open_console, write, write_table

KINDS = ("algorithms", "baselines", "models", "datasets", "profiles", "media", "hardware", "checks")
FIGURES = ("classes", "latency", "jitter", "rate", "speed", "cores", "memory")


@click.command("list")
@click.argument("kind", type=click.Choice(KINDS), metavar="KIND")
@json_option
def list_entries(kind: str, as_json: bool) -> None:
    """List what a scenario can name, with values and sources, or the checks of a run.

    KIND is algorithms, baselines, models, datasets, profiles, media, hardware or checks. Baselines are
    algorithms of plug-ins. Tiers in brackets are optional. Quantities are written as in a scenario.
    """
    from orchestrator.verbs.catalogue import entries

    found = entries(kind)
    if as_json:
        print_json({kind: found})
        return
    headings = list(found[0])
    right = [place for place, heading in enumerate(headings) if heading in FIGURES]
    rows = [[shown(each[key]) for key in headings] for each in found]
    write_table(open_console(PROSE), headings, rows, right=right)


def shown(value: Any) -> str:
    """A value in a cell of a table."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {shown(each)}" for key, each in value.items())
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


@click.command()
@click.argument("name", required=False)
@json_option
def data(name: str | None, as_json: bool) -> None:
    """List the data sets on this host, or download, check and prepare the data set NAME for runs."""
    from orchestrator.verbs.data import data_sets, fetch, searched

    if name is not None:
        with waiting(f"looking for data set {name}"):
            prepared = fetch(name)
        samples = {"train": len(prepared.train_labels), "test": len(prepared.test_labels)}
        if as_json:
            facts = {"name": name, "source": prepared.source, "folder": str(prepared.directory)}
            print_json({**facts, "sha256": prepared.sha256, "samples": samples})
        else:
            click.echo(f"{name}: {samples['train']:,} training and {samples['test']:,} test samples, ready for runs")
            printer()(f"from {prepared.source}, in {prepared.directory}, sha256 {prepared.sha256}")
        return
    found = data_sets()
    folders = [str(folder) for folder in searched()]
    if as_json:
        print_json({"datasets": found, "searched": folders})
        return
    rows = [(each["name"], each["summary"], each["found"] or f"missing: {each['get']}") for each in found]
    write_table(open_console(), ("name", "summary", "found in"), rows)
    write(open_console(), "", f"searched, after the scenario's folder: {', '.join(folders)}")


@click.command()
@click.argument("topic", nargs=-1)
@click.option("--search", "-s", is_flag=True, help="Search the text, even if a page has this name.")
@json_option
def docs(topic: tuple[str, ...], search: bool, as_json: bool) -> None:
    """Show the page of the documentation about TOPIC, or list all topics.

    If no page has this name, list the sections with all these words, the best
    first.
    """
    from rich.markdown import Markdown

    from orchestrator.verbs.pages import find, is_page, pages, title

    console = open_console()
    words = " ".join(topic).split()
    if words and (search or not is_page(" ".join(words))):
        _print_found(words, as_json)
    elif words:
        page = find(name := words[0])
        if as_json:
            print_json({"topic": name, "title": title(page), "file": str(page), "text": page.read_text()})
        elif console.is_terminal:
            with console.pager(styles=True):
                console.print(Markdown(page.read_text(), hyperlinks=False))
        else:
            click.echo(page.read_text(), nl=False)
    elif as_json:
        print_json({"topics": [{"topic": name, "title": title(page)} for name, page in pages().items()]})
    else:
        write_table(console, ("topic", "page"), [(name, title(page)) for name, page in pages().items()])


def _print_found(words: Sequence[str], as_json: bool) -> None:
    from orchestrator.verbs.search import MOST, search

    found = search(words)
    if as_json:
        print_json({"words": list(words), "found": [{**asdict(each), "file": str(each.file)} for each in found]})
        return
    rows = [(each.topic, each.heading, str(each.line), each.text) for each in found[:MOST]]
    write_table(open_console(), ("topic", "section", "line", "text"), rows, right={2})
    more = len(found) - MOST
    printer()("`edgebed docs TOPIC` shows a page" + (f"; {more} more sections have these words" if more > 0 else ""))


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
