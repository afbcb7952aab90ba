"""How long a run still takes, from the rounds that are over."""

from __future__ import annotations


class TimeLeft:
    """Estimates the rest of a run. ``rounds`` and ``after``: the scenario's stop rules, the latter in seconds of
    training; either may be None."""

    def __init__(self, rounds: int | None, after: float | None) -> None:
        self._rounds, self._after = rounds, after
        self._first: tuple[int, float] | None = None  # the first round seen, and when it began
        self._latest = 0, 0.0  # the latest round, and when it began

    def at(self, t: float, round: int) -> float | None:
        """Seconds left, ``t`` seconds into the training, in this round. None while nothing is known: before a round is
        over, if no duration limits the run.

        The coming rounds count with the mean length of those that are over. The run ends earlier if it reaches its
        accuracy."""
        if round and self._first is None:
            self._first = self._latest = round, t
        elif round != self._latest[0]:
            self._latest = round, t
        limits = [] if self._after is None else [max(0.0, self._after - t)]
        if self._rounds is not None and self._first is not None and round > self._first[0]:
            mean = (self._latest[1] - self._first[1]) / (round - self._first[0])
            limits.append(max(0.0, mean * (self._rounds - round + 1) - (t - self._latest[1])))
        return min(limits, default=None)
