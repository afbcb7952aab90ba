"""The state of a claim, from its figures."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from orchestrator.claims.reading import Claim, Measured, State
from orchestrator.claims.relations import Relation
from orchestrator.sweep.statistics import Difference, paired

_COMPARISON = re.compile(r"\s*[<>]=?\s*")


@dataclass(frozen=True)
class Evaluation:
    """The state of a claim. ``holds``: whether each relation is true. ``seeds``: how many seeds agree with all of them,
    in words; empty if figures by seed are unknown. ``differences``: of the two sides of each comparison, paired by
    seed, if there are several seeds."""

    state: State
    holds: Mapping[str, bool]
    seeds: str
    differences: Mapping[str, Difference] = field(default_factory=dict)


def recorded(claim: Claim) -> Evaluation:
    """The state from the recorded figures, or the one that the claim states."""
    if claim.state is not None:
        return Evaluation(claim.state, {}, claim.recorded.seeds)
    found = evaluate(claim, claim.known)
    return replace(found, seeds=found.seeds or claim.recorded.seeds)


def evaluate(claim: Claim, figures: Mapping[str, Measured]) -> Evaluation:
    """Compare figures with the relations of a claim, for the mean or for each seed."""
    means = {name: figure.mean for name, figure in figures.items()}
    by_seed = _by_seed(claim, figures)
    agreeing = {each.text: [each.holds(of) for of in by_seed.values()] for each in claim.relations}
    holds = {
        each.text: all(agreeing[each.text]) if claim.each_seed and by_seed else each.holds(means)
        for each in claim.relations
    }
    if all(holds.values()):
        state: State = "reproduced at full size" if claim.full_size else "in direction"
    else:
        state = "partly" if any(holds.values()) else "contradicted at this size"
    agree = sum(map(all, zip(*agreeing.values(), strict=True)))
    seeds = f"{agree} of {len(by_seed)}" if by_seed else ""
    differences = {name: each for relation in claim.relations for name, each in _differences(relation, by_seed).items()}
    return Evaluation(state, holds, seeds, differences if len(by_seed) > 1 else {})


def _by_seed(claim: Claim, figures: Mapping[str, Measured]) -> dict[int, dict[str, float]]:
    """The figures that relations use, by seed; nan where a seed has none. Empty if some figure is not known by seed."""
    names = dict.fromkeys(name for each in claim.relations for name in each.names)
    if not all(figures[name].by_seed for name in names):
        return {}
    seeds = sorted({seed for name in names for seed in figures[name].by_seed})
    return {seed: {name: figures[name].by_seed.get(seed, math.nan) for name in names} for seed in seeds}


def _differences(relation: Relation, by_seed: Mapping[int, Mapping[str, float]]) -> dict[str, Difference]:
    """The left minus the right side of each comparison, by its text; none of a tolerance, or if a seed lacks a side."""
    sides = {seed: relation.sides(of) for seed, of in by_seed.items()}
    if "±" in relation.text or not all(math.isfinite(value) for of in sides.values() for value in of):
        return {}
    texts = _COMPARISON.split(relation.text)
    return {
        f"{left} − {right}" if " " not in right else f"{left} − ({right})": paired(
            {seed: of[place] for seed, of in sides.items()}, {seed: of[place + 1] for seed, of in sides.items()}
        )
        for place, (left, right) in enumerate(pairwise(texts) if sides else ())
    }
