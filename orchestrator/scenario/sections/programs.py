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
from collections.abc import Iterator, Mapping, Sequence
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

OWN = SELF, OWN_NAME, INDEX, FILES = "self", "name", "index", "files"
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
    for name, text in value.items() if isinstance(value, dict) else ():
        if isinstance(name, str) and (not name or "=" in name or "\0" in name):
            raise ValueError(f"{name!r} cannot be the name of a variable: it is empty, or has = or a null character")
        if isinstance(text, str) and "\0" in text:
            raise ValueError(f"{name} has a null character, which no variable can have")
        if isinstance(text, str) and (size := _bytes(text)) > LONGEST_WORD:
            raise ValueError(f"{name} has {size} bytes, at most {LONGEST_WORD} are possible: write it to a file")
    return value


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogateescape"))


def _read_after(value: Any) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"write the name of a program, or a list of names, not {describe(value)}")
    return names


_TEXTS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
Command = Annotated[list[str], BeforeValidator(_read_command), WithJsonSchema(_TEXTS)]
After = Annotated[
    list[str],
    BeforeValidator(_read_after),
    PlainSerializer(lambda names: names[0] if len(names) == 1 else names),
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
        if sum(each is not None for each in (self.port, self.line, self.delay)) > 1:
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
        default=None, description="docker and swarm only: the image of its container, required there"
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
    found = []
    counted: Counter[str] = Counter()  # nodes of each tier
    for member in members:
        index = counted[member.tier]
        counted[member.tier] += 1
        own = member.name if member.name in programs else member.tier
        if own in programs:
            found.append(Placed(member.name, index, own, member.tier, programs[own]))
        for key, spec in programs.items():
            if spec.on in (member.name, member.tier):
                found.append(Placed(member.name, index, key, key, spec))
    return found


def placeholders(text: str) -> list[str]:
    return [found[3] for found in _PLACEHOLDER.finditer(text) if _is_placeholder(found)]


def replaced(text: str, values: Mapping[str, str]) -> str:
    """A text with these placeholders replaced. Others, and doubled braces, stay."""

    def value(found: re.Match[str]) -> str:
        if not _is_placeholder(found) or found[3] not in values:
            return found[0]
        pairs = min(len(found[2]), len(found[4]))
        left = len(found[2]) - pairs + pairs // 2
        right = len(found[4]) - pairs + pairs // 2
        return f"{found[1]}{'{' * left}{values[found[3]]}{'}' * right}"

    return _PLACEHOLDER.sub(value, text)


def undoubled(text: str) -> str:
    """A text in which {{name}} has become {name}: the last step, when all placeholders are replaced."""

    def half(found: re.Match[str]) -> str:
        pairs = min(len(found[2]), len(found[4])) // 2
        return f"{found[1]}{found[2][pairs:]}{found[3]}{found[4][pairs:]}"

    return _PLACEHOLDER.sub(half, text)


def _is_placeholder(found: re.Match[str]) -> bool:
    pairs = min(len(found[2]), len(found[4]))
    return pairs % 2 == 1 and not (found[1] and pairs == 1)


def filled(text: str, program: Placed, addresses: Mapping[str, str]) -> str:
    """A word of a program's command with its placeholders replaced, except {files}, whose place the driver knows."""
    node = program.node
    own = {SELF: addresses[node], OWN_NAME: node, INDEX: str(program.index)}
    return replaced(text, {**addresses, **own})


def check_programs(
    programs: Mapping[str, ProgramSpec], members: Sequence[Member], driver: DriverKind
) -> Iterator[Mistake]:
    for key, spec in programs.items():
        for place, message in _of_one(key, spec, programs, members):
            yield ("programs", key, *place), message
        if driver.images and spec.image is None:
            yield ("programs", key, "image"), f"the driver {driver.name} needs the image that has the program"
    there = placed(programs, members)
    idle = [member.name for member in members if member.name not in {each.node for each in there}]
    if idle:
        yield ("programs",), f"{idle[0]} has no program: give one to its tier or to the node itself"
    circle = _circle(there)
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
    if spec.on is None and key not in places:
        yield (), f"'{key}' is no node and no tier here, and a further program needs `on`{nearest(key, places)}"
    elif spec.on is not None and key in {*names, *TIERS}:
        yield ("on",), f"{key} is a node or a tier: give this further program a name of its own"
    elif spec.on is not None and spec.on not in places:
        yield ("on",), f"'{spec.on}' is no node and no tier here{nearest(spec.on, places)}"
    groups = {*places, *(name for name, other in programs.items() if other.on is not None)}
    for name in spec.after:
        if name not in groups:
            yield ("after",), f"there is no program '{name}'{nearest(name, groups)}"
    known = {*names, *OWN}
    for where, words in (("command", spec.command), ("environment", spec.environment.values())):
        for found in (name for word in words for name in placeholders(word)):
            if found not in known:
                others = ", ".join(f"{{{name}}}" for name in OWN)
                literal = f"; for the text {{{found}}} itself write {{{{{found}}}}}"
                yield (where,), f"{{{found}}} is no node, and not one of {others}{literal}{nearest(found, known)}"


def waits_for(program: Placed, there: Sequence[Placed]) -> list[Placed]:
    """The programs that must be ready before this one starts."""
    return [
        each
        for name in program.spec.after
        for each in there
        if each is not program and (each.group == name or (each.node == name and each.group in TIERS))
    ]


def _circle(there: Sequence[Placed]) -> list[str]:
    """The programs that wait for one another in a circle: keys, or nodes of one key; else empty."""
    waits = {(each.node, each.key): [(other.node, other.key) for other in waits_for(each, there)] for each in there}
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        nodes, keys = zip(*reversed(error.args[1]), strict=True)
        return list(nodes if len(set(keys)) == 1 else keys)
    return []
