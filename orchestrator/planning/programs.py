"""The programs of a plan: each with its node, its command and the programs that it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from orchestrator import text
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.sections.programs import (
    FILES,
    STOP_GRACE,
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
    seconds have passed. With none of them it is ready at once. ``within``: seconds until the run fails."""

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
        """The program whose node keeps its files in ``folder``, with its command as the system gets it."""

        def whole(text: str) -> str:
            return undoubled(replaced(text, {FILES: folder}))

        return replace(
            self,
            command=tuple(map(whole, self.command)),
            environment={key: whole(text) for key, text in self.environment.items()},
        )


def plan_programs(scenario: Scenario, addresses: Mapping[str, str]) -> tuple[ProgramPlan, ...]:
    """The programs of all nodes. ``addresses``: the IP address of each node."""
    there = placed(scenario.programs, scenario.members)
    labels = {id(each): each.node if each.spec.on is None else f"{each.node}.{each.key}" for each in there}
    return tuple(
        ProgramPlan(
            label=labels[id(each)],
            node=each.node,
            command=tuple(filled(word, each, addresses) for word in each.spec.command),
            ready=Readiness(each.spec.ready.port, each.spec.ready.line, each.spec.ready.delay, each.spec.ready.within),
            after=tuple(labels[id(other)] for other in waits_for(each, there)),
            ends_the_run=each.spec.ends_the_run,
            expected_to_end=each.spec.expected_to_end,
            environment={k: filled(text, each, addresses) for k, text in each.spec.environment.items()},
            image=each.spec.image,
            stop_grace=each.spec.stop_grace,
        )
        for each in there
    )


def unreachable(scenario: Scenario) -> Iterator[str]:
    """Notes on nodes that a program names in its command or environment, and to which its node has no link."""
    linked = {frozenset((pair.lower, pair.upper)) for pair in scenario.pairs}
    names = {member.name for member in scenario.members}
    found: dict[tuple[str, str], list[str]] = {}
    for program in placed(scenario.programs, scenario.members):
        words = [*program.spec.command, *program.spec.environment.values()]
        named = {name for word in words for name in placeholders(word) if name in names}
        for name in sorted(named - {program.node}):
            if frozenset((program.node, name)) not in linked:
                found.setdefault((program.key, name), []).append(program.node)
    for (key, name), nodes in found.items():
        yield (
            f"programs.{key} names {{{name}}} on {text.some(nodes)}, and no link joins {name} with "
            f"{'it' if len(nodes) == 1 else 'them'}: nothing that is sent there arrives"
        )
