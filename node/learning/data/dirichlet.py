"""Dirichlet partitions: each class over the clients, or each client's mix of classes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from node.arrays import Floats, Integers
from node.catalogue.partitions import Dirichlet
from node.learning.data.labels import apportion
from node.learning.data.shards import Indices
from node.learning.errors import PartitionError

if TYPE_CHECKING:
    from node.learning.data.partition import Task


def by_dirichlet(
    scheme: Dirichlet,
    task: Task,
    random: np.random.Generator,
) -> list[Indices]:
    """The samples of each client. Raises PartitionError if `over` is edges, and there is one group only."""
    if scheme.over == "edges":
        if len(task.groups) == 1:
            raise PartitionError("dirichlet over edges needs two of them: set over to clients, or topology.edges")
        of_clients = replace(scheme, over="clients")
        with_edges_as_clients = replace(task, clients=len(task.groups))
        of_edges = by_dirichlet(of_clients, with_edges_as_clients, random)
        parts: list[Indices] = []
        for samples, clients in zip(of_edges, task.groups, strict=True):
            shuffled = random.permutation(samples)
            parts.extend(np.array_split(shuffled, clients))
        return parts
    if scheme.variant == "client":
        concentrations = np.full(task.classes, scheme.alpha)
        return _by_client(concentrations, task, random)
    if scheme.variant == "client-prior":
        return _by_client(scheme.alpha * task.class_shares, task, random)
    capped = scheme.variant == "class"
    return _dirichlet_by_class(scheme.alpha, task, random, capped=capped)


def _dirichlet_by_class(
    alpha: float,
    task: Task,
    random: np.random.Generator,
    *,
    capped: bool,
) -> list[Indices]:
    """Each class is divided over clients by one draw from Dir(alpha, ..., alpha).

    `capped` (FedGen, NIID-Bench, FedNova): a client that holds N / clients samples gets none of the later classes.
    Shares are rounded by largest remainders: cumulated shares that are cut off give the last client the rest of each
    class, and so one sample of nearly every class.
    """
    share = len(task.labels) / task.clients
    parts: list[list[Indices]] = [[] for _ in range(task.clients)]
    sizes = np.zeros(task.clients)
    for label in range(task.classes):
        samples = task.shuffled(label, random)
        proportions = random.dirichlet(np.full(task.clients, alpha))
        if capped:
            not_full = sizes < share
            proportions = proportions * not_full
            if proportions.sum() == 0:  # the draw gave all samples to full clients
                proportions = not_full.astype(float)
            if proportions.sum() == 0:
                proportions = np.ones(task.clients)
        shares = proportions / proportions.sum()
        counts = apportion(shares, len(samples))
        cuts = np.cumsum(counts)[:-1]
        for client, piece in enumerate(np.split(samples, cuts)):
            parts[client].append(piece)
            sizes[client] += len(piece)
    return [np.concatenate(pieces) for pieces in parts]


def _by_client(
    concentrations: Floats,
    task: Task,
    random: np.random.Generator,
) -> list[Indices]:
    """Each client draws its mix of classes from Dir(``concentrations``) and gets N / clients samples of it.

    If a class is used up, the rest is drawn from the mix over the remaining classes. The last clients that are served
    get what is left, so the seed draws the order.
    """
    pools = []
    for label in range(task.classes):
        pools.append(task.shuffled(label, random))
    left = np.array([len(pool) for pool in pools])
    equal_parts = np.array_split(task.labels, task.clients)
    no_samples = np.empty(0, np.int64)
    parts: list[Indices] = [no_samples] * task.clients
    order = random.permutation(task.clients)
    for client, equal_part in zip(order, equal_parts, strict=True):
        size = len(equal_part)
        mix = mix_of(concentrations, random)
        taken = taken_by_mix(mix, size, left, random)
        rest = left - taken
        pieces = []
        for label, pool in enumerate(pools):
            piece = pool[rest[label] : left[label]]
            pieces.append(piece)
        parts[client] = np.concatenate(pieces)
        left -= taken
    return parts


def mix_of(concentrations: Floats, random: np.random.Generator) -> Floats:
    """A draw from Dir(``concentrations``), (classes,). A class with concentration 0 has no share."""
    mix = np.zeros(len(concentrations))
    present = concentrations > 0
    mix[present] = random.dirichlet(concentrations[present])
    return mix


def taken_by_mix(
    mix: Floats,
    size: int,
    left: Integers,
    random: np.random.Generator,
) -> Integers:
    """How many samples of each class make ``size`` samples of this ``mix`` (classes,), of those that are ``left``."""
    taken = np.zeros(len(mix), dtype=np.int64)
    missing = size - taken.sum()
    while missing > 0:  # each pass fills the client or uses up a class
        available = left - taken
        weights = np.where(available > 0, mix, 0)
        mix_is_left = weights.sum() > 0
        if not mix_is_left:
            weights = available.astype(float)
        drawn = random.multinomial(missing, weights / weights.sum())
        taken += np.minimum(drawn, available)
        missing = size - taken.sum()
    return taken
