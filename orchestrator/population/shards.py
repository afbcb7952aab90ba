"""The training samples of a client, as a function of the seed and the client.

A population is larger than the data set, so clients share samples: each draws its own from the whole training part,
without replacement. What one client draws does not depend on the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from node.assignment import derive_seed
from node.learning.data.dirichlet import taken_by_mix

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ClientShards:
    """``labels`` (N,): of all training samples. ``alpha``: each client draws its mix of classes from Dir(alpha, ...,
    alpha); None: at random. T.-M. H. Hsu, H. Qi, M. Brown, arXiv 1909.06335 (2019), section 3, draw from Dir(alpha p),
    where p are the shares of the classes: with ten equal classes their alpha is ten times this one."""

    seed: int
    labels: Indices
    alpha: float | None = None

    def of(self, client: int, samples: int) -> Indices:
        """The ascending indices of a client's samples."""
        seed = derive_seed(self.seed, "shard", str(client))
        random = np.random.default_rng(seed)
        if self.alpha is None:
            chosen = _drawn(random, len(self.labels), samples)
            return np.sort(chosen)
        concentrations = np.full(len(self._pools), self.alpha)
        mix = random.dirichlet(concentrations)
        counts = taken_by_mix(mix, samples, self._sizes, random)
        of_classes = []
        pools_and_counts = zip(self._pools, counts.tolist(), strict=True)
        for pool, count in pools_and_counts:
            if count:
                places = _drawn(random, len(pool), count)
                of_classes.append(pool[places])
        return np.sort(np.concatenate(of_classes))

    @cached_property
    def _pools(self) -> list[Indices]:
        classes = int(self.labels.max()) + 1
        return [np.flatnonzero(self.labels == label) for label in range(classes)]

    @cached_property
    def _sizes(self) -> NDArray[Any]:
        sizes = [len(pool) for pool in self._pools]
        return np.array(sizes)


def _drawn(random: np.random.Generator, size: int, count: int) -> Indices:
    """``count`` of ``size`` places, without replacement."""
    return random.choice(size, count, replace=False, shuffle=False)
