"""The state of a claim, from its figures."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from orchestrator.claims.reading import Claim, Measured, State
from orchestrator.claims.relations import Relation
from orchestrator.sweep.statistics import PairedDifference, available, paired

Values = dict[str, float]
"""Figures by name."""
FiguresOf = Callable[[Collection[str]], Mapping[str, Measured]]

_COMPARISON = re.compile(r"\s*[<>]=?\s*")


@dataclass(frozen=True)
class ClaimEvaluation:
    """The state of a claim. ``holds``: whether each relation is true. ``seeds``: how many seeds agree with all of them,
    in words; empty if figures by seed are unknown. ``differences``: of the two sides of each comparison, paired by
    seed, if there are several seeds."""

    state: State
    holds: Mapping[str, bool]
    seeds: str
    differences: Mapping[str, PairedDifference] = field(default_factory=dict)


def recorded(claim: Claim) -> ClaimEvaluation:
    """The state from the recorded figures, or the one that the claim states."""
    if claim.state is not None:
        return ClaimEvaluation(claim.state, {}, claim.recorded.seeds)
    evaluation = evaluate(claim, lambda _: claim.known)
    return replace(evaluation, seeds=evaluation.seeds or claim.recorded.seeds)


def evaluate(claim: Claim, figures_of: FiguresOf) -> ClaimEvaluation:
    """Compare figures with the relations of a claim, for the mean or for each seed. ``figures_of`` gives the figures
    with certain names, so that they can be compared with one another."""
    relations = claim.relations
    compared = {}
    for relation in relations:
        compared[relation.text] = figures_of(relation.names)
    seeds = _seeds(relations, compared)
    by_seed: dict[str, dict[int, Values]] = {}
    agreeing: dict[str, list[bool]] = {}  # for each seed
    holds: dict[str, bool] = {}
    for relation in relations:
        figures = compared[relation.text]
        values_by_seed = _by_seed(relation, figures, seeds)
        by_seed[relation.text] = values_by_seed
        holds_by_seed = list(map(relation.holds, values_by_seed.values()))
        agreeing[relation.text] = holds_by_seed
        if claim.each_seed and seeds:
            holds[relation.text] = all(holds_by_seed)
        else:
            means = {name: figures[name].mean for name in relation.names}
            holds[relation.text] = relation.holds(means)
    agree = ""
    if seeds:
        agree = f"{_agreeing_seeds(agreeing, seeds)} of {len(seeds)}"
    differences: dict[str, PairedDifference] = {}
    if len(seeds) > 1:
        for relation in relations:
            differences |= _differences(relation, by_seed[relation.text])
    state = _state(claim, holds)
    return ClaimEvaluation(state, holds, agree, differences)


def _agreeing_seeds(agreeing: Mapping[str, Sequence[bool]], seeds: Sequence[int]) -> int:
    """With how many seeds all relations hold. ``agreeing``: for each relation and each seed."""
    number = 0
    for place in range(len(seeds)):
        number += all(by_seed[place] for by_seed in agreeing.values())
    return number


def _state(claim: Claim, holds: Mapping[str, bool]) -> State:
    if all(holds.values()):
        return "reproduced at full size" if claim.full_size else "in direction"
    if any(holds.values()):
        return "partly"
    return "contradicted at this size"


def _seeds(
    relations: Sequence[Relation],
    compared: Mapping[str, Mapping[str, Measured]],
) -> list[int]:
    """All seeds of the figures of the relations; none if figures by seed are unknown for one."""
    seeds: set[int] = set()
    for relation in relations:
        figures = compared[relation.text]
        for name in relation.names:
            by_seed = figures[name].by_seed
            if not by_seed:
                return []
            seeds.update(by_seed)
    return sorted(seeds)


def _by_seed(
    relation: Relation,
    figures: Mapping[str, Measured],
    seeds: Sequence[int],
) -> dict[int, Values]:
    """The figures of a relation, by seed; nan where a seed has none."""
    by_seed = {}
    for seed in seeds:
        values = {}
        for name in relation.names:
            figure = figures[name].by_seed
            values[name] = figure.get(seed, math.nan)
        by_seed[seed] = values
    return by_seed


def _differences(
    relation: Relation,
    by_seed: Mapping[int, Values],
) -> dict[str, PairedDifference]:
    """The left minus the right side of each comparison, by its text; none of a tolerance, if a seed lacks a side, or
    without SciPy."""
    sides = {}
    for seed, figures in by_seed.items():
        sides[seed] = relation.sides(figures)
    if not sides or not available() or "±" in relation.text:
        return {}
    for values in sides.values():
        if not all(map(math.isfinite, values)):
            return {}
    texts = _COMPARISON.split(relation.text)
    differences = {}
    for place, (left, right) in enumerate(pairwise(texts)):
        left_values = {}
        right_values = {}
        for seed, values in sides.items():
            left_values[seed] = values[place]
            right_values[seed] = values[place + 1]
        subtrahend = f"({right})" if " " in right else right
        differences[f"{left} − {subtrahend}"] = paired(left_values, right_values)
    return differences
