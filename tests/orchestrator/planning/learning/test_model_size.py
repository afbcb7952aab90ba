"""What algorithms and models need of data."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import asdict, replace
from typing import Any

import pytest

from node.catalogue.datasets import Form
from node.catalogue.sizes import Size
from node.messaging.wire import LIMITS
from orchestrator.errors import PlanError
from orchestrator.host.process import python
from orchestrator.planning.learning import model_size
from orchestrator.planning.learning.model_size import measured, model_sizes
from orchestrator.scenario.reading import parse
from orchestrator.scenario.schema import Scenario

PARTS = Form((), 2, parts=(("tokens", "int64", (8,)), ("mask", "bool", (8,))))
TOKENS = Form((8,), 10, tokens=True, labels=(8,))
EDGES = "topology: {edges: 2, devices_per_edge: 0, mesh: true}"
NUMBERS, LABELS = Form((8,), 3, task="regression"), Form((8,), 3, task="multi-label")


@pytest.mark.parametrize(
    ("algorithm", "more", "form", "said"),
    [
        ("fedfeat", "", NUMBERS, "data.dataset: has numbers.* fedfeat"),
        ("fedfeat", "", LABELS, "data.dataset: has several labels.* fedfeat"),
        ("fedavg", "stop: {accuracy: 90%}", NUMBERS, r"stop.accuracy: .*write target: {name: mae, at_most: 0.3}"),
        ("fedavg", "expect: {accuracy: 90%}", NUMBERS, r"expect.accuracy: .*write metrics: \[{name: mae, at_most"),
        (
            "dffke",
            EDGES,
            Form((8,), 3),
            r"data.dataset: dffke .* 1x1, .* \(8,\)",
        ),
        ("fededs", EDGES, Form((1, 7, 7), 3), "data.dataset: fededs .* 8x8"),
        ("fedavg", "", PARTS, "model: mlp takes one array"),
        ("fedfeat", "", PARTS, "data.dataset: has samples.* fedfeat"),
        ("fedavg", "", TOKENS, "model: mlp .* integer tokens"),
        ("fedavg", "model: char-transformer", Form((1, 8, 8), 10), r"model: char-transformer predicts the next char"),
        ("fedavg", "model: char-transformer", replace(TOKENS, labels=()), r"model: char-transformer predicts the next"),
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


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        (f"print('{json.dumps(asdict(Size(7)))}'); raise SystemExit('out of luck')", "out of luck"),
        ("print('no answer')", "exit code 0"),
        ('print(\'{"error": "model mine: too wide"}\')', "model: mine: too wide"),
    ],
)
def test_a_measurement_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch, code: str, said: str) -> None:
    monkeypatch.setattr(python, "module", lambda *_: [sys.executable, "-c", code])
    with pytest.raises(PlanError, match=f"{said}$"):
        measured((), "mine", "{}", Form((9,), 3))


@pytest.mark.parametrize("form", [NUMBERS, LABELS])
def test_built_in_models_predict_numbers_and_labels(form: Form) -> None:
    (size,) = model_sizes(parse("algorithm: fedavg\nmodel: mlp\ntopology: {devices: 2}\n", "f.yaml"), form)
    assert size.parameters == (8 + 1) * 200 + (200 + 1) * 3


FEELPGEN = "feelpgen\ntopology: {cloud: false}"
PICTURES = Form((1, 8, 8), 10)
RANKS = """\
algorithm: flexlora
model: {name: mlp, lora: {rank: 3, alpha: 16, targets: [classifier], ranks: {phone: 4, raspberry-pi-4: 2}}}
topology: {devices: 3}
hardware: {device-0: phone, device-1: raspberry-pi-4}
"""


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The parameters of models that were measured, all with the size 7."""
    params: list[dict[str, Any]] = []

    def measure(plugins: object, model: str, written: str, form: Form) -> Size:
        params.append(json.loads(written))
        return Size(7)

    monkeypatch.setattr(model_size, "measured", measure)
    return params


def test_adapters_are_measured_with_the_largest_rank(measurements: list[dict[str, Any]]) -> None:
    assert model_sizes(parse(RANKS, "f.yaml"), PICTURES) == [Size(7)]
    assert measurements == [measurements[0] | {"lora": measurements[0]["lora"] | {"rank": 4}}]


def test_a_model_of_tokens_is_measured(measurements: list[dict[str, Any]]) -> None:
    text = "algorithm: fedavg\nmodel: char-transformer\ntopology: {devices: 2}\n"
    assert model_sizes(parse(text, "f.yaml"), TOKENS) == [Size(7)]


def test_the_models_of_a_group_have_a_size_each(measurements: list[dict[str, Any]]) -> None:
    sizes = model_sizes(parse(f"algorithm: dffke\nmodel: small\n{EDGES}\n", "f.yaml"), PICTURES)
    assert len({size.parameters for size in sizes}) == 5
    assert measurements == []


@pytest.mark.parametrize(("features", "refused"), [("", True), (", features: 64", False)])
def test_an_algorithm_may_need_the_same_number_of_features_of_all(
    monkeypatch: pytest.MonkeyPatch, features: str, refused: bool
) -> None:
    scenario = parse(f"algorithm: dffke\nmodel: {{name: small{features}}}\n{EDGES}\n", "f.yaml")
    aligned = replace(scenario.scheme, aligned=True)
    monkeypatch.setattr(Scenario, "scheme", aligned)
    with pytest.raises(PlanError, match="features: 64") if refused else contextlib.nullcontext():
        model_sizes(scenario, PICTURES)


