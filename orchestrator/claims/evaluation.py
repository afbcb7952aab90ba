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
    compared = {relation.text: figures_of(relation.names) for relation in relations}
    seeds = _seeds(relations, compared)
    by_seed: dict[str, dict[int, dict[str, float]]] = {}
    agreeing: dict[str, list[bool]] = {}  # for each seed
    holds: dict[str, bool] = {}
    for relation in relations:
        figures = compared[relation.text]
        values_by_seed = _by_seed(relation, figures, seeds)
        by_seed[relation.text] = values_by_seed
        agreeing[relation.text] = [relation.holds(values) for values in values_by_seed.values()]
        if claim.each_seed and seeds:
            holds[relation.text] = all(agreeing[relation.text])
        else:
            means = {name: figures[name].mean for name in relation.names}
            holds[relation.text] = relation.holds(means)
    agree = ""
    if seeds:
        number = sum(all(relations_of_seed) for relations_of_seed in zip(*agreeing.values(), strict=True))
        agree = f"{number} of {len(seeds)}"
    differences: dict[str, PairedDifference] = {}
    if len(seeds) > 1:
        for relation in relations:
            differences |= _differences(relation, by_seed[relation.text])
    return ClaimEvaluation(_state(claim, holds), holds, agree, differences)


def _state(claim: Claim, holds: Mapping[str, bool]) -> State:
    if all(holds.values()):
        return "reproduced at full size" if claim.full_size else "in direction"
    if any(holds.values()):
        return "partly"
    return "contradicted at this size"


def _seeds(relations: Sequence[Relation], compared: Mapping[str, Mapping[str, Measured]]) -> list[int]:
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


def _by_seed(relation: Relation, figures: Mapping[str, Measured], seeds: Sequence[int]) -> dict[int, dict[str, float]]:
    """The figures of a relation, by seed; nan where a seed has none."""
    by_seed = {}
    for seed in seeds:
        by_seed[seed] = {name: figures[name].by_seed.get(seed, math.nan) for name in relation.names}
    return by_seed


def _differences(relation: Relation, by_seed: Mapping[int, Mapping[str, float]]) -> dict[str, PairedDifference]:
    """The left minus the right side of each comparison, by its text; none of a tolerance, if a seed lacks a side, or
    without SciPy."""
    sides = {seed: relation.sides(figures) for seed, figures in by_seed.items()}
    if not sides or not available() or "±" in relation.text:
        return {}
    for values in sides.values():
        if not all(map(math.isfinite, values)):
            return {}
    texts = _COMPARISON.split(relation.text)
    differences = {}
    for place, (left, right) in enumerate(pairwise(texts)):
        left_values = {seed: values[place] for seed, values in sides.items()}
        right_values = {seed: values[place + 1] for seed, values in sides.items()}
        subtrahend = f"({right})" if " " in right else right
        differences[f"{left} − {subtrahend}"] = paired(left_values, right_values)
    return differences
