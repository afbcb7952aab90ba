"""The algorithms: each with its module, its parameters and the tiers it needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Literal

from node.algorithms.dffke.parameters import DFFKE
from node.algorithms.fededs.parameters import FedEDS
from node.algorithms.feelpgen.parameters import FEELPGen, FEELPGenMinus, FEELPGenPlus
from node.algorithms.parameters import PHEFL, EdgeCloud, FedAvg, FedFeat, FedNova, FedProx, HierFAVG, OnlyEdge
from node.catalogue.tables import by_name
from node.errors import PluginError
from node.learning.local_training import LocalTraining
from node.role import Role

Need = Literal["required", "optional", "none"]


@dataclass(frozen=True)
class Algorithm:
    """An algorithm: the module with its ``ROLES``, its parameters, and the tiers it needs. An empty module is that of
    the plug-in that declares the algorithm. A module with several algorithms may have the roles of each under its name:
    ``ROLES = {"mine": {"cloud": Cloud, "device": Device}, "other": {...}}``.

    `leader` is the tier with the rounds that count as the rounds of the run. If it has several nodes, the first leads.
    `flat`: one layer of clients, either edges that hold data or devices without edges.
    `meshed`: edges exchange messages with each other.
    `personal`: each client has its own model, possibly of its own architecture, and also evaluates it globally.
    `personalises`: edges need a part of their own test sets for personalisation.
    `levels`: each edge gathers the answers of all other edges.
    `featured`: works on features, so it needs a model of an extractor and a classifier.
    `linear`: works on the classifier's weights, so the classifier must be one linear layer.
    `whole`: needs all weights of a model in messages, so frozen parameters must be sent too.
    `floats`: needs samples of floats or pictures with one label each, not integer tokens or several parts.
    `classes`: needs data with classes, not samples with several labels or numbers to predict.
    `aligned`: the features of all clients' models are compared, so they need one size.
    `ranked`: works on low-rank adapters, so the model needs them. Clients may have different ranks, which the leader
    has by the clients' names in ``model_params["lora"]["ranks"]``.
    `population`: other clients may take part in each round. A client keeps nothing from round to round, except in its
    checkpoints, and the leader uses `children` within a round only.
    `asynchronous`: the leader waits for no round of all its clients. Of a population it selects clients by itself
    (`Role.selector`).
    `roaming`: devices may go from one edge to another between rounds.
    `table`: the ``ROLES`` of a plug-in's algorithm, as they were when the plug-in was read.
    """

    name: str
    module: str = ""
    params: type[LocalTraining] = LocalTraining
    summary: str = ""
    cloud: Need = "required"
    edges: Need = "none"
    devices: Need = "required"
    leader: Literal["cloud", "edge"] = "cloud"
    flat: bool = False
    meshed: bool = False
    personal: bool = False
    personalises: bool = False
    levels: bool = False
    featured: bool = False
    linear: bool = False
    whole: bool = False
    floats: bool = False
    classes: bool = False
    aligned: bool = False
    ranked: bool = False
    population: bool = False
    asynchronous: bool = False
    roaming: bool = False
    table: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def roles(self) -> Mapping[str, type[Role]]:
        """The class of each tier: from the ``table``, or from the module, which is imported now."""
        table = self.table
        if table is None:
            table = import_module(self.module).ROLES
        roles: Mapping[str, type[Role]] = table.get(self.name, table)
        return roles

    def problem(self, *, cloud: bool, edges: int, devices: int) -> str | None:
        """Why the algorithm cannot run on a topology with these numbers of nodes per tier. None if it can."""
        tiers: list[tuple[str, Need, int]] = [
            ("cloud", self.cloud, int(cloud)),
            ("edges", self.edges, edges),
            ("devices", self.devices, devices),
        ]
        for tier, need, count in tiers:
            if need == "required" and count == 0:
                return f"{self.name} needs {tier}: the topology has none"
            if need == "none" and count:
                without = "false" if tier == "cloud" else "0"
                return f"{self.name} has no use for {tier}: the topology has {count}; set it to {without}"
        if edges == 0 and devices == 0:
            return f"{self.name} needs nodes that hold data: the topology has neither edges nor devices"
        if self.flat and edges and devices:
            return f"{self.name} knows one layer of clients: give edges or devices, not both, or take hierfavg"
        return None


PROGRAMS = Algorithm(
    "programs",
    summary="each node runs a program of the user's own",
    cloud="optional",
    edges="optional",
    devices="optional",
)
"""Stands for the algorithm of a run with nodes that run programs. It has no roles, and no scenario can name it."""

# The kinds of topology: one layer of clients; devices below edges below a cloud; edges that need no cloud.
_flat = partial(Algorithm, edges="optional", devices="optional", flat=True)
_averaging = partial(_flat, population=True)
_tree = partial(Algorithm, edges="required")
_mesh = partial(
    Algorithm,
    cloud="none",
    edges="required",
    leader="edge",
    meshed=True,
    featured=True,
    linear=True,
    whole=True,
    classes=True,
)

ALGORITHMS: Mapping[str, Algorithm] = by_name(
    _averaging("fedavg", "node.algorithms.fedavg", FedAvg, "the cloud averages the models its clients trained"),
    _averaging(
        "fedprox",
        "node.algorithms.fedprox",
        FedProx,
        "FedAvg with a term that keeps clients near the global model",
    ),
    _averaging(
        "fednova",
        "node.algorithms.fednova",
        FedNova,
        "FedAvg that normalises the update of each client by its number of steps",
    ),
    _flat(
        "flexlora",
        "node.algorithms.flexlora",
        FedAvg,
        "FedAvg of low-rank adapters, whose ranks may differ: the cloud averages and splits their products",
        ranked=True,
    ),
    _tree(
        "fededs",
        "node.algorithms.fededs.roles",
        FedEDS,
        "edges share encrypted data with one another before they train below a cloud",
        devices="none",
        meshed=True,
        featured=True,
        floats=True,
        classes=True,
    ),
    _tree(
        "hierfavg",
        "node.algorithms.hierfavg",
        HierFAVG,
        "edges average their devices several times before the cloud averages the edges",
        roaming=True,
    ),
    _tree(
        "onlyedge",
        "node.algorithms.onlyedge",
        OnlyEdge,
        "each edge averages its own devices; the cloud only sends the first model",
        cloud="optional",
        leader="edge",
    ),
    _tree(
        "edgecloud",
        "node.algorithms.edgecloud",
        EdgeCloud,
        "HierFAVG that scores the cloud's model on each edge's own test set (PHE-FL's baseline)",
    ),
    _tree(
        "phe-fl",
        "node.algorithms.phefl",
        PHEFL,
        "each edge mixes its model with the mean of the others, by their accuracy on its own test samples",
        personalises=True,
        classes=True,
    ),
    _mesh(
        "feelpgen-minus",
        "node.algorithms.feelpgen.roles",
        FEELPGenMinus,
        "silos learn with a generator of features, and edges average one another's models (FEELPGen⁻)",
        levels=True,
    ),
    _mesh(
        "feelpgen",
        "node.algorithms.feelpgen.roles",
        FEELPGen,
        "FEELPGen⁻; edges also average the models of similar edges, asynchronously (FEELPGen)",
    ),
    _mesh(
        "feelpgen-plus",
        "node.algorithms.feelpgen.roles",
        FEELPGenPlus,
        "FEELPGen; edges compare a private projection of generated features (FEELPGen⁺)",
    ),
    _flat(
        "dffke",
        "node.algorithms.dffke.roles",
        DFFKE,
        "clients of different models learn from one another's logits on synthetic pictures",
        edges="required",
        devices="none",
        meshed=True,
        personal=True,
        featured=True,
        whole=True,
        floats=True,
        classes=True,
    ),
    _flat(
        "fedfeat",
        "node.algorithms.fedfeat",
        FedFeat,
        "FedAvg; the cloud retrains the classifier on noised features of the clients (FedFeat+)",
        featured=True,
        floats=True,
        classes=True,
    ),
)
"""The algorithms of edgebed."""

_known: ContextVar[Mapping[str, Algorithm]] = ContextVar("known algorithms", default=ALGORITHMS)


@contextlib.contextmanager
def known_algorithms(algorithms: Mapping[str, Algorithm]) -> Iterator[None]:
    """While the body runs, these are the algorithms that `algorithm` finds."""
    token = _known.set(algorithms)
    try:
        yield
    finally:
        _known.reset(token)


def algorithm(name: str) -> Algorithm:
    """The algorithm of this name: of edgebed or, while a plug-in's module is read, of a plug-in that the scenario names
    before. A plug-in that changes a step of another algorithm builds on its ``roles`` and ``params``. PluginError if
    there is none."""
    algorithms = _known.get()
    if name not in algorithms:
        raise PluginError(f"{name!r} is no algorithm; there are {', '.join(algorithms)}")
    return algorithms[name]
