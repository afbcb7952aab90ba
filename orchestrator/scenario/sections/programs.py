"""Programs in a scenario: what nodes run instead of an algorithm's roles.

    programs:
      cloud:   {command: "mosquitto -c broker.conf", ready: {port: 1883}}
      device:  {command: "python publisher.py --broker {cloud} --name {name}", after: cloud}
      watcher: {on: cloud, command: "python watcher.py", after: device, ends_the_run: true}

A key is a tier, a node, or, with ``on``, the name of a further program on the nodes of a tier or on one node. An entry
for a node replaces the entry for its tier.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from orchestrator.scenario.language.quantities import Duration
from orchestrator.scenario.language.strict import Strict, nearest
from orchestrator.scenario.language.words import ImageName, Name, describe
from orchestrator.scenario.sections.drivers import DriverKind
from orchestrator.scenario.sections.links import Mistake
from orchestrator.scenario.sections.topology import Member

TIERS = ("cloud", "edge", "device")
_PLACEHOLDER = re.compile(r"(\$?)(\{+)([a-z][a-z0-9-]*)(\}+)")
"""A name in braces, as in a format string of Python: {name} is a placeholder, {{name}} the text {name}. Other braces,
such as those of JSON, stay as they are, and so does ${name}, a variable of a shell."""

SELF = "self"
OWN_NAME = "name"
INDEX = "index"
FILES = "files"
OWN = (SELF, OWN_NAME, INDEX, FILES)
"""The placeholders that each node has a value of its own for."""
READY_WITHIN = 60.0  # s
LONGEST_WORD = 100_000  # bytes of a word of a command or of a variable; the kernel takes 131,071 with {files} replaced
STOP_GRACE = 5.0  # s


def _read_command(value: Any) -> list[str]:
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise ValueError(f"cannot be split into words ({error}): close the quotes, or write a list") from None
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise ValueError(f"write a command as in a terminal, or a list of its words, not {describe(value)}")
    if not value or not value[0]:
        raise ValueError("is empty: name the program to run")
    if any("\0" in word for word in value):
        raise ValueError("has a null character, which no command can have")
    longest = max(map(_bytes, value))
    if longest > LONGEST_WORD:
        raise ValueError(f"has a word of {longest} bytes, at most {LONGEST_WORD} are possible: write it to a file")
    return value


def _read_environment(value: Any) -> Any:
    """Check names and sizes of variables. Types are checked afterwards."""
    if not isinstance(value, dict):
        return value
    for name, text in value.items():
        if isinstance(name, str) and not _can_be_variable(name):
            raise ValueError(f"{name!r} cannot be the name of a variable: it is empty, or has = or a null character")
        if not isinstance(text, str):
            continue
        if "\0" in text:
            raise ValueError(f"{name} has a null character, which no variable can have")
        size = _bytes(text)
        if size > LONGEST_WORD:
            raise ValueError(f"{name} has {size} bytes, at most {LONGEST_WORD} are possible: write it to a file")
    return value


def _can_be_variable(name: str) -> bool:
    return name != "" and "=" not in name and "\0" not in name


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogateescape"))


def _read_after(value: Any) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"write the name of a program, or a list of names, not {describe(value)}")
    return names


def _write_after(names: list[str]) -> Any:
    if len(names) == 1:
        return names[0]
    return names


_TEXT = {"type": "string"}
_TEXTS = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
Command = Annotated[list[str], BeforeValidator(_read_command), WithJsonSchema(_TEXTS)]
After = Annotated[
    list[str],
    BeforeValidator(_read_after),
    PlainSerializer(_write_after),
    WithJsonSchema(_TEXTS),
]


class ReadySpec(Strict):
    """When a program counts as ready, so that the programs ``after`` it start. Without a condition: immediately."""

    port: int | None = Field(default=None, ge=1, le=65535, description="when it listens on this TCP port")
    line: str | None = Field(
        default=None, min_length=1, description="when it has printed a line that contains this text"
    )
    delay: Duration | None = Field(default=None, gt=0, description="this time after it started")
    within: Duration = Field(default=READY_WITHIN, gt=0, description="the run fails if it takes longer than this")

    @model_validator(mode="after")
    def _check_one(self) -> ReadySpec:
        is_set = (self.port is not None, self.line is not None, self.delay is not None)
        if sum(is_set) > 1:
            raise ValueError("give one of port, line and delay")
        return self


class ProgramSpec(Strict):
    """A program, and when it starts and ends."""

    short: ClassVar[str | None] = "command"

    command: Command = Field(
        description="the program and its arguments, as in a terminal but without a shell, or as a list of words. "
        "Replaced in it: {cloud}, {edge-0}, {self} by addresses of nodes, {name} by the node's name, {index} by its "
        "position in its tier, from 0, {files} by its folder"
    )
    on: Name | None = Field(
        default=None, description="the tier or node that runs it, if the key is a name of its own (a second program)"
    )
    after: After = Field(
        default=[], description="the program, or a list of programs, that must be ready before this one starts"
    )
    ready: ReadySpec = Field(default=ReadySpec(), description="when it counts as ready; default: immediately")
    ends_the_run: bool = Field(default=False, description="whether the run ends when this program ends")
    expected_to_end: bool = Field(
        default=False, description="whether it may end with exit code 0 before the run does, without a remark"
    )
    stop_grace: Duration = Field(
        default=STOP_GRACE, gt=0, description="time from SIGTERM to SIGKILL if it still runs when the run ends"
    )
    environment: Annotated[dict[str, str], BeforeValidator(_read_environment)] = Field(
        default={}, description="environment variables in addition to the usual ones"
    )
    image: ImageName | None = Field(
        default=None, description="for nodes in containers only: the image of its container, required there"
    )


@dataclass(frozen=True)
class Placed:
    """A program on a node. ``index``: the position of the node among those of its tier, from 0. ``key``: the program's
    key in the scenario. ``group``: the name that ``after`` calls it by."""

    node: str
    index: int
    key: str
    group: str
    spec: ProgramSpec


def placed(programs: Mapping[str, ProgramSpec], members: Sequence[Member]) -> list[Placed]:
    """The programs of each node, in the order of nodes; a node's own program comes first."""
    on_nodes = []
    counted: Counter[str] = Counter()  # nodes of each tier
    for member in members:
        index = counted[member.tier]
        counted[member.tier] += 1
        own = member.name if member.name in programs else member.tier
        if own in programs:
            on_nodes.append(Placed(member.name, index, own, member.tier, programs[own]))
        for key, spec in programs.items():
            if spec.on in (member.name, member.tier):
                on_nodes.append(Placed(member.name, index, key, key, spec))
    return on_nodes


