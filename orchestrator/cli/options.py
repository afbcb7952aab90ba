"""The options that several commands share, and what a command prints next to its result."""

from __future__ import annotations

import difflib
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from netem.profile import KEYS
from node.catalogue.json_text import strict_json
from orchestrator import progress
from orchestrator.exports.destinations import Destination
from orchestrator.host.process import streams
from orchestrator.scenario.sections.drivers import DRIVERS
from orchestrator.scenario.sections.engines import ENGINES
from orchestrator.text import visible

if TYPE_CHECKING:
    from orchestrator.verbs.examples import Kind

RUNS = Path("runs")
RESULT = "orchestrator.cli.options.result"
QUIET = "orchestrator.cli.options.quiet"
VERBOSE = "orchestrator.cli.options.verbose"
RUN = "orchestrator.cli.options.run"
"""Keys in the context of a command: the stream of its result, -q, -v and -r."""
OVERRIDES = {"driver": "driver", "engine": "engine", "device": "compute.device"}
"""The options that override a value of the scenario, with the path of the value."""
F = TypeVar("F", bound=Callable[..., Any])
Resolved = tuple[str | None, click.Command | None, list[str]]
"""The name of a command, the command, and its arguments."""


class GroupedCommands(click.Group):
    """Commands that are listed in ``sections`` by their titles, each with its whole first sentence, which click would
    cut at the end of the line. ``other_names``: what other tools call a command, with its name here."""

    sections: Mapping[str, Sequence[click.Command]] = {}
    other_names: Mapping[str, str] = {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        whole = 1000  # characters, more than any first sentence has
        sections = self.sections or {"Commands": list(self.commands.values())}
        for title, commands in sections.items():
            entries = []
            for command in commands:
                entries.append((command.name or "", command.get_short_help_str(whole)))
            with formatter.section(title):
                formatter.write_dl(entries)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Resolved:
        name = args[0]
        if name in self.commands or name.startswith("-"):
            return super().resolve_command(ctx, args)
        own_name = self.other_names.get(name)
        if own_name is None:
            close = difflib.get_close_matches(name, self.commands, n=1, cutoff=0.5)
            own_name = close[0] if close else None
        hint = "" if own_name is None else f"; did you mean `{ctx.command_path} {own_name}`?"
        raise click.UsageError(f"there is no command '{name}'{hint}", ctx)


class DriverChoice(click.Choice):  # type: ignore[type-arg]  # a parameter only since click 8.2
    """The name of one of edgebed's drivers, or of an installed plug-in, which then has a driver of this name."""

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        if value not in self.choices:
            from node.plugins import advertised

            if value in advertised():
                return value
        return super().convert(value, param, ctx)


def scenario_options(command: F) -> F:
    """Add the arguments of every command that reads a scenario."""
    return scenario_argument("scenario")(override_options(command))


def override_options(command: F) -> F:
    """Add the options that override values of a scenario. The command receives all of them as ``overrides``."""

    @functools.wraps(command)
    def overriding(*arguments: Any, overrides: tuple[str, ...], **options: Any) -> Any:
        for name, path in OVERRIDES.items():
            value = options.pop(name)
            if value is not None:
                overrides += (f"{path}={value}",)
        return command(*arguments, overrides=overrides, **options)

    add: Any = overriding
    for option in (
        click.option("--device", help="Train on this device: cpu, cuda, cuda:1."),
        click.option("--engine", type=click.Choice(list(ENGINES)), help="Shape the links with this engine."),
        click.option("--driver", type=DriverChoice(list(DRIVERS)), help="Run the nodes with this driver."),
        click.option(
            "--virtual",
            "driver",
            flag_value="virtual",
            help="Run the nodes in virtual time, exact on a busy host: --driver virtual.",
        ),
        click.option(
            "--set",
            "overrides",
            metavar="PATH=VALUE",
            multiple=True,
            help="Override one value of the scenario, e.g. --set links.device-edge.latency=5ms; may be repeated.",
        ),
    ):
        add = option(add)
    return add  # type: ignore[no-any-return]


def scenario_argument(name: str, kind: Kind = "scenario") -> Callable[[F], F]:
    """Add the argument that names a scenario, a sweep or a study. The command receives the path of its file."""

    def file_of(context: click.Context, _argument: click.Parameter, given: str | None) -> Path | None:
        from orchestrator.verbs.examples import chosen

        if context.resilient_parsing:
            return None
        return chosen(given, kind)

    def add(command: F) -> F:
        what = f"{name.upper()} is a path, the name of an example (see `edgebed examples`), or - for standard input."
        only = f"By default it is the only {kind} in the current folder."
        command.__doc__ = f"{command.__doc__}\n\n    {what} {only}"
        return click.argument(name, required=False, callback=file_of)(command)

    return add


def json_option(command: F) -> F:
    """Add --json, and -q and -v, as every command has them.

    With --json, standard output has what `print_json` prints, and nothing else: what plug-ins print while the command
    runs goes to standard error.
    """

    def reserve(context: click.Context, _option: click.Parameter, as_json: bool) -> bool:
        if as_json and RESULT not in context.meta:
            root = context.find_root()  # it is closed even if a later argument is wrong
            context.meta[RESULT] = root.with_resource(streams.reserved_output())
        return as_json

    def silence(context: click.Context, _option: click.Parameter, quiet: bool) -> None:
        context.meta[QUIET] = quiet or context.meta.get(QUIET, False)  # also of the group of commands

    def log(context: click.Context, _option: click.Parameter, verbose: bool) -> None:
        if verbose and VERBOSE not in context.meta:
            context.meta[VERBOSE] = True
            tell = functools.partial(click.echo, err=True)
            context.find_root().with_resource(progress.logging_to(tell))

    for option in (
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            expose_value=False,
            callback=log,
            help="Print what is logged.",
        ),
        click.option(
            "-q",
            "--quiet",
            is_flag=True,
            expose_value=False,
            callback=silence,
            help="Print result and errors only.",
        ),
        click.option("--json", "as_json", is_flag=True, callback=reserve, help="Print one JSON object."),
    ):
        command = option(command)
    return command


