"""A YAML mapping that remembers where each value was written, with `--set path=value` overrides on top."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from orchestrator.errors import Problem, ScenarioError
from orchestrator.scenario.language.syntax import KeyPath, read_yaml
from orchestrator.scenario.language.words import describe, dotted, shortened


@dataclass(frozen=True)
class Document:
    """The data, and the origin of each path: ``file:line``, or the override itself."""

    name: str
    data: dict[str, Any]
    places: Mapping[KeyPath, str]

    def place(self, path: KeyPath) -> str:
        """The origin of ``path``; for a path that was not written, the origin of its nearest ancestor."""
        for length in range(len(path), 0, -1):
            ancestor = path[:length]
            if ancestor in self.places:
                return self.places[ancestor]
        return self.name


@lru_cache(maxsize=4)  # a sweep reads its scenario again for each combination
def read(text: str, name: str) -> Document:
    """Read YAML. Raises ScenarioError if the text is not YAML (see `syntax`) or not a mapping."""
    data, places = read_yaml(text, name)
    if not isinstance(data, dict):
        content = "nothing" if data is None else describe(data)
        raise ScenarioError([Problem(name, "", f"a scenario is a mapping (key: value), not {content}")])
    return Document(name, data, places)


def override(
    document: Document,
    assignments: Sequence[str],
    shorthand: Callable[[KeyPath], str | None],
) -> Document:
    """Apply ``path=value`` overrides in order; each value is read as YAML.

    ``shorthand`` names the key that a plain text at a path abbreviates (``links.device-edge: wifi`` is
    ``{profile: wifi}``), so that an override can set a key below it. Missing mappings are created; list items must
    exist.
    """
    data = copy.deepcopy(document.data)
    places = dict(document.places)
    problems = []
    for assignment in assignments:
        where = f"--set {assignment}"
        left, equals, right = assignment.partition("=")
        path: KeyPath = tuple(part.strip() for part in left.split("."))
        if not equals or not all(path):
            problems.append(Problem(where, "", "write it as path=value, e.g. --set algorithm.rounds=3"))
            continue
        try:
            value = copy.deepcopy(read_value(right))
            path = _assign(data, path, value, shorthand)
        except ValueError as error:
            problems.append(Problem(where, dotted(path), str(error)))
            continue
        replaced = [known for known in places if known[: len(path)] == path]
        for known in replaced:
            del places[known]
        for length in range(1, len(path) + 1):
            places.setdefault(path[:length], where)
    if problems:
        raise ScenarioError(problems)
    return Document(document.name, data, places)


@lru_cache(maxsize=256)
def read_value(text: str) -> Any:
    """Read one YAML value, which must not be changed. Raises ValueError."""
    try:
        value, _ = read_yaml(text, "--set")
    except ScenarioError as error:
        problem = error.problems[0]
        inside = f"{problem.path}: " if problem.path else ""
        message = problem.message.removeprefix("not readable as YAML: ")
        raise ValueError(f"the value is not readable as YAML: {inside}{message}") from None
    return value


def _assign(
    data: dict[str, Any],
    path: KeyPath,
    value: Any,
    shorthand: Callable[[KeyPath], str | None],
) -> KeyPath:
    """Set ``path`` in ``data``. Returns the path with its list positions as integers."""
    container: Any = data
    exact: KeyPath = ()
    for part in path[:-1]:
        key = _key(container, exact, str(part))
        exact = (*exact, key)
        if isinstance(container, dict):
            child = container.get(key)
        else:
            child = container[key]
        long_form = shorthand(exact)
        if child is None:
            child = {}
        elif isinstance(child, str) and long_form is not None:
            child = {long_form: child}
        elif not isinstance(child, dict | list):
            raise ValueError(f"'{dotted(exact)}' is {describe(child)}, it has nothing below it to set")
        container[key] = child
        container = child
    key = _key(container, exact, str(path[-1]))
    container[key] = value
    return (*exact, key)


def _key(container: Any, path: KeyPath, part: str) -> str | int:
    if isinstance(container, dict):
        return part
    is_position = re.fullmatch("[0-9]{1,9}", part) is not None
    if not is_position or int(part) >= len(container):
        raise ValueError(
            f"'{dotted(path)}' is a list of {len(container)}: give a position from 0, not '{shortened(part)}'"
        )
    return int(part)
