"""Runs cases, and makes those that break an invariant small."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.campaign.case import Case
from tests.campaign.invariants import broken
from tests.campaign.shrink import ATTEMPTS, shrink
from tests.campaign.trial import Hosts


@dataclass(frozen=True)
class Outcome:
    """What came of a case: what the invariants that do not hold say of it, by their names."""

    case: Case
    broken: dict[str, list[str]]
    refused: bool

    def told(self) -> str:
        """The same in words."""
        lines = [f"case {self.case.name}:"]
        lines += [f"  {name}: {sentence}" for name, sentences in self.broken.items() for sentence in sentences[:5]]
        return "\n".join(lines)


def search(hosts: Hosts, cases: Iterable[Case], planted: str | None = None) -> Iterator[Outcome]:
    """Carry out every case. ``planted`` names a defect of `canaries` that all of them have."""
    for case in cases:
        with hosts.trial(case, planted) as trial:
            yield Outcome(case, broken(trial), trial.refused)


def smallest(hosts: Hosts, found: Outcome, planted: str | None = None, attempts: int = ATTEMPTS) -> Case:
    """A small case that breaks one of the invariants that ``found`` breaks."""

    def fails(case: Case) -> bool:
        (outcome,) = search(hosts, [case], planted)
        return not outcome.broken.keys().isdisjoint(found.broken)

    return shrink(found.case, fails, attempts)
