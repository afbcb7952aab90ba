"""Common steps of algorithms: train, evaluate, average updates, join and part the tensors of messages.

All heavy work goes through `Role.compute`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from numpy.typing import NDArray

from node.arrays import as_array
from node.catalogue.tasks import CLIENTS, MAIN_METRIC
from node.learning.aggregation import STATISTICS, State, weighted_mean
from node.learning.class_metrics import of_classes
from node.learning.evaluation import Evaluation
from node.learning.local_training import LocalTraining
from node.learning.training import ExtraLoss, Forward, Scope, TrainResult
from node.messaging.gathering import needed
from node.messaging.wire import Message
from node.role import Role

Parameters = TypeVar("Parameters", bound=LocalTraining)

MEAN_SCOPES = ("global", "own")
"""The test sets of `report_mean`."""


async def train(
    role: Role,
    w: State,
    round: int,
    params: LocalTraining,
    extra: ExtraLoss | None = None,
    beside: float = 0.0,
) -> TrainResult:
    """Train from `w` on the node's own data, with the mini-batches of `round`. `beside`: the time that the term `extra`
    takes of a simulation's clock, as a multiple of that without it (`Learner.beside`)."""
    params = params_at(role, params, round)
    passes = params.passes + beside
    work = role.learner.work(params) * passes
    return await role.compute(
        role.learner.train,
        w,
        params,
        round,
        extra,
        samples=math.ceil(work),
        mode="train",
    )


def params_at(role: Role, params: Parameters, round: int) -> Parameters:
    """The parameters in the run's round that a device's `round` is part of: below an edge it has several of them. A
    learning rate that decays is reported. For algorithms that train in a loop of their own; `train` does it itself."""
    within = 1
    if role.tier == "device":
        within = getattr(role.params, "edge_rounds", 1)
    t = (round - 1) // within + 1
    params_of_t = params.at(t)
    decays = params.learning_rate_decay != 1.0
    if decays and round % within == 0:
        learning_rate = params_of_t.learning_rate
        role.report(round=t, scope="train", learning_rate=learning_rate)
    return params_of_t


async def evaluated(
    role: Role,
    w: State,
    scope: Scope,
    limit: int | None = None,
    forward: Forward | None = None,
) -> Evaluation:
    """The evaluation of `w` on one of the node's test sets, or on `limit` samples of it."""
    samples = role.learner.test_samples(scope, limit)
    return await role.compute(
        role.learner.evaluate,
        w,
        scope,
        limit,
        forward,
        samples=samples,
        mode="evaluate",
    )


async def evaluate(
    role: Role,
    w: State,
    round: int,
    forward: Forward | None = None,
) -> dict[str, float]:
    """Report loss and metrics of `w` on every test set of the node: "global", "own", both or none. Returns the
    accuracies by test set, of a regression the mean absolute errors. Metrics of classes that the scenario requests are
    next to them, as "global.macro_f1"."""
    limit = role.params.evaluate_samples
    main = MAIN_METRIC[role.learner.data.task]
    means: dict[str, float] = {}
    for scope in role.learner.tests:
        result = await evaluated(role, w, scope, limit, forward)
        # The main metric comes first in the record, then the loss.
        main_value = result.metrics[main]
        values = {main: main_value, "loss": result.loss}
        values |= result.metrics
        role.report(round=round, scope=scope, **values)
        means |= means_over_clients(scope, main, result)
    return means


def means_over_clients(scope: Scope, main: str, result: Evaluation) -> dict[str, float]:
    """What `report_mean` averages of an evaluation, by the names of fields of a client's message."""
    main_value = float(result.metrics[main])
    values = {str(scope): main_value}
    for name, value in of_classes(result.metrics).items():
        values[f"{scope}.{name}"] = value
    return values


def report_mean(role: Role, messages: Sequence[Message], round: int) -> None:
    """Report what the run has reached where each client has its own model: the mean of what `evaluate` returned to
    clients, in the fields `global` and `own` of their messages, and the number of `clients` that it covers. So do the
    metrics of classes, in fields such as `global.macro_f1`: each is the mean over the clients that have it.

    Each client counts with its latest evaluation, whether it is online or not. Otherwise the mean would rise when weak
    clients leave. A client without samples, by the field `samples` of its message, does not count.
    """
    if not messages:
        return
    for message in messages:
        if message.fields.get("samples", 1):
            report = role.client_reports.setdefault(message.sender, {})
            report.update(_evaluations(message))
    main = MAIN_METRIC[role.learner.data.task]
    for scope in MEAN_SCOPES:
        values = []
        for report in role.client_reports.values():
            if scope in report:
                values.append(report[scope])
        if values:
            mean = sum(values) / len(values)
            means = {main: mean, CLIENTS: len(values)}
            class_means = _class_means(role, scope)
            role.report(round=round, scope=scope, **means, **class_means)


def _evaluations(message: Message) -> dict[str, Any]:
    """The fields of a message with metrics on the test sets of `report_mean`."""
    evaluations = {}
    for name, value in message.fields.items():
        scope = name.partition(".")[0]
        if scope in MEAN_SCOPES:
            evaluations[name] = value
    return evaluations


