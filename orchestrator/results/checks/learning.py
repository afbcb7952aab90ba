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
    said = [f"NaN or an infinity, first at {text.some(first.values())}"] if first else []
    if left_out:
        said.append(f"{text.count(left_out.total(), 'message')} of {text.some(sorted(left_out))} left out of averages")
    return "; ".join(said) or None


def _where(event: Event) -> str:
    what, kind, scope = (event.data.get(key, "") for key in ("what", "kind", "scope"))
    when = "" if event.round is None else f" in round {event.round}"
    at = f", {event.data['at']}" if event.data.get("at") else ""
    return f"{event.node}{when} ({f'{what} of its {kind}' if kind else f'{scope} {what}'}{at})"


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
        best = text.some(
            f"{text.metric(name, each.value)} {each.where}; guessing reaches {text.metric(name, each.chance.value)}, "
            f"by chance {text.metric(name, each.chance.limit)}"
            for each in scores
        )
        return "unknown", f"no {name} was {'above' if name == 'accuracy' else 'below'} guessing: at best {best}"
    when = "" if above.round is None else f" in round {above.round}"
    value = text.metric(name, above.value)
    guess = text.metric(name, above.chance.value)
    return "pass", f"{name} {value} {above.where}{when}; guessing reaches {guess}"


def chance(counts: Sequence[float], limit: int | None = None) -> Chance:
    """The chance of a guess on a test set with ``counts`` samples per class, of which ``limit`` are used at most."""
    samples = round(sum(counts))
    share = max(counts) / sum(counts)
    return Chance(share, math.sqrt(share * (1 - share) / min(samples, limit or samples)))


def mean_chance(each: Sequence[Chance]) -> Chance:
    """The chance for the mean of accuracies on several test sets."""
    deviation = math.sqrt(sum(one.deviation**2 for one in each)) / len(each)
    return Chance(sum(one.value for one in each) / len(each), deviation)


def _scores(history: History) -> Iterator[Best]:
    """The best accuracy on the global test set, and the best mean over the coordinators' own test sets. Other nodes'
    accuracy on their own test sets is left out: local training explains it, without federation."""
    limit = ((history.plan.get("algorithm") or {}).get("params") or {}).get("evaluate_samples")
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
        limit *= round(sum(counts)) // (data.get("test_samples") or round(sum(counts)))
    if counts:
        yield from _best("on the global test set", history.global_series("accuracy"), chance(counts, limit))
    coordinators = {
        name: node["test_counts"]
        for name, node in history.nodes.items()
        if node.get("children") and node.get("test_counts")
    }
    reporting = {metric.node for metric in history.metrics("accuracy", "own")} & coordinators.keys()
    if reporting:
        guess = mean_chance([chance(coordinators[name], limit) for name in sorted(reporting)])
        yield from _best("on coordinators' own test sets", accuracy_series(history, [*reporting]), guess)


def _test_counts(data: Mapping[str, Any]) -> Sequence[float]:
    """The test samples per class; equal numbers if the plan has only a total. Empty if the classes are unknown."""
    classes = data.get("classes", 0)
    samples = data.get("test_samples", 0)
    return data.get("test_counts") or ([samples / classes] * classes if classes and samples else [])


def _best(where: str, series: Iterable[Metric], guess: Chance) -> Iterator[Best]:
    choose = max if guess.metric == "accuracy" else min
    best = choose(
        (metric for metric in series if math.isfinite(metric.value)), key=lambda each: each.value, default=None
    )
    if best:
        yield Best(where, best.value, best.round, guess)
