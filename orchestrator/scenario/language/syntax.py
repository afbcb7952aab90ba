"""Reader of a safe YAML subset: plain data, anchors and merge keys, and the line of every value.

It is stricter than common YAML readers, which guess. It refuses a repeated key (they keep the last value) and ``010``
(they read 8). ``1:30`` stays a text (they read 90), ``1e-3`` is a number (they read a text), and the key ``on`` is a
text (they read true).
Text length, number of values and depth are limited. Values are counted before any is constructed; an anchor counts at
every use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from orchestrator.errors import Problem, ScenarioError
from orchestrator.scenario.language.words import KeyPath as KeyPath
from orchestrator.scenario.language.words import describe, dotted, shortened

MAX_CHARACTERS = 1_000_000  # read in a few seconds
MAX_VALUES = 100_000
MAX_DEPTH = 50

_YAML = "tag:yaml.org,2002:"
_MERGE = f"{_YAML}merge"
_BOOL = f"{_YAML}bool"
_COLLECTIONS = (f"{_YAML}map", f"{_YAML}seq")
_SCALARS = {  # as named in error messages
    f"{_YAML}null": "null",
    _BOOL: "truth value",
    f"{_YAML}int": "whole number",
    f"{_YAML}float": "number",
    f"{_YAML}timestamp": "date",
    f"{_YAML}str": "text",
}
_KNOWN_SCALARS = (*_SCALARS, f"{_YAML}value", _MERGE)
_EXPONENT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]{1,3}")  # 1e-3, a text in YAML 1.1
_LONGEST_NUMBER = 400  # characters; Python converts no whole number of more than 4300 digits


def read_yaml(text: str, name: str) -> tuple[Any, dict[KeyPath, str]]:
    """The data, and the origin (``name:line``) of each value by path. ScenarioError if it cannot be read."""
    if len(text) > MAX_CHARACTERS:
        raise ScenarioError([Problem(name, "", too_long())])
    reader = _Reader(text, name)
    data = reader.read()
    if reader.problems:
        raise ScenarioError(reader.problems)
    return data, reader.places


def too_long() -> str:
    """The error message for a file that is too long."""
    return (
        f"is larger than {MAX_CHARACTERS // 10**6} MB: say many faults by one rule (of, every_round, random), and many "
        "links by their class"
    )


class _Refused(Exception):  # noqa: N818 - reads as what happened
    """An error after which reading cannot continue."""

    def __init__(self, line: int | None, path: KeyPath, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.path = path


class _Reader:
    """Converts YAML nodes to plain data and records the origin of each."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._measures: dict[int, tuple[int, int]] = {}  # by node: number of values, nesting depth
        self._open: set[int] = set()  # the nodes that are being measured: the current one and its ancestors
        self.places: dict[KeyPath, str] = {}
        self.problems: list[Problem] = []

    def read(self) -> Any:
        try:
            return self._read()
        except yaml.reader.ReaderError as error:
            line = self._text.count("\n", 0, error.position) + 1
            character = int(error.character)
            refused = _Refused(line, (), f"not readable as YAML: it has the character U+{character:04X}")
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line_of_mark = mark.line + 1 if mark else None
            refused = _Refused(line_of_mark, (), f"not readable as YAML: {_plainly(error)}")
        except _Refused as error:
            refused = error
        where = self._name if refused.line is None else f"{self._name}:{refused.line}"
        problem = Problem(where, dotted(refused.path), str(refused))
        raise ScenarioError([*self.problems, problem])

    def _read(self) -> Any:
        loader = yaml.SafeLoader(self._text)
        try:
            node = self._compose(loader)
            if node is None:
                return None
            self._measure(node, ())
            return self._value(loader, node, ())
        finally:
            loader.dispose()

    @staticmethod
    def _compose(loader: yaml.SafeLoader) -> yaml.Node | None:
        try:
            return loader.get_single_node()
        except RecursionError:
            message = f"nested too deeply: a scenario has at most {MAX_DEPTH} levels"
        except (ValueError, OverflowError):  # "\UFFFFFFFF"
            message = "not readable as YAML: an escape that stands for no character"
        raise _Refused(loader.get_mark().line + 1, (), message)

    def _measure(self, node: yaml.Node, path: KeyPath) -> tuple[int, int]:
        """The number of values and levels of a node, itself included, with anchors and merge keys expanded."""
        if id(node) in self._open:
            raise _Refused(_line(node), path, "an anchor contains itself")
        if id(node) not in self._measures:
            self._open.add(id(node))
            if isinstance(node, yaml.MappingNode):
                self._refuse_repeated(node, path)
            values = 1
            depth = 0
            for key, place, child in _children(node):
                inner, below = self._measure(child, (*path, key))
                values = values + inner
                depth = max(depth, below)
                if values > MAX_VALUES:
                    counted = f"with this it has more than {MAX_VALUES:,} values, where an anchor counts at every use"
                    line = max(_line(node), _line(place))  # a node that an anchor reuses has the line of its first use
                    raise _Refused(line, (*path, key), f"{counted}: say many faults by one rule")
            self._open.remove(id(node))
            self._measures[id(node)] = values, depth + 1
        values, depth = self._measures[id(node)]
        level = len(self._open)
        if level + depth > MAX_DEPTH or level > MAX_DEPTH:
            raise _Refused(_line(node), path, f"nested too deeply: a scenario has at most {MAX_DEPTH} levels")
        return values, depth

    def _value(self, loader: yaml.SafeLoader, node: yaml.Node, path: KeyPath) -> Any:
        is_collection = isinstance(node, yaml.CollectionNode)
        if node.tag not in (_COLLECTIONS if is_collection else _KNOWN_SCALARS):
            raise _Refused(_line(node), path, f"the tag {node.tag.replace(_YAML, '!!')} is not known here")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(loader, node, path)
        if isinstance(node, yaml.SequenceNode):
            return self._sequence(loader, node, path)
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(loader, node, path)

    def _sequence(
        self,
        loader: yaml.SafeLoader,
        node: yaml.SequenceNode,
        path: KeyPath,
    ) -> list[Any]:
        for position, item in enumerate(node.value):
            self.places[(*path, position)] = self._place(item)
        values = []
        for position, item in enumerate(node.value):
            values.append(self._value(loader, item, (*path, position)))
        return values

    def _scalar(self, loader: yaml.SafeLoader, node: yaml.ScalarNode, path: KeyPath) -> Any:
        text = str(node.value)
        kind = _SCALARS.get(node.tag, "text")
        if kind == "text" and node.style is None and _EXPONENT.fullmatch(text):
            return float(text)
        number = kind in ("whole number", "number")
        if kind == "text" or (number and ":" in text):
            if not text.isprintable() and re.search("[\ud800-\udfff]", text):
                raise _Refused(_line(node), path, "has half of a pair of surrogates, which is no character")
            return text
        if number and re.fullmatch(r"[-+]?0[0-9_]+", text):
            raise _Refused(_line(node), path, f"{shortened(text)} may be read as octal: write it without the leading 0")
        if number and len(text) > _LONGEST_NUMBER:
            raise _Refused(_line(node), path, f"{shortened(text)} is too large a number")
        try:
            value = loader.construct_object(node)
        except (ValueError, KeyError, AttributeError, IndexError, OverflowError):  # "!!bool x", the date 2026-13-01
            raise _Refused(_line(node), path, f"'{shortened(text)}' is no {kind}; quotes make it a text") from None
        if kind == "whole number" and abs(value) >= 2**63:
            raise _Refused(_line(node), path, f"{shortened(text)} is too large a number")
        return value

    def _mapping(
        self,
        loader: yaml.SafeLoader,
        node: yaml.MappingNode,
        path: KeyPath,
    ) -> dict[str, Any]:
        loader.flatten_mapping(node)
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = self._place(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(Problem(place, dotted(path), "a key is a text, not a collection"))
                continue
            is_word = key_node.tag == _BOOL and key_node.style is None  # on, yes
            if is_word:
                key = str(key_node.value)
            else:
                key = self._value(loader, key_node, path)
            if not isinstance(key, str):
                message = f"the key '{shortened(key_node.value)}' is {describe(key)} in YAML; put it in quotes"
                self.problems.append(Problem(place, dotted(path), message))
                continue
            inner = (*path, key)
            self.places[inner] = place
            mapping[key] = self._value(loader, value_node, inner)
        return mapping

    def _refuse_repeated(self, node: yaml.MappingNode, path: KeyPath) -> None:
        first: dict[str, str] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            key = key_node.value
            place = self._place(key_node)
            if key in first:
                message = f"the key is given twice, first at {first[key]}"
                self.problems.append(Problem(place, dotted((*path, key)), message))
            first.setdefault(key, place)

    def _place(self, node: yaml.Node) -> str:
        return f"{self._name}:{_line(node)}"


def _children(
    node: yaml.Node,
) -> Iterator[tuple[str | int, yaml.Node, yaml.Node]]:
    """Each child as (key, node with the key's line, child node); keys that are collections count as children too."""
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield str(key.value), key, child
            else:
                yield "?", key, key
                yield "?", key, child
    elif isinstance(node, yaml.SequenceNode):
        for position, child in enumerate(node.value):
            yield position, child, child


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _plainly(error: yaml.MarkedYAMLError) -> str:
    problem = str(error.problem or error.context)
    if "'\\t'" in problem:
        return "a tab where blanks are needed: indent with blanks"
    if problem == "but found another document":
        return "a scenario is one document, and another starts here (---)"
    return problem
