"""The possible verdicts of a check, from worst to best, and their display."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from orchestrator.results.facts import Facts

Verdict = Literal["fail", "unknown", "pass", "modelled", "measured"]
"""``modelled``: the driver computes the quantity that the check would measure. ``measured``: the quantity is that of a
real link, which has no settings. Both say nothing about trust."""

Assessment = tuple[Verdict, str]  # a check's verdict, with one sentence that gives the numbers
WORST_FIRST: tuple[Verdict, ...] = ("fail", "unknown", "pass")

MARKS: dict[Verdict, str] = {
    "fail": "✕",
    "unknown": "?",
    "pass": "✓",
    "modelled": "~",
    "measured": "=",
}
NEUTRAL: tuple[Verdict, ...] = ("modelled", "measured")
STYLES: dict[str, str] = {
    "fail": "red",
    "unknown": "yellow",
    "pass": "green",
    "modelled": "cyan",
    "measured": "cyan",
}
"""Style names of the rich library."""


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst verdict; unknown if nothing was checked."""
    given = set(verdicts)
    for verdict in WORST_FIRST:
        if verdict in given:
            return verdict
    return "unknown"


NOT_YET: Assessment = "unknown", "the run is going on"


MEASURED: Assessment = "pass", "see what was measured"


def missing(history: Facts, words: str, calibrated: Assessment | None = None) -> Assessment:
    """Unknown, because of something that the record lacks: not yet in a run that is going on, and else for good.
    ``calibrated``: instead of that for a calibration, which lacks it on purpose."""
    if calibrated is not None and history.calibrated:
        return calibrated
    if history.status == "running":
        return NOT_YET
    return "unknown", words
