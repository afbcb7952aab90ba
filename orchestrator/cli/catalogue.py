"""Commands about what scenarios may name: lists of it, and data sets; and completion of the shell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from click.shell_completion import get_completion_class

from orchestrator.cli.options import json_option, print_json, printer, waiting
from orchestrator.layout import PROSE, open_console, write, write_table

KINDS = (
    "algorithms",
    "baselines",
    "models",
    "datasets",
    "profiles",
    "media",
    "hardware",
    "checks",
)
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

    listed = entries(kind)
    if as_json:
        print_json({kind: listed})
        return
    headings = list(listed[0])
    right = [place for place, heading in enumerate(headings) if heading in FIGURES]
    rows = []
    for entry in listed:
        rows.append([shown(entry[key]) for key in headings])
    write_table(open_console(PROSE), headings, rows, right=right)


def shown(value: Any) -> str:
    """A value in a cell of a table."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {shown(part)}" for key, part in value.items())
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
        train = len(prepared.train_labels)
        test = len(prepared.test_labels)
        if as_json:
            facts = {
                "name": name,
                "source": prepared.source,
                "folder": str(prepared.directory),
                "sha256": prepared.sha256,
                "samples": {"train": train, "test": test},
            }
            print_json(facts)
        else:
            click.echo(f"{name}: {train:,} training and {test:,} test samples, ready for runs")
            report = printer()
            report(f"from {prepared.source}, in {prepared.directory}, sha256 {prepared.sha256}")
        return
    listed = data_sets()
    folders = [str(folder) for folder in searched()]
    if as_json:
        print_json({"datasets": listed, "searched": folders})
        return
    rows = []
    for data_set in listed:
        place = data_set["found"] or f"missing: {data_set['get']}"
        rows.append((data_set["name"], data_set["summary"], place))
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
    from orchestrator.verbs.pages import is_page, pages, title

    words = " ".join(topic).split()
    if not words:
        titles = {name: title(page) for name, page in pages().items()}
        if as_json:
            topics = [{"topic": name, "title": page_title} for name, page_title in titles.items()]
            print_json({"topics": topics})
        else:
            write_table(open_console(), ("topic", "page"), titles.items())
    elif search or not is_page(" ".join(words)):
        _print_sections(words, as_json)
    else:
        _print_page(words[0], as_json)


def _print_page(name: str, as_json: bool) -> None:
    from rich.markdown import Markdown

    from orchestrator.verbs.pages import find, title

    page = find(name)
    text = page.read_text()
    console = open_console()
    if as_json:
        print_json({"topic": name, "title": title(page), "file": str(page), "text": text})
    elif console.is_terminal:
        with console.pager(styles=True):
            console.print(Markdown(text, hyperlinks=False))
    else:
        click.echo(text, nl=False)


def _print_sections(words: Sequence[str], as_json: bool) -> None:
    from orchestrator.verbs.search import MOST, search

    sections = search(words)
    if as_json:
        facts = [{**asdict(section), "file": str(section.file)} for section in sections]
        print_json({"words": list(words), "found": facts})
        return
    rows = []
    for section in sections[:MOST]:
        rows.append((section.topic, section.heading, str(section.line), section.text))
    write_table(open_console(), ("topic", "section", "line", "text"), rows, right={2})
    hint = "`edgebed docs TOPIC` shows a page"
    more = len(sections) - MOST
    if more > 0:
        hint += f"; {more} more sections have these words"
    report = printer()
    report(hint)


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
    if as_json:
        print_json({"shell": shell, "script": script})
    else:
        click.echo(script, nl=False)