def _class_means(role: Role, scope: str) -> dict[str, float]:
    """The mean of each metric of classes over the clients that have reported it."""
    values_of: dict[str, list[float]] = {}
    for report in role.client_reports.values():
        for name, value in report.items():
            reported_scope, _, metric = name.partition(".")
            if metric and reported_scope == scope:
                values_of.setdefault(metric, []).append(value)
    means = {}
    for metric, values in values_of.items():
        means[metric] = sum(values) / len(values)
    return means


def drawn(
    role: Role,
    nodes: Sequence[str],
    count: int,
    purpose: str,
    round: int,
) -> list[str]:
    """Draw `count` of the nodes at random, seeded by this node, the purpose and the round."""
    random = role.learner.random(purpose, round)
    order = random.permutation(len(nodes))
    places = sorted(order[:count])
    return [nodes[place] for place in places]


def participants(
    role: Role,
    share: float,
    round: int,
    nodes: Sequence[str] | None = None,
) -> list[str]:
    """Draw a share of the node's children, or of `nodes`, rounded up, again in each round. A share below 1 is recorded
    (event selected)."""
    available = nodes
    if available is None:
        available = role.children
    count = needed(share, len(available))
    chosen = drawn(role, available, count, "devices", round)
    if share < 1:
        recorded_round = None
        if role.tier == "cloud":
            recorded_round = round
        role.note("selected", round=recorded_round, nodes=chosen)
    return chosen


def with_samples(role: Role, updates: Sequence[Message]) -> list[Message]:
    """The updates of nodes with training samples. Only these count. If there are none, the round is abandoned. Updates
    without a number of samples are reported (event bad_message)."""
    counted = _counting(role, updates, ("samples",))
    holding = [update for update in counted if update.fields["samples"] > 0]
    if counted and not holding:
        role.abandon(counted)
    return holding


async def average(role: Role, updates: Sequence[Message], w: State) -> State:
    """Mean of the updates' models, weighted by their field `samples`. `w` itself if no update has samples."""
    fit = fitting(role, updates, w)
    holding = with_samples(role, fit)
    if not holding:
        return w
    states = []
    samples = []
    for update in holding:
        states.append(update.tensors)
        samples.append(update.fields["samples"])
    return await role.compute(weighted_mean, states, samples, mode="other")


async def average_of_devices(role: Role, updates: Sequence[Message], w: State) -> State:
    """`average` at an edge with HierFAVG's parameters, which may leave out batch normalisation's `statistics`."""
    mean = await average(role, updates, w)
    if getattr(role.params, "statistics", "averaged") == "averaged":
        return mean
    result = dict(mean)
    for name in mean:
        if name.endswith(STATISTICS):
            result[name] = w[name]
    return result


def fitting(
    role: Role,
    updates: Sequence[Message],
    w: State,
    *counts: str,
) -> list[Message]:
    """The updates that can be averaged. They have a round and whole numbers for `samples` and the other `counts`. If
    they have samples, their model has the names, types and shapes of `w` (of the first update if `w` is empty).

    Any other update is left out and reported (event bad_message). If none is left, the round is abandoned.
    """
    fit: list[Message] = []
    if updates:
        form = _form(w or updates[0].tensors)
    else:
        form = {}
    for update in _counting(role, updates, ("samples", *counts)):
        if update.round is None:
            role.refuse(update, "has no round")
        elif not update.fields["samples"] or _of_form(role, update, form):
            fit.append(update)
    return fit


def models(role: Role, answers: Sequence[Message], w: State) -> list[Message]:
    """The answers with a model of the names, types and shapes of `w`. The others are reported (event bad_message)."""
    form = _form(w)
    return [answer for answer in answers if _of_form(role, answer, form)]


def _counting(
    role: Role,
    updates: Sequence[Message],
    counts: Sequence[str],
) -> list[Message]:
    """The updates with a whole number in each of these fields. The others are reported."""
    counted = []
    for update in updates:
        fields = update.fields
        odd = [name for name in counts if not _is_count(fields.get(name))]
        if odd:
            role.refuse(update, f"has no whole number of {' and '.join(odd)}")
        else:
            counted.append(update)
    return counted


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


def _of_form(role: Role, message: Message, form: dict[str, Any]) -> bool:
    if _form(message.tensors) == form:
        return True
    role.refuse(message, "does not have the names, types and shapes of the model")
    return False


def _form(w: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """The type and shape of each entry, also of torch's tensors."""
    form = {}
    for name, values in w.items():
        array = as_array(values)
        form[name] = (array.dtype, array.shape)
    return form


def round_of(message: Message) -> int:
    """The round of a message of a kind that always has one."""
    if message.round is None:
        raise ValueError(f"message {message.kind!r} of {message.sender} has no round")
    return message.round


def parted(tensors: Mapping[str, NDArray[Any]], part: str) -> State:
    """The tensors with names that start with `part` and a slash, under their names without this prefix."""
    prefix = f"{part}/"
    state: State = {}
    for name, values in tensors.items():
        if name.startswith(prefix):
            state[name.removeprefix(prefix)] = values
    return state


def joined(**parts: Mapping[str, NDArray[Any]]) -> State:
    """Join parts into one state, with `part/` before each name. The inverse of `parted`."""
    tensors: State = {}
    for part, state in parts.items():
        for name, values in state.items():
            tensors[f"{part}/{name}"] = values
    return tensors
