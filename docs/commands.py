"""The pages of the commands and of the catalogue, from the code. `docs.generate` writes them."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Iterator

import click

from orchestrator.cli.catalogue import shown
from orchestrator.cli.main import GROUPS, cli
from orchestrator.verbs.catalogue import KINDS, entries
from orchestrator.verbs.examples import examples

BAR, LESS = r"\|", r"\<"
ON_ALL = {"--json", "--quiet", "--verbose", "--help"}

COMMANDS = """\
# Commands

`edgebed` alone prints the first steps. `edgebed --help` lists the commands in groups, and
`edgebed COMMAND --help` explains one. This page is generated from that help.

    edgebed list profiles        # what a scenario can name: algorithms, models, profiles, media, hardware and more
    edgebed data                 # the data sets on this host, and how to get the others
    edgebed data cifar10         # download, check and prepare one
    edgebed completion bash > ~/.local/share/bash-completion/completions/edgebed
    edgebed --version            # the versions that a bug report needs

**Which run.** `-r RUN` or `--run RUN` names the run in every command about one. If the run is the only
object of the command, RUN can also be its argument. RUN is the id of a run in the folder `runs/`, or the
path of its folder. `--runs PATH` names another folder of runs. Without RUN, a command takes the latest
run. `inject` and `pace` take the only running run.

    edgebed logs device-0 -r hello-20261125-101500-1a2b
    edgebed inject crash device-0 --for 5s            # the only running run
    edgebed report hello-20261125-101500-1a2b
    edgebed export tables --to csv -r RUN_A -r RUN_B
    edgebed compare RUN_A RUN_B

**Override a scenario.** All commands that read a scenario take `--set`, `--driver`, `--engine` and
`--device`. `--set links.device-edge.latency=5ms` overrides any value.

**Output.** Every command takes these options:

| option | standard output | standard error |
|---|---|---|
| none | the result, and the progress of a run | errors, and progress of what takes over two seconds |
| `--json` | one JSON object | errors, and progress |
| `-q`, `--quiet` | the result | errors |
| `-v`, `--verbose` | the result, and the progress of a run | errors, and what is logged |

On a terminal, progress is shown in place. Elsewhere each step is a line.

| exit code | meaning |
|---|---|
| 0 | done, and the run can be trusted |
| 1 | failed |
| 2 | wrong usage, scenario or place |
| 3 | done, but a check of the run failed |
| 130 | interrupted by a signal |
"""

CATALOGUE = """\
# Catalogue

What a scenario can name, and the checks of a run. `edgebed list KIND` prints these tables, from which
this page is generated. Plug-ins add to them ([Algorithms](../guides/algorithms.md)). A baseline is the
algorithm of a plug-in, which the scenario names under `plugins`.

Tiers in brackets are optional. Quantities are written as in a scenario. A profile is one direction of a
link: if the directions differ, the plain name is the downlink and the name with `-up` is the uplink.
"""


def commands_page() -> str:
    """Every command, with its arguments and options."""
    lines, root = [COMMANDS], click.Context(cli, info_name=cli.name, **cli.context_settings)
    for title, commands in GROUPS.items():
        lines.append(f"## {title}\n")
        for command in commands:
            lines += _command(command, click.Context(command, info_name=command.name, parent=root))
    return "\n".join(lines)


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    arguments = [each for each in command.collect_usage_pieces(context) if each != "[OPTIONS]"]
    yield f"### `{' '.join([context.command_path, *arguments])}`\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            yield textwrap.indent(textwrap.dedent(paragraph[1:].strip("\n")), "    ") + "\n"
        else:
            yield textwrap.fill(" ".join(paragraph.split()), 100, break_on_hyphens=False) + "\n"
    records = [
        each.get_help_record(context)
        for each in command.params
        if isinstance(each, click.Option) and not ON_ALL & set(each.opts)
    ]
    yield from table(("option", ""), [(f"`{record[0]}`", " ".join(record[1].split())) for record in records if record])
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from _command(each, click.Context(each, info_name=name, parent=context))


def catalogue_page() -> str:
    """The tables of `edgebed list`."""
    lines = [CATALOGUE]
    for kind in KINDS:
        found = entries(kind)
        lines.append(f"## {kind.capitalize()}\n")
        rows = [[f"`{each['name']}`", *[shown(value) for value in list(each.values())[1:]]] for each in found]
        lines += table(found[0], rows)
    return "\n".join(lines)


EXAMPLES = """\
# Scenarios

Run one with `edgebed up NAME`, `edgebed sweep NAME` or `edgebed limits NAME`. `edgebed new NAME mine.yaml`
copies one. The [gallery](../docs/gallery.md) shows some of them with results. This page is generated from the
first lines
of the files; times are for two cores.
"""


def examples_page() -> str:
    """The list of examples, next to their files."""
    lines = [EXAMPLES]
    for title, kind in (("Scenarios", "scenario"), ("Sweeps", "sweep"), ("Studies of limits", "study")):
        rows = [
            (f"[{each.name}]({each.name}.yaml)", each.question, f"{each.time}, {each.driver}", ", ".join(each.requires))
            for each in examples()
            if each.kind == kind
        ]
        lines += [f"## {title}\n", *table(("name", "question", "time, driver", "also requires"), rows)]
    return "\n".join(lines)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    body = [f"| {' | '.join(cell.replace('|', BAR).replace('<', LESS) for cell in row)} |" for row in rows]
    if body:
        columns = list(head)
        yield f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|"
        yield from body
        yield ""
