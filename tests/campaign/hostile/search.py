"""Feed generated input to an entry point, and make small what breaks an invariant."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.campaign.hostile.entries import Entry
from tests.campaign.hostile.places import OTHER, place
from tests.campaign.hostile.watch import watched


def search(entry: Entry, runs: Path, first: int, inputs: int) -> BaseException | None:
    """What the first of the ``inputs`` that break an invariant raises, made small; a note has the input. None if none
    does. ``first``: the seed of the inputs."""

    @seed(first)
    @settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(entry.given)
    def feed(given: Any) -> None:
        with place(runs, entry.template) as folder, watched(folder, runs / OTHER):
            entry.feed(folder, given)

    try:
        with contextlib.redirect_stdout(io.StringIO()):  # Hypothesis prints the input, which is in the note
            feed()
    except Exception as error:
        return error
    return None
