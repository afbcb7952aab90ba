"""The options that several verbs of the command line share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from netem.profile import KEYS
from orchestrator.exports.kinds import Destination
from orchestrator.host import streams

RUNS = Path("runs")
RESULT = "orchestrator.options.result"  # the stream of a command's result, in the context of the command
F = TypeVar("F", bound=Callable[..., Any])


def scenario_options(command: F) -> F:
    """Add the arguments of every verb that reads a scenario."""
    command = click.option(
        "--set",
        "overrides",
        metavar="PATH=VALUE",
        multiple=True,
        help="Override one value of the scenario, e.g. --set links.device-edge.latency=5ms; may be repeated.",
    )(command)
    return scenario_argument("scenario")(command)


def scenario_argument(name: str, *, sweep: bool = False) -> Callable[[F], F]:
    """Add the argument that names a scenario, or with ``sweep`` a sweep. The command receives the path of its file."""

    def file_of(context: click.Context, _argument: click.Parameter, given: str | None) -> Path | None:
        from orchestrator.verbs.examples import chosen

        return None if context.resilient_parsing else chosen(given, sweep=sweep)

    def add(command: F) -> F:
        what = f"{name.upper()} is a path, the name of an example (see `edgebed examples`), or - for standard input."
        only = f"By default it is the only {'sweep' if sweep else 'scenario'} in the current folder."
        command.__doc__ = f"{command.__doc__}\n\n    {what} {only}"
        return click.argument(name, required=False, callback=file_of)(command)

    return add


def json_option(command: F) -> F:
    """Add --json. Standard output then has what `print_json` prints, and nothing else: what plug-ins print while the
    command runs goes to standard error."""

    def reserve(context: click.Context, _option: click.Parameter, as_json: bool) -> bool:
        if as_json and RESULT not in context.meta:
            context.meta[RESULT] = context.with_resource(streams.reserved_output())
        return as_json

    return click.option("--json", "as_json", is_flag=True, callback=reserve, help="Print one JSON object.")(command)


def print_json(value: Any) -> None:
    """Print the result of a command with --json."""
    print(json.dumps(value), file=click.get_current_context().meta[RESULT], flush=True)


def fault_options(command: F) -> F:
    """Add the keys of a fault that are not its action, time and nodes."""
    for key in reversed(("profile", *KEYS)):
        command = click.option(f"--{key}", metavar="VALUE", help=f"degrade: the {key} of the links.")(command)
    command = click.option("--factor", metavar="NUMBER", help="slow: how many times longer steps take.")(command)
    command = click.option("--fraction", metavar="SHARE", help="Of devices or edges: which share of them.")(command)
    command = click.option("--count", metavar="NUMBER", help="Of devices or edges: how many of them.")(command)
    return click.option("--for", "for_", metavar="DURATION", help="How long; by default to the run's end.")(command)


def runs_option(command: F) -> F:
    return click.option(
        "--runs", type=click.Path(path_type=Path), default=RUNS, show_default=True, help="The folder of runs."
    )(command)


def junit_option(command: F) -> F:
    return click.option(
        "--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write the checks here as JUnit XML."
    )(command)


def track_option(command: F) -> F:
    return click.option(
        "--track",
        metavar="KIND:PLACE",
        multiple=True,
        callback=lambda _context, _option, given: [Destination.parse(each) for each in given],
        help="Show the run while it goes on: tensorboard:DIR, mlflow:DIR or mlflow:URI; may be repeated.",
    )(command)
