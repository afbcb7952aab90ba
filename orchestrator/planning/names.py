"""What a scenario names for its training, looked up once in its catalogue before the rest is planned."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

from node.catalogue.datasets import Form
from node.catalogue.models import MODEL_GROUPS, ModelEntry, ModelGroup
from node.parameters import read_parameters
from orchestrator.planning.learning.shards import PreparedLabels
from orchestrator.scenario.schema import Scenario


class Names(NamedTuple):
    """The model, or the group of models, with all its parameters; the form of the data, None if the data set is unknown
    until it is read; and the parameters of the partition."""

    model: ModelEntry | ModelGroup
    model_params: dict[str, Any]
    form: Form | None
    partition_params: dict[str, Any]


def looked_up(scenario: Scenario, data: PreparedLabels | None) -> Names:
    """The names of a scenario with an algorithm. ``data``: the labels, if they have been read."""
    name = scenario.model.name
    model = MODEL_GROUPS.get(name) or scenario.catalogue.models[name]
    model_params = asdict(read_parameters(model.params, scenario.model.params))
    model_params |= scenario.model.adapters()
    form = _form(scenario) if data is None else data.form
    return Names(model, model_params, form, _partition_params(scenario))


def _form(scenario: Scenario) -> Form | None:
    """The form of the data by its name."""
    known = scenario.catalogue.datasets.get(scenario.data.dataset[0])
    if known is not None and known.classes:
        return Form(known.shape, known.classes)
    return None


def _partition_params(scenario: Scenario) -> dict[str, Any]:
    """The partition's parameters, and the hash of its file. Of a population, only those that the scenario sets."""
    partition = scenario.data.partition
    if scenario.population is not None:
        return dict(partition.params)
    scheme = scenario.catalogue.partitions[partition.name]
    params = asdict(read_parameters(scheme.params, scenario.data.partition_params))
    lists = scenario.data.lists
    if lists is None:
        return params
    return params | {"sha256": lists.sha256}