def is_quiet() -> bool:
    return bool(click.get_current_context().meta.get(QUIET))


def is_verbose() -> bool:
    return VERBOSE in click.get_current_context().meta


def printer(*, err: bool = True) -> Callable[[str], None]:
    """A function that prints a line about what the command does, by default on standard error; nothing with -q."""
    if is_quiet():
        return lambda _: None
    return lambda line: click.echo(visible(line), err=err)


def check_places(
    runs: Path,
    junit: Path | None = None,
    track: Sequence[Destination] = (),
) -> None:
    """PlaceError if the run cannot write its files here. Checked before anything is made."""
    from orchestrator.host.places import check_file, check_folder

    check_folder(runs, "choose another folder with --runs")
    if junit is not None:
        check_file(junit, "choose another file with --junit")
    for place in track:
        place.check()


def arguments_of_tasks(runs: Path, overrides: Sequence[str]) -> list[str]:
    """The arguments of the command line that the tasks of a sweep or a study have."""
    arguments = ["--runs", str(runs)]
    for override in overrides:
        arguments += ["--set", override]
    return arguments


def waiting(task: str) -> AbstractContextManager[None]:
    """While it lasts, and after two seconds, show the ``task`` on standard error. Nothing with -q."""
    if is_verbose():
        logging.getLogger("orchestrator").info(task)
    if is_quiet() or is_verbose():
        return nullcontext()
    return progress.waiting(task)


def print_json(value: Any) -> None:
    """Print the result of a command with --json."""
    print(strict_json(value), file=click.get_current_context().meta[RESULT], flush=True)


DIRECTION = click.Choice(("up", "down"))
FAULT_OPTIONS: dict[str, tuple[str, str | click.Choice[str], str]] = {
    "for_": ("--for", "DURATION", "How long; by default to the run's end."),
    "count": ("--count", "NUMBER", "Of devices or edges: how many of them."),
    "fraction": ("--fraction", "SHARE", "Of devices or edges: which share of them."),
    "factor": ("--factor", "NUMBER", "slow: how many times longer steps take."),
    "program": ("--program", "NAME", "crash, pause: one program of the nodes."),
    "medium": ("--medium", "MEDIUM", "disconnect, degrade: a shared medium."),
    "direction": ("--direction", DIRECTION, "disconnect, partition, degrade: one direction."),
    "to": ("--to", "NAME", "handover: the shared medium that nodes move to; move: the edge."),
}
"""The keys of a fault that are not its action, time and nodes: the option, what it takes, and its help."""
for link_key in ("profile", *KEYS):
    option = "--" + link_key.replace("_", "-")
    FAULT_OPTIONS[link_key] = (option, "VALUE", f"degrade: the {link_key} of the links.")


def fault_options(command: F) -> F:
    for name, (option, takes, explanation) in reversed(FAULT_OPTIONS.items()):
        kind: dict[str, Any] = {"type": takes}
        if isinstance(takes, str):
            kind = {"metavar": takes}
        command = click.option(option, name, help=explanation, **kind)(command)
    return command


def run_option(
    name: str = "run",
    *,
    default: str = "the latest",
    many: bool = False,
) -> Callable[[F], F]:
    """Add -r/--run, for a command that has another argument. ``default``: which run it is without."""
    what = "The run, or a sweep; may be repeated" if many else "The run"
    return click.option(
        "-r",
        "--run",
        name,
        metavar="RUN",
        multiple=many,
        shell_complete=_complete_run,
        help=f"{what}; by default {default}.",
    )


def run_argument(command: F) -> F:
    """Add RUN, the only object of a command, by default the latest run. -r/--run is another way to name it."""

    def keep(context: click.Context, _option: click.Parameter, name: str | None) -> None:
        context.meta[RUN] = name

    def chosen(context: click.Context, _argument: click.Parameter, name: str | None) -> str | None:
        named: str | None = context.meta.get(RUN)
        if name is not None and named is not None:
            raise click.UsageError(f"name one run: {name} or --run {named}")
        return named if name is None else name

    argument = click.argument("run", required=False, callback=chosen, shell_complete=_complete_run)
    option = click.option(
        "-r",
        "--run",
        "named",
        metavar="RUN",
        expose_value=False,
        callback=keep,
        help="The same as RUN.",
    )
    return option(argument(command))


def _complete_run(context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    """The names of runs that start with what was typed, for completion in a shell."""
    from orchestrator.record.directory import known_runs

    directories = known_runs(context.params.get("runs") or RUNS)
    names = [directory.run for directory in directories]
    return [name for name in names if name.startswith(start)]


def _destinations(
    _context: click.Context,
    _option: click.Parameter,
    places: Sequence[str],
) -> list[Destination]:
    return [Destination.parse(place) for place in places]


runs_option = click.option(
    "--runs",
    type=click.Path(path_type=Path),
    default=RUNS,
    show_default=True,
    help="The folder of runs.",
)
junit_option = click.option(
    "--junit",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the checks here as JUnit XML.",
)
track_option = click.option(
    "--track",
    metavar="KIND:PLACE",
    multiple=True,
    callback=_destinations,
    help="Follow the run in another tool: tensorboard:DIR, mlflow:DIR or mlflow:URI; may be repeated.",
)
