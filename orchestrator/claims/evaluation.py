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
    found = evaluate(claim, lambda _: claim.known)
    return replace(found, seeds=found.seeds or claim.recorded.seeds)


def evaluate(claim: Claim, figures_of: FiguresOf) -> ClaimEvaluation:
    """Compare figures with the relations of a claim, for the mean or for each seed. ``figures_of`` gives the figures
    with certain names, so that they can be compared with one another."""
    compared = {each.text: figures_of(each.names) for each in claim.relations}
    used = [compared[each.text][name] for each in claim.relations for name in each.names]
    if all(each.by_seed for each in used):
        seeds = sorted({seed for each in used for seed in each.by_seed})
    else:
        seeds = []
    by_seed = {each.text: _by_seed(each, compared[each.text], seeds) for each in claim.relations}
    agreeing = {each.text: [each.holds(of) for of in by_seed[each.text].values()] for each in claim.relations}
    holds = {
        each.text: all(agreeing[each.text])
        if claim.each_seed and seeds
        else each.holds({name: compared[each.text][name].mean for name in each.names})
        for each in claim.relations
    }
    if all(holds.values()):
        state: State = "reproduced at full size" if claim.full_size else "in direction"
    else:
        state = "partly" if any(holds.values()) else "contradicted at this size"
    agree = f"{sum(map(all, zip(*agreeing.values(), strict=True)))} of {len(seeds)}" if seeds else ""
    if len(seeds) > 1:
        found = [_differences(each, by_seed[each.text]) for each in claim.relations]
    else:
        found = []
    return ClaimEvaluation(state, holds, agree, {name: each for part in found for name, each in part.items()})


def _by_seed(relation: Relation, figures: Mapping[str, Measured], seeds: Sequence[int]) -> dict[int, dict[str, float]]:
    """The figures of a relation, by seed; nan where a seed has none."""
    return {seed: {name: figures[name].by_seed.get(seed, math.nan) for name in relation.names} for seed in seeds}


def _differences(relation: Relation, by_seed: Mapping[int, Mapping[str, float]]) -> dict[str, PairedDifference]:
    """The left minus the right side of each comparison, by its text; none of a tolerance, if a seed lacks a side, or
    without SciPy."""
    sides = {seed: relation.sides(of) for seed, of in by_seed.items()}
    if (
        not available()
        or "±" in relation.text
        or not all(math.isfinite(value) for of in sides.values() for value in of)
    ):
        return {}
    texts = _COMPARISON.split(relation.text)
    return {
        f"{left} − {right}" if " " not in right else f"{left} − ({right})": paired(
            {seed: of[place] for seed, of in sides.items()}, {seed: of[place + 1] for seed, of in sides.items()}
        )
        for place, (left, right) in enumerate(pairwise(texts) if sides else ())
    }
