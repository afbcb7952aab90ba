"""A YAML mapping that remembers where each value was written, with `--set path=value` overrides on top.

YAML is read in its safe subset: plain data, anchors and merge keys, no tags that make objects. A key given twice is
refused, because YAML readers otherwise keep the last one and say nothing.
"""

from __future__ import annotations

import copy
import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from orchestrator.errors import Problem, ScenarioError

Path = tuple[str | int, ...]
_PLAIN = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_NODE_LIMIT = 100_000  # anchors can multiply; no scenario comes near it


@dataclass(frozen=True)
class Document:
    """The data, and for each path the place that said it: ``file:line``, or the override itself."""

    name: str
    data: dict[str, Any]
    places: Mapping[Path, str]

    def place(self, path: Path) -> str:
        """Where ``path`` was written; for a path that was not written, where the nearest one above it was."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return self.name


def dotted(path: Path) -> str:
    """``("faults", 0, "at")`` as ``faults.0.at``, the form that `--set` takes."""
    return ".".join(str(part) for part in path)


def read(text: str, name: str) -> Document:
    """Read YAML. Raises ScenarioError for what is not YAML, not a mapping, or says a key twice."""
    reader = _Reader(name)
    try:
        data = reader.read(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise ScenarioError([Problem(where, "", f"not readable as YAML: {error.problem or error.context}")]) from None
    except yaml.YAMLError as error:
        raise ScenarioError([Problem(name, "", f"not readable as YAML: {error}")]) from None
    if not reader.problems and not isinstance(data, dict):
        found = "nothing" if data is None else describe(data)
        reader.problems.append(Problem(name, "", f"a scenario is a mapping (key: value), here is {found}"))
    if reader.problems:
        raise ScenarioError(reader.problems)
    return Document(name, data, reader.places)


def describe(value: Any) -> str:
    """A value in the words of an error message: ``the text 'wifi'``, ``the number 3``, ``a mapping``, ``a list``."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"the truth value {str(value).lower()}"
        case str():
            return f"the text {shortened(value)!r}"
        case int() | float():
            return f"the number {value}"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case datetime.date():  # a datetime is one too
            return f"the date {value} (quotes make it a text)"
        case bytes():
            return "binary data"
        case _:
            return repr(value)


def shortened(text: str, length: int = 60) -> str:
    """A text that a message quotes, the end of a long one left out."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def override(document: Document, assignments: Sequence[str], shorthand: Callable[[Path], str | None]) -> Document:
    """Apply ``path=value`` overrides in order; each value is read as YAML.

    ``shorthand`` names the key that a plain text at a path stands for (``links.device-edge: wifi`` is
    ``{profile: wifi}``), so that an override can reach below it. Missing mappings are made, list items must exist.
    """
    data, places, problems = copy.deepcopy(document.data), dict(document.places), []
    for assignment in assignments:
        where = f"--set {assignment}"
        left, equals, right = assignment.partition("=")
        path: Path = tuple(part.strip() for part in left.split("."))
        if not equals or not all(path):
            problems.append(Problem(where, "", "write it as path=value, e.g. --set algorithm.rounds=3"))
            continue
        try:
            value = read_value(right)
            path = _assign(data, path, value, shorthand)
        except ValueError as error:
            problems.append(Problem(where, dotted(path), str(error)))
            continue
        for written in [known for known in places if known[: len(path)] == path]:
            del places[written]
        places[path] = where
    if problems:
        raise ScenarioError(problems)
    return Document(document.name, data, places)


def read_value(text: str) -> Any:
    """One value in YAML. Raises ValueError."""
    reader = _Reader("--set")
    try:
        value = reader.read(text)
    except yaml.YAMLError as error:
        raise ValueError(f"the value is not readable as YAML: {' '.join(str(error).split())}") from None
    if reader.problems:
        raise ValueError(reader.problems[0].message)
    return value


def _assign(data: dict[str, Any], path: Path, value: Any, shorthand: Callable[[Path], str | None]) -> Path:
    """Set ``path`` in ``data``; the path comes back with its list positions as numbers."""
    container: Any = data
    exact: Path = ()
    for part in path[:-1]:
        key = _key(container, exact, str(part))
        exact = (*exact, key)
        child = container.get(key) if isinstance(container, dict) else container[key]
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


def _key(container: Any, path: Path, part: str) -> str | int:
    if isinstance(container, dict):
        return part
    if not part.isdecimal() or int(part) >= len(container):
        raise ValueError(f"'{dotted(path)}' is a list of {len(container)}: give a position from 0, not '{part}'")
    return int(part)


class _Reader:
    """Turns YAML nodes into plain data and notes the place of each."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._left = _NODE_LIMIT
        self.places: dict[Path, str] = {}
        self.problems: list[Problem] = []

    def read(self, text: str) -> Any:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            return None if node is None else self._value(loader, node, ())
        except RecursionError:
            raise yaml.YAMLError("it is nested too deeply, or an anchor contains itself") from None
        finally:
            loader.dispose()

    def _value(self, loader: yaml.SafeLoader, node: yaml.Node, path: Path) -> Any:
        self._left -= 1
        if self._left < 0:
            raise yaml.YAMLError("anchors repeat one another too often")
        if isinstance(node, yaml.CollectionNode) and node.tag not in _PLAIN:
            raise yaml.MarkedYAMLError(problem=f"the tag {node.tag} is not known here", problem_mark=node.start_mark)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(loader, node, path)
        if isinstance(node, yaml.SequenceNode):
            for position, item in enumerate(node.value):
                self.places[(*path, position)] = self._place(item)
            return [self._value(loader, item, (*path, position)) for position, item in enumerate(node.value)]
        try:
            return loader.construct_object(node)
        except ValueError as error:  # e.g. the impossible date 2026-13-01
            raise yaml.MarkedYAMLError(problem=str(error), problem_mark=node.start_mark) from None

    def _mapping(self, loader: yaml.SafeLoader, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        self._refuse_repeated(node, path)
        loader.flatten_mapping(node)
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                message = f"the key {key_node.value!r} is {describe(key)} in YAML; put it in quotes"
                self.problems.append(Problem(self._place(key_node), dotted(path), message))
                continue
            self.places[(*path, key)] = self._place(key_node)
            result[key] = self._value(loader, value_node, (*path, key))
        return result

    def _refuse_repeated(self, node: yaml.MappingNode, path: Path) -> None:
        first: dict[str, str] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            place = self._place(key_node)
            if key_node.value in first:
                message = f"the key is given twice, first at {first[key_node.value]}"
                self.problems.append(Problem(place, dotted((*path, key_node.value)), message))
            first.setdefault(key_node.value, place)

    def _place(self, node: yaml.Node) -> str:
        return f"{self._name}:{node.start_mark.line + 1}"