def test_a_model_with_a_closed_form_is_not_measured(measurements: list[dict[str, Any]]) -> None:
    mlp = "algorithm: fedavg\nmodel: {name: mlp, hidden: 50}\ntopology: {devices: 2}\n"
    (size,) = model_sizes(parse(mlp, "f.yaml"), PICTURES)
    assert (size.bytes, size.layers > 0, measurements) == (4 * (65 * 50 + 51 * 10), True, [])
    (half,) = model_sizes(parse(mlp + "compute: {precision: bf16}\n", "f.yaml"), PICTURES)
    assert half.bytes == 2 * (65 * 50 + 51 * 10)


@pytest.mark.parametrize(
    ("algorithm", "size", "said"),
    [
        ("fedfeat\ntopology: {devices: 2}", Size(9, layers=1), "fedfeat needs an extractor .*: take .*mlp"),
        ("fedfeat\ntopology: {devices: 2}", Size(9, layers=1, features=1), None),
        (FEELPGEN, Size(9, layers=1, features=5, linear=False), "feelpgen needs a classifier"),
        (FEELPGEN, Size(9, layers=1, features=5, partial=True), "feelpgen needs all weights in messages"),
        (FEELPGEN, Size(9, layers=0, features=5), "feelpgen needs all weights in messages"),
        (FEELPGEN, Size(9, layers=1, features=1), None),
        ("fedavg\ntopology: {devices: 2}", Size(LIMITS.body // 4), None),
        ("fedavg\ntopology: {devices: 2}", Size(LIMITS.body // 4 + 1), "a message carries at most"),
        (f"dffke\n{EDGES}", Size(LIMITS.body // 4 + 1, layers=1, features=5), None),  # models are personal
    ],
)
def test_models_have_what_the_algorithm_needs(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, size: Size, said: str | None
) -> None:
    monkeypatch.setattr(model_size, "_in_closed_form", lambda *_: [size])
    scenario = parse(f"algorithm: {algorithm}\nmodel: mlp\n", "f.yaml")
    if said is None:
        assert model_sizes(scenario, PICTURES) == [size]
    else:
        with pytest.raises(PlanError, match=said):
            model_sizes(scenario, PICTURES)


def test_the_models_that_would_do_are_named_if_the_data_suits_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a closed form for such data, none is known."""
    monkeypatch.setattr(model_size, "_in_closed_form", lambda *_: [Size(9, layers=1, features=5, partial=True)])
    scenario = parse(f"algorithm: {FEELPGEN}\nmodel: mlp\n", "f.yaml")
    for form, named in ((PICTURES, True), (replace(PICTURES, tokens=True), False), (PARTS, False)):
        with pytest.raises(PlanError) as raised:
            model_sizes(scenario, form)
        assert (": take " in str(raised.value)) == named
        assert ("char-transformer" in str(raised.value)) is False


@pytest.fixture
def of_a_plug_in(monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """A scenario with mlp, as if it were of a plug-in: it has a closed form, and takes every kind of sample."""
    monkeypatch.setattr(model_size, "_of_plugin", lambda *_: True)
    return parse("algorithm: fedavg\nmodel: mlp\ntopology: {devices: 2}\n", "f.yaml")


@pytest.mark.parametrize("form", [replace(TOKENS, labels=()), PARTS], ids=["tokens", "parts"])
def test_a_closed_form_is_for_floats_alone(
    of_a_plug_in: Scenario, form: Form, measurements: list[dict[str, Any]]
) -> None:
    assert model_sizes(of_a_plug_in, form) == [Size(7)]


def test_the_model_of_a_plug_in_is_measured_for_what_its_closed_form_may_not_know(
    of_a_plug_in: Scenario, measurements: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether messages have all weights. A size that says that they have not needs no measurement."""
    assert model_sizes(of_a_plug_in, PICTURES) != [Size(7)]
    assert len(measurements) == 1
    monkeypatch.setattr(model_size, "_in_closed_form", lambda *_: [Size(9, layers=1, partial=True)])
    model_sizes(of_a_plug_in, PICTURES)
    assert len(measurements) == 1


@pytest.mark.parametrize("partial", [False, True])
def test_a_model_of_edgebed_is_not_measured_again(
    partial: bool, measurements: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = Size(9, layers=1, partial=partial)
    monkeypatch.setattr(model_size, "_in_closed_form", lambda *_: [size])
    text = "algorithm: fedavg\nmodel: mlp\ntopology: {devices: 2}\n"
    assert model_sizes(parse(text, "f.yaml"), PICTURES) == [size]
    assert measurements == []


def test_a_model_with_adapters_is_measured_though_it_has_a_closed_form(measurements: list[dict[str, Any]]) -> None:
    lora = "{rank: 2, alpha: 4, targets: [classifier]}"
    text = f"algorithm: fedavg\nmodel: {{name: mlp, lora: {lora}}}\ntopology: {{devices: 2}}\n"
    assert model_sizes(parse(text, "f.yaml"), PICTURES) == [Size(7)]
    (params,) = measurements
    assert params["lora"]["rank"] == 2
