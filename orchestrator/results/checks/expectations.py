"""Comparison of a run with its scenario's expectations (``expect``): one sentence each, with expected and measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from netem.units import format_duration, format_fraction, format_size
from orchestrator import text
from orchestrator.results.checks.verdicts import Assessment, missing
from orchestrator.results.history import History
from orchestrator.results.means import mean
from orchestrator.results.traffic import volumes
from orchestrator.scenario.sections.expectations import CheckName, ExpectSpec, MetricSpec, expectations


class Compared(NamedTuple):
    """One expectation: whether it was met, and a sentence with the measured and the expected value."""

    met: bool
    sentence: str


def as_expected(history: History, verdict: Callable[[CheckName], str | None]) -> Assessment | None:
    """Assess the expectations; None if there are none, or if the run was a calibration. ``verdict`` returns the verdict
    of another check by name, or None if that check does not apply."""
    spec = expectations(history.effective)
    if not spec.asks() or history.calibrated:
        return None
    if history.status == "running":
        return missing(history, "")
    compared = list(_compared(history, spec))
    compared += [_check(name, verdict(name)) for name in spec.checks]
    wrong = "; ".join(expected.sentence for expected in compared if not expected.met)
    right = "; ".join(expected.sentence for expected in compared if expected.met)
    if not wrong:
        return "pass", right
    if right:
        return "fail", f"{wrong}; the others were met: {right}"
    return "fail", wrong


def _compared(history: History, spec: ExpectSpec) -> Iterator[Compared]:
    if spec.accuracy is not None:
        series = history.global_series("accuracy")
        measured = "no accuracy was reported"
        met = False
        if series:
            last = series[-1].value
            met = last >= spec.accuracy
            measured = f"accuracy {last:.1%}"
            covered = str(history.coverage() or "")
            if covered:
                measured += f" ({covered})"
        yield Compared(met, f"{measured}, expected {format_fraction(spec.accuracy)} at least")
    if spec.rounds is not None:
        done = history.rounds_done()
        yield Compared(done >= spec.rounds, f"{text.count(done, 'round')} done, expected {spec.rounds} at least")
    if spec.duration is not None:
        yield _duration(history, spec.duration)
    delivered = volumes.bytes_by_class(history)
    for key, most in spec.bytes.given().items():
        if key == "total":
            count = sum(delivered.values())
            where = "over all links"
        else:
            count = delivered.get(key, 0)
            where = f"over {key} links"
        yield Compared(count <= most, f"{text.size(count)} {where}, expected {format_size(most)} at most")
    for metric in spec.metrics:
        yield _metric(history, metric)


def _duration(history: History, most: float) -> Compared:
    expected = f"expected {format_duration(most)} at most"
    began = history.training_began
    if began is None:
        return Compared(False, f"the training never started, {expected}")
    seconds = history.training_ended - began
    return Compared(seconds <= most, f"the training took {text.duration(seconds)}, {expected}")


def _metric(history: History, spec: MetricSpec) -> Compared:
    bounds = {"at least": spec.at_least, "at most": spec.at_most}
    expected = " and ".join(f"{limit:g} {word}" for word, limit in bounds.items() if limit is not None)
    what = f"{spec.scope} {spec.name}"
    if spec.node:
        what += f" of {spec.node}"
    values = _last(history, spec)
    if not values:
        names = [f"{scope} {name}" for scope, name in history.metric_names()]
        known = text.some(names, 12) or "nothing"
        return Compared(False, f"no {what} was reported, expected {expected} (reported: {known})")
    measured = mean(values.values())
    covered = _covered(history, spec, values.keys())
    return Compared(spec.met_by(measured), f"{what} {measured:.4g}{covered}, expected {expected}")


def _last(history: History, spec: MetricSpec) -> dict[str, float]:
    """The last value that each node reported. Of a mean, only nodes with samples count, and on the global test set only
    leading nodes."""
    rows = history.metrics(spec.name, spec.scope)
    if spec.node is not None:
        rows = [row for row in rows if row.node == spec.node]
    else:
        rows = [row for row in rows if history.counts(row.node)]
        if spec.scope == "global":
            rows = [row for row in rows if row.node in history.leaders]
    return {row.node: row.value for row in rows}


def _covered(history: History, spec: MetricSpec, reporting: Collection[str]) -> str:
    """What a mean covers, in words: of how many nodes it is, and of how many that may report in the run."""
    if spec.node is not None:
        return ""
    if spec.scope == "global":
        covered = str(history.coverage() or "")
        if covered:
            return f", the {covered}"
        possible = set(history.leaders)
    else:
        tiers = {history.nodes.get(name, {}).get("tier") for name in reporting}
        possible = {name for name, node in history.nodes.items() if node.get("tier") in tiers}
    total = sum(map(history.counts, possible))
    if len(reporting) < total:
        return f", the mean of {len(reporting)} of {total} nodes"
    return f", the mean of {len(reporting)} nodes" if len(reporting) > 1 else ""


def _check(name: str, verdict: str | None) -> Compared:
    neutral = {"modelled": "modelled by this driver", "measured": "measured on real links"}
    if verdict in neutral:
        return Compared(True, f"check '{name}': {neutral[verdict]}, so nothing can be expected of it")
    return Compared(verdict == "pass", f"check '{name}': {verdict or 'nothing to say'}, expected pass")
