"""The sizes of the scenario's models: in closed form, or measured on a model by a process with torch. And whether the
models have what the algorithm needs."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable
from dataclasses import asdict, replace

from node.assignment import PluginSource
from node.catalogue.datasets import WITHOUT_CLASSES, Form
from node.catalogue.models import MODEL_GROUPS, MODELS, ModelEntry, largest
from node.catalogue.networks import needs_pictures
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


def model_sizes(scenario: Scenario, form: Form) -> list[Size]:
    """The size of each kind of model, for data of this form; with adapters, that of the largest rank. PlanError if one
    cannot take it, or lacks what the algorithm declares to need."""
    if (form.tokens or form.parts) and scenario.scheme.floats:
        what = "integer tokens" if form.tokens else "samples of several parts"
        raise PlanError(("data", "dataset"), f"has {what}, and {scenario.scheme.name} needs pictures or floats")
    if form.task != "classification" and scenario.scheme.classes:
        what = WITHOUT_CLASSES[form.task]
        raise PlanError(("data", "dataset"), f"has {what}, and {scenario.scheme.name} needs classes")
    least = scenario.parameters.smallest_picture
    if least:
        try:
            needs_pictures(form.shape, least)
        except ValueError as error:
            raise PlanError(("data", "dataset"), f"{scenario.scheme.name} {error}") from None
    if form.task == "regression":
        instead = (("stop", "target: {name: mae, at_most: 0.3}"), ("expect", "metrics: [{name: mae, at_most: 0.3}]"))
        for section, remedy in instead:
            if getattr(scenario, section).accuracy is not None:
                raise PlanError((section, "accuracy"), f"a regression has no accuracy: write {remedy}")
    rank = max(scenario.ranks.values(), default=None)
    sizes = _in_closed_form(scenario, form) or [_measured(scenario, MODELS[scenario.model.name], form, rank)]
    if scenario.compute.precision != "float32":
        sizes = [replace(size, width=2) for size in sizes]
    _check_demands(scenario, sizes, form)
    return sizes


def _in_closed_form(scenario: Scenario, form: Form) -> list[Size]:
    """Empty if the model has no closed form, or its form does not give the layers. Closed forms are for floats."""
    name = scenario.model.name
    params = scenario.model.params
    try:
        entry = MODELS.get(name)
        if form.parts and (entry is None or not _of_plugin(entry)):
            raise ValueError(f"{name} takes one array for each sample, not several parts: take a model of a plug-in")
        if form.tokens and (entry is None or (entry.measure is not None and not _of_plugin(entry))):
            raise ValueError(f"{name} takes pictures or floats, not integer tokens: take char-transformer")
        if name == "char-transformer" and not (form.tokens and form.labels):
            raise ValueError(f'{name} predicts the next character of texts: take data: {{dataset: "text:PATH"}}')
        if entry is None:
            return MODEL_GROUPS[name].sizes(form.shape, form.classes, params)
        closed = entry.measure is not None and not form.tokens and not form.parts and scenario.model.lora is None
        if closed:
            size = entry.size(form.shape, form.classes, params)
        else:
            size = Size(0)
    except ValueError as error:
        raise PlanError(MODEL, str(error).removeprefix("model ")) from None
    return [size] if size.layers else []


def _of_plugin(entry: ModelEntry) -> bool:
    return entry.build is not None and is_of_plugin(entry.build.__module__)


def _check_demands(scenario: Scenario, sizes: list[Size], form: Form) -> None:
    algorithm = scenario.scheme
    name = scenario.model.name
    size = largest(sizes)
    entry = MODELS.get(name)
    if size.bytes > LIMITS.body and not algorithm.personal:
        most = text.size(LIMITS.body)
        raise PlanError(
            MODEL, f"{name} has {text.size(size.bytes)}, and a message carries at most {most}: take a smaller model"
        )
    if entry is not None and _of_plugin(entry) and not size.partial:
        size = _measured(scenario, entry, form)  # its closed form may not know this
    demands: tuple[tuple[bool, str, Callable[[Size], bool]], ...] = (
        (algorithm.featured, FEATURES, lambda size: size.features > 0),
        (algorithm.linear, "a classifier of one linear layer", lambda size: size.features > 0 and size.linear),
        (algorithm.whole, "all weights in messages", lambda size: size.layers > 0 and not size.partial),
    )
    for needed, what, has in demands:
        if needed and not has(size):
            others = [each.name for each in MODELS.values() if has(_closed(each, form))]
            remedy = f": take {', '.join(others)}" if others else ""
            raise PlanError(MODEL, f"{algorithm.name} needs {what}, which {name} lacks{remedy}")
    if algorithm.aligned and name in MODEL_GROUPS:
        found = {each.features for each in sizes}
        if len(found) > 1:
            raise PlanError(
                MODEL,
                f"the models of {name} have {', '.join(map(str, sorted(found)))} features, and {algorithm.name}"
                f" needs one number for all: write model: {{name: {name}, features: 64}}",
            )


def _closed(entry: ModelEntry, form: Form) -> Size:
    """The size of a model with its default parameters, by its closed form; one without anything if there is none."""
    try:
        if entry.measure is None or form.tokens or form.parts:
            return Size(0)
        return entry.size(form.shape, form.classes)
    except ValueError:  # it does not take such samples
        return Size(0)


def _measured(scenario: Scenario, entry: ModelEntry, form: Form, rank: int | None = None) -> Size:
    params = asdict(read_parameters(entry.params, scenario.model.params)) | scenario.model.adapters(rank)
    return measured(scenario.plugins, entry.name, json.dumps(params, sort_keys=True), form)


@functools.lru_cache(maxsize=64)
def measured(plugins: tuple[PluginSource, ...], model: str, params: str, form: Form) -> Size:
    """The size of a model with ``params`` (JSON), measured in a process of its own."""
    order = {
        "plugins": [asdict(each) for each in plugins],
        "model": model,
        "params": json.loads(params),
        **asdict(form),
    }
    argv = python.module("node.process.measuring", json.dumps(order))
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        raise PlanError(MODEL, f"{model}: its size could not be measured within {TIMEOUT:.0f} s") from None
    answers = [line for line in done.stdout.splitlines() if line.startswith("{")]  # plug-ins may print as they end
    if done.returncode != 0 or not answers:
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise PlanError(MODEL, f"{model}: its size could not be measured: {words[-1]}")
    answer = json.loads(answers[0])
    if "error" in answer:
        raise PlanError(MODEL, answer["error"].removeprefix("model "))
    return Size(**answer)
