"""The metrics of classes that nodes report: those of `data.metrics`, and those that `expect` or `stop` names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from node.catalogue.tasks import CLASS_METRICS, WITHOUT_CLASSES
from orchestrator import text
from orchestrator.errors import PlanError
from orchestrator.scenario.schema import Scenario

_RECALL = re.compile(rf"{text.RECALL}\d+")


def class_metrics(scenario: Scenario, dataset: str, task: str) -> tuple[str, ...]:
    """The metrics to report, in the order of `CLASS_METRICS`. Raises PlanError if `data.metrics` names one and the
    data has no classes."""
    requested = scenario.data.metrics
    if task != "classification":
        if requested:
            raise PlanError(
                ("data", "metrics"),
                f"{requested[0]} needs one class for each label, and {dataset} has {WITHOUT_CLASSES[task]}: leave it "
                "out",
            )
        return ()
    wanted = {*requested, *_bounded(scenario)}
    return tuple(name for name in CLASS_METRICS if name in wanted)


def _bounded(scenario: Scenario) -> Iterator[str]:
    """The metrics with bounds; recall for that of a class."""
    names = [metric.name for metric in scenario.expect.metrics]
    if scenario.stop.target is not None:
        names.append(scenario.stop.target.name)
    for name in names:
        if _RECALL.fullmatch(name):
            yield "recall"
        else:
            yield name
