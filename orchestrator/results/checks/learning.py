"""The check that models learned. Links and nodes may work as asked in a run that says nothing about learning.

That is so if training diverged (NaN or an infinity), if rounds were abandoned without an average, or if the models are
no better than a guess. The first two fail. A model at chance may be the scenario's subject, so it is unknown.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator import text
from orchestrator.record.events.nodes import NotFinite, RoundReached
from orchestrator.record.rows import Event, Metric
from orchestrator.results.checks.verdicts import Assessment, missing
from orchestrator.results.evaluation.targets import accuracy_series, own_series
from orchestrator.results.history import History
from orchestrator.scenario.sections.expectations import expectations

ABANDONED_SHARE = 0.5  # of a node's gatherings that may be abandoned; the scenario's expect.abandoned overrides it
DEVIATIONS = 3.0  # standard deviations by which an accuracy must be above chance


class Chance(NamedTuple):
    """The accuracy of always guessing the most frequent label, or of a regression the mean absolute error of always
    guessing the median. ``deviation`` is its standard deviation on a test set of that size."""

    value: float
    deviation: float
    metric: str = "accuracy"

    @property
    def limit(self) -> float:
        """The value that a guess does not surpass by chance: ``DEVIATIONS`` standard deviations better than a guess."""
        return self.value + (1 if self.metric == "accuracy" else -1) * DEVIATIONS * self.deviation

    def surpassed_by(self, value: float) -> bool:
        if self.metric == "accuracy":
            return value > self.limit
        return value < self.limit


class Best(NamedTuple):
    """The best value that was reported on some test sets, and that of a guess there."""

    where: str
    value: float
    round: int | None
    chance: Chance


def learned(history: History) -> Assessment | None:
    """Check that nothing diverged, that few enough gatherings were abandoned, and that the accuracy exceeded chance.
    None if nodes run programs: edgebed does not know what they learn, nor on what they are tested."""
    if history.calibrated or history.plan.get("programs"):
        return None
    said = diverged(history.events(NotFinite.NAME))
    if said:
        return "fail", said
    allowed = expectations(history.effective).abandoned
    limit = ABANDONED_SHARE if allowed is None else allowed
    shares = abandoned(history.events(RoundReached.NAME))
    listed = text.some(f"{of} of {every} at {node}" for node, (of, every) in shares.items())
    if any(of > limit * every for of, every in shares.values()):
        return "fail", f"rounds were abandoned for lack of answers: {listed}; at most {limit:.0%} may"
    if not history.rounds_done():
        return missing(history, "no round was finished, so no model can have learned")
    verdict, detail = judged(list(_scores(history)))
    return verdict, f"{detail}; rounds were abandoned for lack of answers: {listed}" if listed else detail


def diverged(events: Iterable[Event]) -> str | None:
    """Where and when values were first not finite (events ``not_finite``), and how many messages were left out."""
    first: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for event in events:
        peer = event.data.get("peer")
        if peer is not None:
            left_out[peer] += 1
        else:
            first.setdefault(event.node or "?", _where(event))
    parts = []
    if first:
        parts.append(f"NaN or an infinity, first at {text.some(first.values())}")
    if left_out:
        messages = text.count(left_out.total(), "message")
        parts.append(f"{messages} of {text.some(sorted(left_out))} left out of averages")
    if not parts:
        return None
    return "; ".join(parts)


def _where(event: Event) -> str:
    what = event.data.get("what", "")
    kind = event.data.get("kind", "")
    when = "" if event.round is None else f" in round {event.round}"
    if kind:
        where = f"{what} of its {kind}"
    else:
        where = f"{event.data.get('scope', '')} {what}"
    if event.data.get("at"):
        where += f", {event.data['at']}"
    return f"{event.node}{when} ({where})"


def abandoned(events: Iterable[Event]) -> dict[str, tuple[int, int]]:
    """(abandoned gatherings, all gatherings) of each node that abandoned any (events ``round``)."""
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for event in events:
        if event.node is not None and event.data.get("gatherings"):
            counts[event.node][0] += event.data["abandoned"]
            counts[event.node][1] += event.data["gatherings"]
    return {node: (of, every) for node, (of, every) in counts.items() if of}


def judged(scores: Sequence[Best]) -> Assessment:
    """Judge the values: one of them must surpass the limit of chance."""
    if not scores:
        return "unknown", "no accuracy was reported"
    name = scores[0].chance.metric
    above = next((score for score in scores if score.chance.surpassed_by(score.value)), None)
    if above is None:
        parts = []
        for score in scores:
            value = text.metric(name, score.value)
            guess = text.metric(name, score.chance.value)
            by_chance = text.metric(name, score.chance.limit)
            parts.append(f"{value} {score.where}; guessing reaches {guess}, by chance {by_chance}")
        side = "above" if name == "accuracy" else "below"
        return "unknown", f"no {name} was {side} guessing: at best {text.some(parts)}"
    when = "" if above.round is None else f" in round {above.round}"
    value = text.metric(name, above.value)
    guess = text.metric(name, above.chance.value)
    return "pass", f"{name} {value} {above.where}{when}; guessing reaches {guess}"


def chance(counts: Sequence[float], limit: int | None = None) -> Chance:
    """The chance of a guess on a test set with ``counts`` samples per class, of which ``limit`` are used at most."""
    samples = round(sum(counts))
    used = min(samples, limit or samples)
    share = max(counts) / sum(counts)
    return Chance(share, math.sqrt(share * (1 - share) / used))


def mean_chance(chances: Sequence[Chance]) -> Chance:
    """The chance for the mean of accuracies on several test sets."""
    value = sum(own.value for own in chances) / len(chances)
    deviation = math.sqrt(sum(own.deviation**2 for own in chances)) / len(chances)
    return Chance(value, deviation)


def _scores(history: History) -> Iterator[Best]:
    """The best accuracy on the global test set, and the best mean over the coordinators' own test sets. Other nodes'
    accuracy on their own test sets is left out: local training explains it, without federation."""
    algorithm = history.plan.get("algorithm") or {}
    params = algorithm.get("params") or {}
    limit = params.get("evaluate_samples")
    data = history.plan.get("data") or {}
    main = history.main_metric
    guess = data.get("guess")
    if guess is not None:  # the own test sets are drawn like the global one
        of_guess = Chance(guess[0], guess[1], main)
        leading = [name for name, node in history.nodes.items() if node.get("children")]
        yield from _best("on the global test set", history.global_series(main), of_guess)
        yield from _best("on coordinators' own test sets", own_series(history, main, leading), of_guess)
        return
    counts = _test_counts(data)
    if limit is not None and counts:  # a sequence has a label for each token
        labels = round(sum(counts))
        limit *= labels // (data.get("test_samples") or labels)
    if counts:
        yield from _best("on the global test set", history.global_series("accuracy"), chance(counts, limit))
    coordinators = {}
    for name, node in history.nodes.items():
        if node.get("children") and node.get("test_counts"):
            coordinators[name] = node["test_counts"]
    reporting = {metric.node for metric in history.metrics("accuracy", "own")} & coordinators.keys()
    if reporting:
        guess = mean_chance([chance(coordinators[name], limit) for name in sorted(reporting)])
        yield from _best("on coordinators' own test sets", accuracy_series(history, [*reporting]), guess)


def _test_counts(data: Mapping[str, Any]) -> Sequence[float]:
    """The test samples per class; equal numbers if the plan has only a total. Empty if the classes are unknown."""
    classes = data.get("classes")
    samples = data.get("test_samples")
    counts: Sequence[float] = data.get("test_counts") or []
    if not counts and classes and samples:
        return [samples / classes] * classes
    return counts


def _best(where: str, series: Iterable[Metric], guess: Chance) -> Iterator[Best]:
    finite = [metric for metric in series if math.isfinite(metric.value)]
    if not finite:
        return
    choose = max if guess.metric == "accuracy" else min
    best = choose(finite, key=lambda metric: metric.value)
    yield Best(where, best.value, best.round, guess)