def placeholders(text: str) -> list[str]:
    names = []
    for match in _PLACEHOLDER.finditer(text):
        if _is_placeholder(match):
            names.append(match[3])
    return names


def replaced(text: str, values: Mapping[str, str]) -> str:
    """A text with these placeholders replaced. Others, and doubled braces, stay."""

    def value(match: re.Match[str]) -> str:
        dollar, opening, name, closing = match.groups()
        if not _is_placeholder(match) or name not in values:
            return match[0]
        pairs = min(len(opening), len(closing))
        doubled = pairs // 2  # an odd number of pairs: one is of the placeholder
        left = "{" * (len(opening) - pairs + doubled)
        right = "}" * (len(closing) - pairs + doubled)
        return f"{dollar}{left}{values[name]}{right}"

    return _PLACEHOLDER.sub(value, text)


def undoubled(text: str) -> str:
    """A text in which {{name}} has become {name}: the last step, when all placeholders are replaced."""

    def half(match: re.Match[str]) -> str:
        dollar, opening, name, closing = match.groups()
        doubled = min(len(opening), len(closing)) // 2
        return f"{dollar}{opening[doubled:]}{name}{closing[doubled:]}"

    return _PLACEHOLDER.sub(half, text)


def _is_placeholder(match: re.Match[str]) -> bool:
    dollar, opening, _, closing = match.groups()
    pairs = min(len(opening), len(closing))
    is_variable = dollar and pairs == 1
    return pairs % 2 == 1 and not is_variable


