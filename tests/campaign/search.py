"""Run cases, and reduce those that break an invariant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.campaign.case import Case
from tests.campaign.invariants import broken
from tests.campaign.shrink import ATTEMPTS, shrink
from tests.campaign.trial import Hosts


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case: the sentences of the violated invariants, by the invariants' names."""

    case: Case
    broken: dict[str, list[str]]
    refused: bool

    def told(self) -> str:
        """The outcome in words."""
        lines = [f"case {self.case.name}:"]
        lines += [f"  {name}: {sentence}" for name, sentences in self.broken.items() for sentence in sentences[:5]]
        return "\n".join(lines)


def search(hosts: Hosts, cases: Iterable[Case], planted: str | None = None) -> Iterator[Outcome]:
    """Carry out every case. ``planted`` names a defect of `canaries` to plant in all of them."""
    for case in cases:
        with hosts.trial(case, planted) as trial:
            yield Outcome(case, broken(trial), trial.refused)


def smallest(hosts: Hosts, found: Outcome, planted: str | None = None, attempts: int = ATTEMPTS) -> Case:
    """Reduce a case to a small one that breaks one of the invariants that ``found`` breaks."""

    def fails(case: Case) -> bool:
        (outcome,) = search(hosts, [case], planted)
        return not outcome.broken.keys().isdisjoint(found.broken)

    return shrink(found.case, fails, attempts)
