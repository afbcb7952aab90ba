"""The sizes of the scenario's models: in closed form, or measured on a model by a process with torch. And whether the
models have what the algorithm needs."""

from __future__ import annotations

import functools
import json
import subprocess
from dataclasses import asdict

from node.assignment import PluginSource
from node.catalogue.datasets import Shape
from node.catalogue.models import MODEL_GROUPS, MODELS, ModelEntry, largest
from node.catalogue.sizes import Size
from node.messaging.wire import LIMITS
from node.parameters import read_parameters
from node.plugins import is_of_plugin
from orchestrator import text
from orchestrator.errors import PlanError
from orchestrator.host.process import python
from orchestrator.scenario.schema import Scenario

TIMEOUT = 300.0  # s; the first import of torch from a cold disk is slow
MODEL = ("model",)
FEATURES = "an extractor that makes a vector of features, and a classifier of it"


def model_sizes(scenario: Scenario, shape: Shape, classes: int) -> list[Size]:
    """The size of each kind of model, for samples of ``shape`` and ``classes`` classes. PlanError if one cannot
    take them, or lacks what the algorithm declares to need."""
    sizes = _in_closed_form(scenario, shape, classes)
    sizes = sizes or [_measured(scenario, MODELS[scenario.model.name], shape, classes)]
    _check_demands(scenario, sizes, shape, classes)
    return sizes


def _in_closed_form(scenario: Scenario, shape: Shape, classes: int) -> list[Size]:
    """Empty if the model has no closed form, or its form does not give the layers."""
    name, params = scenario.model.name, scenario.model.params
    try:
        if name in MODEL_GROUPS:
            return MODEL_GROUPS[name].sizes(shape, classes, params)
        entry = MODELS[name]
        size = Size(0) if entry.measure is None else entry.size(shape, classes, params)
    except ValueError as error:
        raise PlanError(MODEL, str(error).removeprefix("model ")) from None
    return [size] if size.layers else []


def _check_demands(scenario: Scenario, sizes: list[Size], shape: Shape, classes: int) -> None:
    algorithm, name = scenario.scheme, scenario.model.name
    size, entry = largest(sizes), MODELS.get(name)
    if size.bytes > LIMITS.body and not algorithm.personal:
        most = text.size(LIMITS.body)
        raise PlanError(
            MODEL, f"{name} has {text.size(size.bytes)}, and a message carries at most {most}: take a smaller model"
        )
    if entry is not None and entry.build is not None and is_of_plugin(entry.build.__module__):
        size = _measured(scenario, entry, shape, classes)  # its closed form need not know
    demands = (
        (algorithm.featured, FEATURES, _featured),
        (algorithm.linear, "a classifier of one linear layer", _linear),
    )
    for needed, what, has in demands:
        if needed and not has(size):
            others = [each.name for each in MODELS.values() if has(_closed(each, shape, classes))]
            raise PlanError(MODEL, f"{algorithm.name} needs {what}, which {name} lacks: take {', '.join(others)}")
    if algorithm.aligned and name in MODEL_GROUPS:
        found = {each.features for each in sizes}
        if len(found) > 1:
            raise PlanError(
                MODEL,
                f"the models of {name} have {', '.join(map(str, sorted(found)))} features, and {algorithm.name}"
                f" needs one number for all: write model: {{name: {name}, features: 64}}",
            )


def _featured(size: Size) -> bool:
    return size.features > 0


def _linear(size: Size) -> bool:
    return size.features > 0 and size.linear


def _closed(entry: ModelEntry, shape: Shape, classes: int) -> Size:
    """The size of a model with its default parameters, by its closed form; one without anything if there is none."""
    try:
        return Size(0) if entry.measure is None else entry.size(shape, classes)
    except ValueError:  # it does not take such samples
        return Size(0)


def _measured(scenario: Scenario, entry: ModelEntry, shape: Shape, classes: int) -> Size:
    given = asdict(read_parameters(entry.params, scenario.model.params))
    return measured(scenario.plugins, entry.name, json.dumps(given, sort_keys=True), shape, classes)


@functools.lru_cache(maxsize=64)
def measured(plugins: tuple[PluginSource, ...], model: str, params: str, shape: Shape, classes: int) -> Size:
    """The size of a model with ``params`` (JSON), measured in a process of its own."""
    order = {
        "plugins": [asdict(each) for each in plugins],
        "model": model,
        "params": json.loads(params),
        "shape": shape,
        "classes": classes,
    }
    argv = python.module("node.process.measuring", json.dumps(order))
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise PlanError(MODEL, f"{model}: its size could not be measured within {TIMEOUT:.0f} s") from None
    answer = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 and done.stdout else None
    if answer is None:
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise PlanError(MODEL, f"{model}: its size could not be measured: {words[-1]}")
    if "error" in answer:
        raise PlanError(MODEL, answer["error"].removeprefix("model "))
    return Size(**answer)