def filled(text: str, program: Placed, addresses: Mapping[str, str]) -> str:
    """A word of a program's command with its placeholders replaced, except {files}, which only the driver knows."""
    node = program.node
    own = {
        SELF: addresses[node],
        OWN_NAME: node,
        INDEX: str(program.index),
    }
    return replaced(text, {**addresses, **own})


def check_programs(
    programs: Mapping[str, ProgramSpec], members: Sequence[Member], driver: DriverKind
) -> Iterator[Mistake]:
    for key, spec in programs.items():
        for place, message in _of_one(key, spec, programs, members):
            yield ("programs", key, *place), message
        if driver.images and spec.image is None:
            yield ("programs", key, "image"), f"the driver {driver.name} needs the image that has the program"
    on_nodes = placed(programs, members)
    busy = {program.node for program in on_nodes}
    idle = [member.name for member in members if member.name not in busy]
    if idle:
        yield ("programs",), f"{idle[0]} has no program: give one to its tier or to the node itself"
    circle = _circle(on_nodes)
    if circle:
        yield ("programs",), f"each waits for the next, so none can start: {' → '.join(circle)}"


def _of_one(
    key: str,
    spec: ProgramSpec,
    programs: Mapping[str, ProgramSpec],
    members: Sequence[Member],
) -> Iterator[Mistake]:
    """Yield the mistakes of one program, with the path below its key."""
    names = {member.name for member in members}
    places = names | {member.tier for member in members}
    if spec.on is None:
        if key not in places:
            yield (), f"'{key}' is no node and no tier here, and a further program needs `on`{nearest(key, places)}"
    elif key in {*names, *TIERS}:
        yield ("on",), f"{key} is a node or a tier: give this further program a name of its own"
    elif spec.on not in places:
        yield ("on",), f"'{spec.on}' is no node and no tier here{nearest(spec.on, places)}"
    further = [name for name, program in programs.items() if program.on is not None]
    groups = {*places, *further}
    for name in spec.after:
        if name not in groups:
            yield ("after",), f"there is no program '{name}'{nearest(name, groups)}"
    known = {*names, *OWN}
    for message in _unknown_placeholders(spec.command, known):
        yield ("command",), message
    for message in _unknown_placeholders(spec.environment.values(), known):
        yield ("environment",), message


def _unknown_placeholders(words: Iterable[str], known: Collection[str]) -> Iterator[str]:
    """A message for each placeholder that is not known."""
    own = ", ".join(f"{{{name}}}" for name in OWN)
    for word in words:
        for name in placeholders(word):
            if name not in known:
                literal = f"; for the text {{{name}}} itself write {{{{{name}}}}}"
                yield f"{{{name}}} is no node, and not one of {own}{literal}{nearest(name, known)}"


def waits_for(program: Placed, programs: Sequence[Placed]) -> list[Placed]:
    """The programs that must be ready before this one starts."""
    waited_for = []
    for name in program.spec.after:
        for other in programs:
            if other is not program and _is_called(other, name):
                waited_for.append(other)
    return waited_for


def _is_called(program: Placed, name: str) -> bool:
    """Whether ``after`` calls a program by this name: that of its group or, for a node's own program, of the node."""
    if program.group == name:
        return True
    return program.node == name and program.group in TIERS


def _circle(programs: Sequence[Placed]) -> list[str]:
    """The programs that wait for one another in a circle: keys, or nodes of one key; else empty."""
    waits: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for program in programs:
        waited_for = []
        for other in waits_for(program, programs):
            waited_for.append((other.node, other.key))
        waits[program.node, program.key] = waited_for
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        circle = error.args[1][::-1]
        nodes = [node for node, _ in circle]
        keys = [key for _, key in circle]
        if len(set(keys)) == 1:
            return nodes
        return keys
    return []
