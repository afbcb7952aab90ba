"""The sizes of the scenario's models: in closed form, or measured on a model by a process with torch."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable
from dataclasses import asdict

from node.assignment import PluginSource
from node.catalogue.datasets import Shape
from node.catalogue.models import MODEL_GROUPS, MODELS
from node.catalogue.sizes import Size
from node.parameters import read_parameters
from orchestrator.errors import PlanError
from orchestrator.host import python
from orchestrator.scenario.schema import Scenario

TIMEOUT = 300.0  # s; the first import of torch from a cold disk is slow
MODEL = ("model",)


def model_sizes(scenario: Scenario, shape: Shape, classes: int) -> list[Size]:
    """The size of each kind of model, for samples of ``shape`` and ``classes`` classes. PlanError if one cannot
    take them."""
    name, params = scenario.model.name, scenario.model.params
    if name in MODEL_GROUPS:
        return _in_closed_form(lambda: MODEL_GROUPS[name].sizes(shape, classes, params))
    entry = MODELS[name]
    if entry.measure is not None:
        (size,) = _in_closed_form(lambda: [entry.size(shape, classes, params)])
        if size.layers:
            return [size]
    given = asdict(read_parameters(entry.params, params))
    return [measured(scenario.plugins, name, json.dumps(given, sort_keys=True), shape, classes)]


def _in_closed_form(sizes: Callable[[], list[Size]]) -> list[Size]:
    try:
        return sizes()
    except ValueError as error:
        raise PlanError(MODEL, str(error).removeprefix("model ")) from None


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
