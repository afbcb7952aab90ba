"""The facts of a run in one JSON object: the last output of `up --json`, and summary.json in the run's directory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from node.catalogue.tasks import CLIENTS
from orchestrator.record.events.nodes import Overrun
from orchestrator.record.rows import FaultSpan
from orchestrator.results.checks.links import overloads
from orchestrator.results.checks.programs import ended_programs
from orchestrator.results.checks.registry import checks, overall
from orchestrator.results.evaluation.inversion import inversion
from orchestrator.results.evaluation.personalisation import personalisation
from orchestrator.results.evaluation.population import population
from orchestrator.results.evaluation.privacy import privacy
from orchestrator.results.history import History
from orchestrator.results.hosts import hosts
from orchestrator.results.traffic import volumes
from orchestrator.results.traffic.volumes import real_links


def summary(history: History) -> dict[str, Any]:
    """The summary of a run, in plain JSON values; None for missing figures.

    ``seconds``: the run's own clock, which is virtual if nodes are simulated. ``training_seconds``: from the
    start of the training to the end of its last round; None without. ``wall_seconds``: the host's clock.
    Keys: run (directory), name, driver, links (engine), verdict, checks, rounds, seconds, training_seconds,
    wall_seconds,
    accuracy {global, edge}, metrics {name: the last value of each other metric on the global test set},
    bytes {link class: delivered in training}, device_bytes {device: {sent, received}: delivered in training},
    probe_bytes {link class: delivered before it},
    link_kinds {link class: ["emulated", "modelled" or "real"]},
    messages {kind: sent}, faults, nodes, overruns, overloads, ended, error; if they apply to the run,
    population, personalisation, privacy, inversion, real_links, hosts,
    accelerators {device: [nodes that train on it]},
    ended_programs [{program, node, code, at: s of training}: those that ended before the run did], and
    mean_over {clients, of}: how many of the run's clients, or leading nodes, the mean ``accuracy.global`` covers.
    """
    results = checks(history)
    began = history.training_began
    outcome = history.outcome
    edges = {}
    for edge, series in history.edge_series("accuracy").items():
        edges[edge] = finite(series[-1].value)
    overall_accuracy = history.global_series("accuracy")
    coverage = history.coverage()
    mean_over = None
    if coverage is not None:
        mean_over = {"clients": coverage.covers, "of": coverage.total}
    about = evaluations(history) | {
        "mean_over": mean_over,
        "real_links": real_links(history),
        "hosts": hosts(history),
        "accelerators": _accelerators(history),
        "ended_programs": _ended_programs(history, began or 0.0),
    }
    training_seconds = None
    if began is not None:
        training_seconds = round(history.training_ended - began, 3)
    wall_seconds = None
    if outcome is not None and outcome.wall is not None:
        wall_seconds = round(outcome.wall, 3)
    last_accuracy = None
    if overall_accuracy:
        last_accuracy = finite(overall_accuracy[-1].value)
    return {
        "run": str(history.directory),
        "name": history.plan.get("name", history.run),
        "driver": history.driver,
        "links": history.engine,
        "verdict": overall(results),
        "checks": results,
        "rounds": history.rounds_done(),
        "seconds": round(history.seconds, 3),
        "training_seconds": training_seconds,
        "wall_seconds": wall_seconds,
        "accuracy": {
            "global": last_accuracy,
            "edge": edges,
        },
        "metrics": _metrics(history),
        "bytes": volumes.bytes_by_class(history),
        "device_bytes": volumes.bytes_by_device(history),
        "probe_bytes": volumes.probed_bytes_by_class(history),
        "link_kinds": _kinds(history),
        "messages": volumes.messages_by_kind(history),
        "faults": [_fault(span, began or 0.0) for span in history.faults()],
        "nodes": len(history.nodes),
        "overruns": len(history.events(Overrun.NAME)),
        "overloads": [overload.to_json() for overload in overloads(history)],
        "ended": outcome.ended if outcome else None,
        "error": outcome.error if outcome else None,
        **{name: facts for name, facts in about.items() if facts is not None},
    }


def _metrics(history: History) -> dict[str, float | None]:
    elsewhere = ("accuracy", CLIENTS)
    last = {}
    for scope, name in history.metric_names():
        if scope != "global" or name in elsewhere:
            continue
        series = history.global_series(name)
        if series:
            last[name] = finite(series[-1].value)
    return last


def evaluations(history: History) -> dict[str, dict[str, Any] | None]:
    """What the training came to besides its accuracy, by name; None where it does not apply to the run."""
    return {
        "population": population(history),
        "personalisation": personalisation(history),
        "privacy": privacy(history),
        "inversion": inversion(history),
    }


def _kinds(history: History) -> dict[str, list[str]]:
    """The kinds of the links of each class."""
    by_class: dict[str, set[str]] = {}
    for ends, kind in history.link_kinds.items():
        link_class = history.link_classes[ends]
        by_class.setdefault(link_class, set()).add(kind)
    return {link_class: sorted(kinds) for link_class, kinds in by_class.items()}


def _accelerators(history: History) -> dict[str, list[str]] | None:
    """The accelerators on which nodes trained, with the nodes; None if all trained on the processor."""
    nodes_of: dict[str, list[str]] = {}
    for name, node in history.nodes.items():
        if node.get("device"):
            nodes_of.setdefault(node["device"], []).append(name)
    return nodes_of or None


def finite(value: float) -> float | None:
    """A number that JSON can represent: None for NaN and the infinities."""
    return value if math.isfinite(value) else None


def _ended_programs(history: History, began: float) -> list[dict[str, Any]] | None:
    """The programs that ended before the run was stopped; None for runs without programs."""
    if not history.plan.get("programs"):
        return None
    rows = []
    for program in ended_programs(history):
        row = {"program": program.label, "node": program.node, "code": program.code}
        rows.append(row | {"at": round(program.t - began, 3)})
    return rows


def _fault(span: FaultSpan, began: float) -> dict[str, Any]:
    """A fault with the seconds of training at which it took effect, or None; ``by``: who made it manually."""
    planned = span.planned
    fault: dict[str, Any] = {"action": span.action}
    if planned.get("between"):
        fault["between"] = [_side(nodes) for nodes in planned["between"]]
    else:
        fault["node"] = planned.get("node") or span.target
    if planned.get("program"):
        fault["program"] = planned["program"]
    fault["at"] = None
    if span.start is not None:
        fault["at"] = round(span.start - began, 3)
    fault["round"] = span.round
    if span.by:
        fault["by"] = span.by
    return fault


def _side(nodes: Sequence[str]) -> str | list[str]:
    """One side of a partition: the name of its only node, or the names of all."""
    if len(nodes) == 1:
        return nodes[0]
    return list(nodes)
