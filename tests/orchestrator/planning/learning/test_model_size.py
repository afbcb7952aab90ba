"""What algorithms and models need of data."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import pytest

from node.catalogue.datasets import Form
from node.catalogue.sizes import Size
from orchestrator.errors import PlanError
from orchestrator.host.process import python
from orchestrator.planning.learning.model_size import measured, model_sizes
from orchestrator.scenario.reading import parse

PARTS = Form((), 2, parts=(("tokens", "int64", (8,)), ("mask", "bool", (8,))))
EDGES = "topology: {edges: 2, devices_per_edge: 0, mesh: true}"
NUMBERS, LABELS = Form((8,), 3, task="regression"), Form((8,), 3, task="multi-label")


@pytest.mark.parametrize(
    ("algorithm", "more", "form", "said"),
    [
        ("fedfeat", "", NUMBERS, "data.dataset: has numbers to predict, and fedfeat needs classes"),
        ("fedfeat", "", LABELS, "data.dataset: has several labels for each sample, and fedfeat needs classes"),
        ("fedavg", "stop: {accuracy: 90%}", NUMBERS, r"stop.accuracy: .*write target: {name: mae, at_most: 0.3}"),
        ("fedavg", "expect: {accuracy: 90%}", NUMBERS, r"expect.accuracy: .*write metrics: \[{name: mae, at_most"),
        (
            "dffke",
            EDGES,
            Form((8,), 3),
            r"data.dataset: dffke takes images of at least 1x1, not samples of shape \(8,\)",
        ),
        ("fededs", EDGES, Form((1, 7, 7), 3), "data.dataset: fededs takes images of at least 8x8, not"),
        ("fedavg", "", PARTS, "model: mlp takes one array for each sample, not several parts"),
        ("fedfeat", "", PARTS, "data.dataset: has samples of several parts, and fedfeat needs pictures or floats"),
        ("fedavg", "model: char-transformer", Form((1, 8, 8), 10), r"model: char-transformer predicts the next char"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(algorithm: str, more: str, form: Form, said: str) -> None:
    topology, model = "topology: {devices: 2}\n" * ("topology" not in more), "model: mlp\n" * ("model" not in more)
    text = f"algorithm: {algorithm}\n{topology}{model}{more}\n"
    with pytest.raises(PlanError) as raised:
        model_sizes(parse(text, "f.yaml"), form)
    raised.match(said)
    assert "\n" not in str(raised.value)


def test_a_plug_in_may_print_when_its_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"print(); print('{json.dumps(asdict(Size(7)))}'); print('bye')"
    monkeypatch.setattr(python, "module", lambda *_: [sys.executable, "-c", code])
    assert measured((), "mine", "{}", Form((8,), 3)) == Size(7)


@pytest.mark.parametrize("form", [NUMBERS, LABELS])
def test_built_in_models_predict_numbers_and_labels(form: Form) -> None:
    (size,) = model_sizes(parse("algorithm: fedavg\nmodel: mlp\ntopology: {devices: 2}\n", "f.yaml"), form)
    assert size.parameters == (8 + 1) * 200 + (200 + 1) * 3
