"""The sizes of the scenario's models: in closed form, or measured on a model by a process with torch. And whether the
models have what the algorithm needs."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable
from dataclasses import asdict, replace

from node.algorithms.registry import Algorithm
from node.assignment import PluginSource
from node.catalogue.datasets import Form
from node.catalogue.models import MODEL_GROUPS, ModelEntry, largest
from node.catalogue.networks import needs_pictures
from node.catalogue.sizes import Size
from node.catalogue.tasks import WITHOUT_CLASSES
from node.messaging.wire import LIMITS
from node.parameters import read_parameters
from node.plugins import is_of_plugin
from orchestrator import text
from orchestrator.errors import PlanError
from orchestrator.host.process import python
from orchestrator.scenario.schema import Scenario

TIMEOUT = 300.0  # s; the first import of torch from a cold disk is slow
MODEL = ("model",)
_REGRESSION_GOALS = {
    "stop": "target: {name: mae, at_most: 0.3}",
    "expect": "metrics: [{name: mae, at_most: 0.3}]",
}
FEATURES = "an extractor that makes a vector of features, and a classifier of it"


def model_sizes(scenario: Scenario, form: Form) -> list[Size]:
    """The size of each kind of model, for data of this form; with adapters, that of the largest rank. PlanError if one
    cannot take it, or lacks what the algorithm declares to need."""
    _check_form(scenario, form)
    entry = scenario.catalogue.models.get(scenario.model.name)  # None: a group of models
    rank = max(scenario.ranks.values(), default=None)
    sizes = _in_closed_form(scenario, entry, form)
    if entry is not None and not sizes:
        sizes = [_measured(scenario, entry, form, rank)]
    if scenario.compute.precision != "float32":
        sizes = [replace(size, width=2) for size in sizes]
    _check_demands(scenario, entry, sizes, form)
    return sizes


def _check_form(scenario: Scenario, form: Form) -> None:
    """PlanError if the algorithm or the goals do not fit the form of the data."""
    algorithm = scenario.scheme
    of_data = ("data", "dataset")
    if (form.tokens or form.parts) and algorithm.floats:
        what = "integer tokens" if form.tokens else "samples of several parts"
        raise PlanError(of_data, f"has {what}, and {algorithm.name} needs pictures or floats")
    if form.task != "classification" and algorithm.classes:
        what = WITHOUT_CLASSES[form.task]
        raise PlanError(of_data, f"has {what}, and {algorithm.name} needs classes")
    smallest = scenario.parameters.smallest_picture
    if smallest:
        try:
            needs_pictures(form.shape, smallest)
        except ValueError as error:
            raise PlanError(of_data, f"{algorithm.name} {error}") from None
    if form.task == "regression":
        for section, remedy in _REGRESSION_GOALS.items():
            if getattr(scenario, section).accuracy is not None:
                raise PlanError((section, "accuracy"), f"a regression has no accuracy: write {remedy}")


def _in_closed_form(scenario: Scenario, entry: ModelEntry | None, form: Form) -> list[Size]:
    """Empty if the model has no closed form, or its form does not give the layers. Closed forms are for floats."""
    name = scenario.model.name
    params = scenario.model.params
    of_plugin = entry is not None and _of_plugin(entry, scenario)
    try:
        _check_samples(name, entry, form, of_plugin=of_plugin)
        if entry is None:
            return MODEL_GROUPS[name].sizes(form.shape, form.classes, params)
        for_floats = not form.tokens and not form.parts
        if entry.measure is None or not for_floats or scenario.model.lora is not None:
            return []
        size = entry.size(form.shape, form.classes, params)
    except ValueError as error:
        raise PlanError(MODEL, str(error).removeprefix("model ")) from None
    if not size.layers:
        return []
    return [size]


def _check_samples(name: str, entry: ModelEntry | None, form: Form, *, of_plugin: bool) -> None:
    """ValueError if the model does not take such samples. ``entry``: None for a group of models."""
    if form.parts and not of_plugin:
        raise ValueError(f"{name} takes one array for each sample, not several parts: take a model of a plug-in")
    has_closed_form = entry is None or entry.measure is not None
    if form.tokens and has_closed_form and not of_plugin:
        raise ValueError(f"{name} takes pictures or floats, not integer tokens: take char-transformer")
    if name == "char-transformer" and not (form.tokens and form.labels):
        raise ValueError(f'{name} predicts the next character of texts: take data: {{dataset: "text:PATH"}}')


def _of_plugin(entry: ModelEntry, scenario: Scenario) -> bool:
    return entry.build is not None and is_of_plugin(entry.build.__module__, scenario.plugins)


def _check_demands(
    scenario: Scenario,
    entry: ModelEntry | None,
    sizes: list[Size],
    form: Form,
) -> None:
    algorithm = scenario.scheme
    name = scenario.model.name
    size = largest(sizes)
    if size.bytes > LIMITS.body and not algorithm.personal:
        own = text.size(size.bytes)
        most = text.size(LIMITS.body)
        raise PlanError(MODEL, f"{name} has {own}, and a message carries at most {most}: take a smaller model")
    if entry is not None and _of_plugin(entry, scenario) and not size.partial:
        size = _measured(scenario, entry, form)  # its closed form may not know this
    demands = _demands(algorithm)
    for what, has in demands.items():
        if not has(size):
            others = _models_with(has, form, scenario)
            remedy = f": take {', '.join(others)}" if others else ""
            raise PlanError(MODEL, f"{algorithm.name} needs {what}, which {name} lacks{remedy}")
    if algorithm.aligned and name in MODEL_GROUPS:
        widths = sorted({size.features for size in sizes})
        if len(widths) > 1:
            raise PlanError(
                MODEL,
                f"the models of {name} have {', '.join(map(str, widths))} features, and {algorithm.name}"
                f" needs one number for all: write model: {{name: {name}, features: 64}}",
            )


def _demands(algorithm: Algorithm) -> dict[str, Callable[[Size], bool]]:
    """What an algorithm needs of a model, in words, and whether a model of some size has it."""
    demands: dict[str, Callable[[Size], bool]] = {}
    if algorithm.featured:
        demands[FEATURES] = _has_features
    if algorithm.linear:
        demands["a classifier of one linear layer"] = _has_linear_classifier
    if algorithm.whole:
        demands["all weights in messages"] = _is_whole
    return demands


def _models_with(
    has: Callable[[Size], bool],
    form: Form,
    scenario: Scenario,
) -> list[str]:
    """The models of the catalogue that meet a demand."""
    names = []
    for entry in scenario.catalogue.models.values():
        if has(_closed(entry, form)):
            names.append(entry.name)
    return names


def _has_features(size: Size) -> bool:
    return size.features > 0


def _has_linear_classifier(size: Size) -> bool:
    return size.features > 0 and size.linear


def _is_whole(size: Size) -> bool:
    return size.layers > 0 and not size.partial


def _closed(entry: ModelEntry, form: Form) -> Size:
    """The size of a model with its default parameters, by its closed form; one without anything if there is none."""
    try:
        if entry.measure is None or form.tokens or form.parts:
            return Size(0)
        return entry.size(form.shape, form.classes)
    except ValueError:  # it does not take such samples
        return Size(0)


def _measured(
    scenario: Scenario,
    entry: ModelEntry,
    form: Form,
    rank: int | None = None,
) -> Size:
    params = asdict(read_parameters(entry.params, scenario.model.params))
    params |= scenario.model.adapters(rank)
    written = json.dumps(params, sort_keys=True)
    return measured(scenario.plugins, entry.name, written, form)


@functools.lru_cache(maxsize=64)
def measured(
    plugins: tuple[PluginSource, ...],
    model: str,
    params: str,
    form: Form,
) -> Size:
    """The size of a model with ``params`` (JSON), measured in a process of its own."""
    order = {
        "plugins": [asdict(plugin) for plugin in plugins],
        "model": model,
        "params": json.loads(params),
        **asdict(form),
    }
    argv = python.module("node.process.measuring", json.dumps(order))
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise PlanError(MODEL, f"{model}: its size could not be measured within {TIMEOUT:.0f} s") from None
    lines = done.stdout.splitlines()
    answers = [line for line in lines if line.startswith("{")]  # plug-ins may print as they end
    if done.returncode != 0 or not answers:
        complaints = done.stderr.strip().splitlines()
        if not complaints:
            complaints = [f"exit code {done.returncode}"]
        raise PlanError(MODEL, f"{model}: its size could not be measured: {complaints[-1]}")
    answer = json.loads(answers[0])
    if "error" in answer:
        message = answer["error"].removeprefix("model ")
        raise PlanError(MODEL, message)
    return Size(**answer)
