"""Tests of chance. The kernel of the guest takes no seed, so what is drawn differs from run to run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")
TRIES = 3


def by_chance(test: Callable[P, None]) -> Callable[P, None]:
    """Let a test fail twice: one that holds 99 times in 100 fails three times in a row once in a million runs."""

    @functools.wraps(test)
    def trying(*arguments: P.args, **named: P.kwargs) -> None:
        for attempt in range(TRIES):
            try:
                return test(*arguments, **named)
            except AssertionError:
                if attempt == TRIES - 1:
                    raise

    return trying
