"""From a seed to a case. Every setting has its own random part, and most settings keep their default in most cases: a
mix of a few features finds more than a little of everything (swarm testing: Groce and others, ISSTA 2012)."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from node.algorithms.registry import ALGORITHMS, Algorithm
from orchestrator.scenario.sections.hardware import HARDWARE
from tests.campaign.case import Case, Interruption
from tests.campaign.dice import Dice
from tests.campaign.faults import drawn_faults
from tests.campaign.links import drawn_links, slowest

QUICK: Mapping[str, Mapping[str, Any]] = {
    "fededs": {
        "profile": "fast",
        "epochs": 1,
        "epochs_max": 2,
        "model_epochs": 1,
        "encryptor_epochs": 1,
        "encryptor_width": 4,
    },
    "edgecloud": {"epochs": 1},
    "phe-fl": {"epochs": 1},
    "feelpgen-minus": {"steps": 2, "inner_rounds": 1, "generator_steps": 2, "generator_hidden": 8},
    "feelpgen": {"steps": 2, "inner_rounds": 1, "generator_steps": 2, "generator_hidden": 8, "features": 10},
    "feelpgen-plus": {"steps": 2, "inner_rounds": 1, "generator_steps": 2, "generator_hidden": 8, "features": 10},
    "dffke": {
        "profile": "fast",
        "first_epochs": 1,
        "epochs": 1,
        "embeddings": 8,
        "dimension": 8,
        "width": 4,
        "docking_epochs": 1,
        "decoder_epochs": 1,
        "exchange_epochs": 1,
        "memory_rounds": 1,
    },
    "fedfeat": {"epochs": 1, "retrain_epochs": 1},
}
"""Parameters that shorten the training of algorithms with long default training."""


def generate(seed: int) -> Case:
    """The case of a seed."""
    algorithm = ALGORITHMS[Dice(seed, "algorithm").pick(list(ALGORITHMS))]
    topology = _topology(algorithm, Dice(seed, "topology"))
    rounds = Dice(seed, "rounds").whole(1, 6)
    stop = _stop(Dice(seed, "stop"))
    links = drawn_links(topology, meshed=algorithm.meshed, dice=Dice(seed, "links"))
    scenario = {
        "name": f"case-{seed}",
        "seed": seed,
        "algorithm": {"name": algorithm.name, "rounds": rounds, **_parameters(algorithm, Dice(seed, "parameters"))},
        "data": _data(topology, Dice(seed, "data")),
        "model": _model(algorithm, Dice(seed, "model")),
        "topology": topology,
        "hardware": _hardware(Dice(seed, "hardware"), topology),
        "links": links,
        "faults": drawn_faults(topology, algorithm, rounds, stop, links, Dice(seed, "faults")),
        "gathering": _gathering(Dice(seed, "gathering")),
        "timeouts": _timeouts(slowest(links), Dice(seed, "timeouts")),
        "restart": Dice(seed, "restart").pick(["on-failure", "never"]),
        "stop": stop,
        "expect": {"accuracy": "15%"} if Dice(seed, "expect").coin(0.1) else {},
        "driver": "sim",
    }
    said = {key: value for key, value in scenario.items() if value not in ({}, [])}
    return Case(str(seed), said, _interruption(rounds, Dice(seed, "interruption")))


def _topology(algorithm: Algorithm, dice: Dice) -> dict[str, Any]:
    cloud = algorithm.cloud == "required" or (algorithm.cloud == "optional" and dice.coin())
    devices_only = algorithm.edges != "required" and dice.coin(0.7)
    if devices_only:
        return {"cloud": cloud, "devices": dice.whole(1, 6)}
    edges = dice.whole(2 if algorithm.name in ("fededs", "dffke") else 1, 4)
    if algorithm.devices == "none" or algorithm.flat:
        return {"cloud": cloud, "edges": edges, "devices_per_edge": 0}
    if dice.coin(0.3):
        return {"cloud": cloud, "edges": edges, "devices_per_edge": [dice.whole(1, 4) for _ in range(edges)]}
    return {"cloud": cloud, "edges": edges, "devices_per_edge": dice.whole(1, 3)}


def _parameters(algorithm: Algorithm, dice: Dice) -> dict[str, Any]:
    given = dict(QUICK.get(algorithm.name, {}))
    names = {name for kind in algorithm.params.__mro__ for name in vars(kind).get("__annotations__", {})}
    if dice.coin(0.8):
        given["learning_rate"] = dice.number(1e-3, 0.5)
    if dice.coin(0.3):
        given["batch_size"] = dice.whole(1, 64)
    if "kappa2" in names and dice.coin():
        given["kappa2"] = dice.whole(1, 3)
    if "participation" in names and dice.coin(0.3):
        given["participation"] = dice.pick([0.1, 0.5, 0.9])
    if "patience" in names and dice.coin(0.3):
        given["patience"] = dice.number(0.01, 10)
    if "exchange" in names and dice.coin(0.2):
        given["exchange"] = False
    if "base" in names:
        given["base"] = dice.pick(["fedavg", "fedprox", "fednova"])
    if "privacy" in names and dice.coin(0.3):
        given["privacy"] = dice.pick(["clip", "empirical"])
    if "noise" in names and dice.coin():
        given["noise"] = dice.pick(["laplace", "none"])
    if algorithm.name == "fedfeat" and dice.coin(0.3):
        given["features"] = "averaged"
    return given


def _data(topology: Mapping[str, Any], dice: Dice) -> dict[str, Any]:
    dirichlet = {
        "alpha": dice.number(0.05, 10),
        "min_samples": dice.whole(0, 5),
        "variant": dice.pick(["class", "class-uncapped", "client"]),
    }
    shards = {"shard_size": "auto", "shards_per_client": dice.whole(1, 3)}
    partitions: list[Any] = ["iid", {"dirichlet": dirichlet}, {"shards": shards}]
    if topology.get("edges"):
        partitions.append({"labels-per-edge": dice.pick(["D1", "D2", "D3", "D4"])})
    if topology.get("edges", 0) > 1:
        partitions.append({"dirichlet": {"alpha": dice.number(0.05, 10), "over": "edges", "min_samples": 1}})
    data: dict[str, Any] = {"dataset": "digits", "partition": dice.pick(partitions)}
    return data | {"samples_per_client": dice.whole(5, 50), "evaluate_samples": dice.whole(5, 50)}


def _model(algorithm: Algorithm, dice: Dice) -> Any:
    small = {"name": "mlp", "hidden": dice.whole(2, 40), "layers": dice.whole(1, 2)}
    if algorithm.personal and dice.coin():
        return "small"
    if algorithm.ranked:
        return small | {"lora": {"rank": dice.whole(1, 2), "alpha": 2, "targets": ["classifier"]}}
    return small if dice.coin(0.7) else dice.pick(["cnn", "lenet", "tiny-resnet", "separable-cnn"])


def _hardware(dice: Dice, topology: Mapping[str, Any]) -> dict[str, Any]:
    classes = [name for name in HARDWARE if name != "host"]
    tiers = ["device"] * ("devices" in topology or bool(topology.get("devices_per_edge")))
    tiers += ["edge"] * bool(topology.get("edges")) + ["cloud"] * topology["cloud"]
    given: dict[str, Any] = {}
    for tier in tiers:
        if dice.coin():
            given[tier] = {"speed": dice.number(1e-4, 2)} if dice.coin() else dice.pick(classes)
    return given


def _gathering(dice: Dice) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if dice.coin():
        given["quorum"] = dice.pick(["1%", "30%", "50%", "80%", "100%"])
    if dice.coin(0.4):
        given["deadline"] = dice.seconds(0.01, 20)
    if dice.coin(0.3):
        given["cloud_deadline"] = dice.seconds(0.01, 60)
    if dice.coin():
        given["late"] = "keep"
    return given


def _timeouts(latency: float, dice: Dice) -> dict[str, Any]:
    beat = dice.number(0.05, 2)
    if dice.coin(0.4):
        return {"lost_after": f"{max(8.0, 9 * latency):.3f}s"}
    lost = max(2.1 * beat, 9 * latency + 0.01) * dice.number(1, 10)
    return {"beat": f"{beat}s", "lost_after": f"{lost:.3f}s", "lease": f"{2.1 * beat:.3f}s"}


def _stop(dice: Dice) -> dict[str, Any]:
    stop: dict[str, Any] = {}
    if dice.coin(0.2):
        stop["accuracy"] = dice.percent(5, 100)
    if dice.coin(0.2):
        stop["after"] = dice.seconds(0.05, 60)
    return stop


def _interruption(rounds: int, dice: Dice) -> Interruption | None:
    if not dice.coin(0.25):
        return None
    number = dice.pick([signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    return Interruption(number, dice.number(0.001, 5), dice.whole(min(2, rounds), rounds))
