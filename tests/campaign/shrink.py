"""Reduction of a failing case: remove parts one by one, the large ones first, as long as the case still fails."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.campaign.case import Case
from tests.campaign.generate import QUICK

Path = tuple[str | int, ...]

_SCENARIO = {"name", "seed", "driver", "algorithm", "rounds", "dataset", "samples_per_client", "evaluate_samples"}
_TOPOLOGY = {"edges", "devices", "devices_per_edge", "cloud"}
KEPT = {*_SCENARIO, *_TOPOLOGY, *(key for given in QUICK.values() for key in given)}
"""The keys that are never removed: their defaults would make the run larger."""
COUNTS: tuple[Path, ...] = (
    ("algorithm", "rounds"),
    ("topology", "edges"),
    ("topology", "devices"),
    ("topology", "devices_per_edge"),
)
ATTEMPTS = 300


def shrink(case: Case, fails: Callable[[Case], bool], attempts: int = ATTEMPTS) -> Case:
    """The smallest failing case that is found in at most ``attempts`` attempts."""
    position, shrunk = 0, False
    for _ in range(attempts):
        candidates = list(smaller(case))
        if position >= len(candidates):
            if not shrunk:
                break
            position, shrunk = 0, False  # repeat: after the removals, other parts may have become unnecessary
        if fails(candidates[position]):
            case, shrunk = candidates[position], True
        else:
            position += 1
    return case


def smaller(case: Case) -> Iterator[Case]:
    """Yield the cases that are one step smaller than this one."""
    if case.interruption is not None:
        yield replace(case, interruption=None)
    for path in sorted(_paths(case.scenario), key=lambda path: -_size(_at(case.scenario, path))):
        changed = copy.deepcopy(dict(case.scenario))
        del _at(changed, path[:-1])[path[-1]]
        yield replace(case, scenario=changed)
    for path in COUNTS:
        for number in _lower(_at(case.scenario, path)):
            changed = copy.deepcopy(dict(case.scenario))
            _at(changed, path[:-1])[path[-1]] = number
            yield replace(case, scenario=changed)


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all parts that can be removed."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in KEPT:
                yield (*path, key)
            yield from _paths(inner, (*path, key))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            if path[-1] == "faults" or isinstance(inner, dict):
                yield (*path, position)
            yield from _paths(inner, (*path, position))


def _at(value: Any, path: Path) -> Any:
    for key in path:
        try:
            value = value[key]
        except (KeyError, TypeError, IndexError):
            return None
    return value


def _size(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_size, inner))


def _lower(count: Any) -> Iterator[Any]:
    if isinstance(count, list):
        yield from (max(count), 1)
    elif isinstance(count, int) and count > 1:
        yield from sorted({1, count // 2, count - 1})
