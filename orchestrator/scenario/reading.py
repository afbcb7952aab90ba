"""From a YAML file to a checked `Scenario`: read, override, validate, and check that the parts fit together."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from node.assignment import PluginSource
from orchestrator.errors import PlanError, Problem, ScenarioError
from orchestrator.scenario.catalogue import CATALOGUE, catalogue_for, catalogue_of, listed_plugins
from orchestrator.scenario.language import document
from orchestrator.scenario.language.document import Document
from orchestrator.scenario.language.files import DIRECTORY, FILES, piped_text, text_of
from orchestrator.scenario.language.strict import short_key, validated
from orchestrator.scenario.language.syntax import MAX_CHARACTERS, too_long
from orchestrator.scenario.language.words import dotted, name_from
from orchestrator.scenario.population.client_files import with_client_files
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.validation import check

_shorthand = functools.partial(short_key, Scenario)


def load(path: Path | str, overrides: Sequence[str] = ()) -> Scenario:
    """Read a scenario file (``-``: standard input), apply `--set path=value` overrides and check the result. Raises
    ScenarioError, which lists every problem with file, line and YAML path."""
    return parse(scenario_text(Path(path)), str(path), overrides)


def scenario_text(file: Path, where: str = "", path: str = "") -> str:
    """The text of a scenario or a sweep, for ``-`` of standard input. ScenarioError if it cannot be read. ``where``,
    ``path``: of the value that names the file, if one does."""
    try:
        piped = piped_text(file)
        if piped is None:
            return text_of(file, MAX_CHARACTERS, too_long())
        return piped
    except ValueError as error:
        subject = f"{file} " if where else ""
        problem = Problem(where or str(file), path, f"{subject}cannot be read: {error}")
        raise ScenarioError([problem]) from None


def overridden(text: str, name: str, overrides: Sequence[str]) -> Document:
    """A scenario as it is written, with overrides, before it is checked."""
    return document.override(document.read(text, name), overrides, _shorthand)


@contextlib.contextmanager
def placed(
    path: Path,
    overrides: Sequence[str] = (),
    text: str | None = None,
) -> Iterator[None]:
    """Turn a PlanError raised inside into a ScenarioError with the file and line of the wrong setting. The
    scenario was loaded from ``path``, or from ``text`` under this name."""
    try:
        yield
    except PlanError as error:
        if text is None:
            text = scenario_text(path)
        source = overridden(text, str(path), overrides)
        problem = Problem(source.place(error.path), dotted(error.path), error.message)
        raise ScenarioError([problem]) from None


def parse(
    text: str,
    name: str,
    overrides: Sequence[str] = (),
    files: Mapping[str, str] = MappingProxyType({}),
    plugins: Iterable[PluginSource] | None = None,
) -> Scenario:
    """Like `load`, from text.

    ``name`` stands for the file in messages. Relative paths start at its folder, and it is the default for the
    scenario's name. ``files`` maps files that the scenario names to their texts; these files are not read. ``plugins``:
    the sources of the scenario's plug-ins, which are otherwise found by their names.
    """
    folder = Path(name).parent
    source = overridden(text, name, overrides)
    nodes_run_something = source.data.keys() & {"algorithm", "programs"}
    if "scenario" in source.data and not nodes_run_something:
        kind = "study of limits, not a scenario: use `limits`"
        if not source.data.keys() & {"axes", "faults"}:
            kind = "sweep, not a scenario: use `sweep`"
        raise ScenarioError([Problem(name, "", f"this is the file of a {kind}")])
    if plugins is None:
        catalogue = catalogue_for(source, folder)
    else:
        catalogue = catalogue_of(plugins)
    source = with_client_files(source, folder, files)
    data = {"name": name_from(Path(name).stem, "scenario")} | source.data
    names = listed_plugins(source.data)
    if names:
        data["plugins"] = names
    scenario = validated(Scenario, source, data, {DIRECTORY: folder, FILES: files, CATALOGUE: catalogue})
    problems = []
    for path, message in check(scenario):
        problems.append(Problem(source.place(path), dotted(path), message))
    if problems:
        raise ScenarioError(problems)
    return scenario
