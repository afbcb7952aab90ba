"""The search for a limit where the same value has always the same outcome: a ladder, then bisection.

The ladder tries a few values from the mildest on, until one does not survive. Between this and the highest one that
survived, bisection halves the distance. Only then come the more severe values of the ladder: they take longest, and
show only whether anything survives above the limit. A value that is tried several times has the outcome of the
majority.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.limits.scale import Scale
from orchestrator.limits.verdict import Ask, Kind, Limit, Tried

FACTOR = 1.1  # between the two ends of a narrow interval: its middle is at most 5 % away from each
MOST_TRIES = 3  # of one value, to settle a contradiction


@dataclass(frozen=True)
class Outcome:
    """How the runs at one position ended. ``survived``: the majority; None if no run counts, or on a tie."""

    position: float
    good: int
    bad: int
    unknown: int

    @property
    def tries(self) -> int:
        return self.good + self.bad

    @property
    def survived(self) -> bool | None:
        if self.good == self.bad:
            return None
        return self.good > self.bad


def next_in_bracket(
    scale: Scale,
    tried: Sequence[Tried],
    repeat: int = 1,
    required: float | None = None,
) -> Ask | Limit:
    """The next value to try, or the limit.

    ``tried``: the runs so far, in any order. ``repeat``: how many runs confirm each end of the interval. ``required``:
    a position that is tried in any case, since a decision depends on it.
    """
    outcomes = _by_position(tried)
    ladder = scale.ladder()
    if required is not None and 0 < required < 1:
        ladder = sorted({*ladder, required})
    later = []
    failed = False
    for position in ladder:
        outcome = outcomes.get(position)
        if outcome is None and failed:
            later.append(position)
        elif outcome is None or (outcome.survived is None and outcome.tries):
            return Ask(position)
        elif outcome.survived is False:
            failed = True
    judged = [outcome for outcome in outcomes.values() if outcome.survived is not None]
    judged.sort(key=lambda outcome: outcome.position)
    unknown = [outcome.position for outcome in outcomes.values() if outcome.tries == 0]
    if not judged:
        return Limit("unknown", tried=len(tried), unknown=len(unknown))
    contradiction = _contradiction(judged)
    if contradiction is not None:
        return _settled(contradiction, tried)
    survivors = [outcome for outcome in judged if outcome.survived]
    failures = [outcome for outcome in judged if not outcome.survived]
    doubtful = _unconfirmed([*survivors[-1:], *failures[:1]], repeat)
    narrow = _between(scale, survivors, failures, outcomes)
    if narrow is not None:
        return narrow
    if doubtful is not None:
        return Ask(doubtful)
    if later:
        return Ask(later[-1])
    low = survivors[-1].position if survivors else None
    high = failures[0].position if failures else None
    kind: Kind = "between"
    if high is None:
        kind = "none"
    elif low is None:
        kind = "all"
    return Limit(kind, low, high, tried=len(tried), unknown=len(unknown))


def _by_position(tried: Sequence[Tried]) -> dict[float, Outcome]:
    runs: defaultdict[float, list[bool | None]] = defaultdict(list)
    for one in tried:
        runs[one.position].append(one.survived)
    outcomes = {}
    for position, survived in runs.items():
        good = survived.count(True)
        bad = survived.count(False)
        outcomes[position] = Outcome(position, good, bad, survived.count(None))
    return outcomes


def _contradiction(judged: Sequence[Outcome]) -> tuple[Outcome, Outcome] | None:
    """A value that failed although a more severe one survived, and that one; None if there is none."""
    failed = None
    for outcome in judged:
        if not outcome.survived:
            failed = failed or outcome
        elif failed is not None:
            return failed, outcome
    return None


def _settled(contradiction: tuple[Outcome, Outcome], tried: Sequence[Tried]) -> Ask | Limit:
    """Try both values of a contradiction again, until each has its outcome twice: then there is no limit."""
    for outcome in contradiction:
        if max(outcome.good, outcome.bad) < 2 and outcome.tries < MOST_TRIES:
            return Ask(outcome.position)
    failed, survived = contradiction
    return Limit("not monotone", failed.position, survived.position, tried=len(tried))


def _unconfirmed(ends: Sequence[Outcome], repeat: int) -> float | None:
    for outcome in ends:
        if outcome.tries < repeat:
            return outcome.position
    return None


def _between(
    scale: Scale,
    survivors: Sequence[Outcome],
    failures: Sequence[Outcome],
    outcomes: dict[float, Outcome],
) -> Ask | None:
    """The next value between the highest that survived and the lowest that failed; None if they are near enough, or
    if the runs at the values between them do not count."""
    if not survivors or not failures:
        return None
    low = survivors[-1].position
    high = failures[0].position
    if high - low <= scale.width(FACTOR):
        return None
    for share in (0.5, 0.25, 0.75):
        value = scale.value(low + share * (high - low))
        position = scale.position(value)
        if low < position < high and position not in outcomes:
            return Ask(position)
    return None
