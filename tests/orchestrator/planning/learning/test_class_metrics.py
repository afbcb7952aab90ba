"""Which metrics of classes a scenario has its nodes report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.catalogue.datasets import Form
from orchestrator.errors import PlanError
from orchestrator.planning.learning.shards import PreparedLabels
from orchestrator.planning.making import make_plan
from orchestrator.scenario.reading import parse
from tests.orchestrator.labels import prepared

SCENARIO = "algorithm: fedavg\ntopology: {devices: 2}\nmodel: mlp\n"


def requested(more: str, data: PreparedLabels | None = None) -> tuple[str, ...]:
    return make_plan(parse(SCENARIO + more, "f.yaml"), data or prepared()).data.class_metrics


def test_none_unless_requested() -> None:
    assert requested("") == ()
    assert requested("expect: {metrics: [{name: loss, at_most: 2}, {name: recall, at_least: 1}]}") == ("recall",)


def test_those_of_the_data_those_expected_and_that_of_the_goal() -> None:
    assert requested("data: {metrics: [recall, macro_f1]}") == ("macro_f1", "recall")
    expected = "expect: {metrics: [{name: macro_f1, at_least: 80%}, {name: recall_3, scope: own, at_least: 0.5}]}"
    assert requested(expected) == ("macro_f1", "recall")
    assert requested("stop: {target: {name: balanced_accuracy, at_least: 80%}}") == ("balanced_accuracy",)


def test_numbers_to_predict_have_no_classes() -> None:
    regression = replace(prepared(), form=Form((8,), 1, task="regression"))
    with pytest.raises(PlanError, match=r"^data.metrics: macro_f1 needs one class.*label"):
        requested("data: {metrics: [macro_f1]}", regression)
    assert requested("expect: {metrics: [{name: macro_f1, at_least: 80%}]}", regression) == ()
