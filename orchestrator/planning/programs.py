"""The programs of a plan: each with its node, its command and the programs that it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from orchestrator import text
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.programs import (
    FILES,
    STOP_GRACE,
    Placed,
    filled,
    placed,
    placeholders,
    replaced,
    undoubled,
    waits_for,
)


@dataclass(frozen=True)
class Readiness:
    """When a program is ready: it listens on a TCP ``port``, it has printed a ``line`` with this text, or ``delay``
    seconds have passed. With none of them it is ready immediately. ``within``: seconds until the run fails."""

    port: int | None
    line: str | None
    delay: float | None
    within: float


@dataclass(frozen=True)
class ProgramPlan:
    """A program of a node.

    ``label`` names it and its log: the node, or ``node.key`` for a further program. ``after``: the labels of the
    programs that must be ready before it starts. ``command``: its words, with no placeholder but {files}, and with
    doubled braces as in the scenario. ``expected_to_end``: it may end before the run does. ``image``: of its container;
    None: the driver makes no containers. ``stop_grace``: seconds from SIGTERM to SIGKILL.
    """

    label: str
    node: str
    command: tuple[str, ...]
    ready: Readiness
    after: tuple[str, ...] = ()
    ends_the_run: bool = False
    expected_to_end: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    stop_grace: float = STOP_GRACE

    def with_files(self, folder: str) -> ProgramPlan:
        """The program with its command as the system gets it. ``folder``: where its node keeps its files."""

        def whole(text: str) -> str:
            return undoubled(replaced(text, {FILES: folder}))

        command = tuple(whole(word) for word in self.command)
        environment = {}
        for name, value in self.environment.items():
            environment[name] = whole(value)
        return replace(self, command=command, environment=environment)


def plan_programs(scenario: Scenario, addresses: Mapping[str, str]) -> tuple[ProgramPlan, ...]:
    """The programs of all nodes. ``addresses``: the IP address of each node."""
    programs = placed(scenario.programs, scenario.members)
    planned = []
    for program in programs:
        spec = program.spec
        waited_for = waits_for(program, programs)
        command = [filled(word, program, addresses) for word in spec.command]
        environment = {}
        for name, value in spec.environment.items():
            environment[name] = filled(value, program, addresses)
        planned.append(
            ProgramPlan(
                label=_label(program),
                node=program.node,
                command=tuple(command),
                ready=Readiness(
                    port=spec.ready.port,
                    line=spec.ready.line,
                    delay=spec.ready.delay,
                    within=spec.ready.within,
                ),
                after=tuple(_label(other) for other in waited_for),
                ends_the_run=spec.ends_the_run,
                expected_to_end=spec.expected_to_end,
                environment=environment,
                image=spec.image,
                stop_grace=spec.stop_grace,
            )
        )
    return tuple(planned)


def _label(program: Placed) -> str:
    if program.spec.on is None:
        return program.node
    return f"{program.node}.{program.key}"


def unreachable(scenario: Scenario) -> Iterator[str]:
    """Notes on nodes that a program names in its command or environment, and to which its node has no link."""
    linked = {frozenset((pair.lower, pair.upper)) for pair in scenario.pairs}
    names = {member.name for member in scenario.members}
    without_link: dict[tuple[str, str], list[str]] = {}
    for program in placed(scenario.programs, scenario.members):
        words = [*program.spec.command, *program.spec.environment.values()]
        named: set[str] = set()
        for word in words:
            named.update(placeholders(word))
        others = named & names - {program.node}
        for name in sorted(others):
            if frozenset((program.node, name)) not in linked:
                without_link.setdefault((program.key, name), []).append(program.node)
    for (key, name), nodes in without_link.items():
        them = "it" if len(nodes) == 1 else "them"
        yield (
            f"programs.{key} names {{{name}}} on {text.some(nodes)}, and no link joins {name} with {them}:"
            " nothing that is sent there arrives"
        )
