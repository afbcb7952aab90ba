"""The state of a claim, from its figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.claims.reading import Claim, Measured, State


@dataclass(frozen=True)
class Evaluation:
    """The state of a claim. ``holds``: whether each relation is true. ``seeds``: how many seeds agree with all of them,
    in words; empty if figures by seed are unknown."""

    state: State
    holds: Mapping[str, bool]
    seeds: str


def recorded(claim: Claim) -> Evaluation:
    """The state from the recorded figures, or the one that the claim states."""
    if claim.state is not None:
        return Evaluation(claim.state, {}, claim.recorded.seeds)
    figures = {name: figure.recorded for name, figure in claim.figures.items()}
    found = evaluate(claim, {name: figure for name, figure in figures.items() if figure is not None})
    return Evaluation(found.state, found.holds, found.seeds or claim.recorded.seeds)


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
    return Evaluation(state, holds, f"{agree} of {len(by_seed)}" if by_seed else "")


def _by_seed(claim: Claim, figures: Mapping[str, Measured]) -> dict[int, dict[str, float]]:
    """The figures that relations use, by seed; nan where a seed has none. Empty if some figure is not known by seed."""
    used = [figures[name] for name in dict.fromkeys(name for each in claim.relations for name in each.names)]
    names = [name for name in figures if any(name in each.names for each in claim.relations)]
    if not all(each.by_seed for each in used):
        return {}
    seeds = sorted({seed for each in used for seed in each.by_seed})
    return {seed: {name: figures[name].by_seed.get(seed, float("nan")) for name in names} for seed in seeds}
