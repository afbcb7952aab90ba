"""The public interface of edgebed. Only the names in ``__all__`` are stable.

Each name is imported at its first use, so ``import edgebed`` is fast and needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from node.algorithms.common import (
        average,
        evaluate,
        fitting,
        joined,
        parted,
        participants,
        report_mean,
        round_of,
        train,
        with_samples,
    )
    from node.algorithms.registry import Algorithm, algorithm
    from node.catalogue.datasets import Dataset
    from node.catalogue.models import ModelEntry
    from node.catalogue.partitions import PartitionParameters, PartitionScheme
    from node.learning.aggregation import State, weighted_mean
    from node.learning.devices import load_state, state_of
    from node.learning.local_training import ClientWork, LocalTraining
    from node.learning.models import Model
    from node.learning.optimizers import optimizer
    from node.learning.training import Learner, MiniBatch, batches
    from node.messaging.wire import Message
    from node.parameters import Parameters, flag, number, whole, word
    from node.plugins import Plugin
    from node.role import Role
    from orchestrator.results.rows import Event
    from orchestrator.sweep.python import SweepRuns, sweep
    from orchestrator.verbs.runs import Run, compare, load, up

    __version__: str

__all__ = [
    "Algorithm",
    "ClientWork",
    "Dataset",
    "Event",
    "Learner",
    "LocalTraining",
    "Message",
    "MiniBatch",
    "Model",
    "ModelEntry",
    "Parameters",
    "PartitionParameters",
    "PartitionScheme",
    "Plugin",
    "Role",
    "Run",
    "State",
    "SweepRuns",
    "__version__",
    "algorithm",
    "average",
    "batches",
    "compare",
    "evaluate",
    "fitting",
    "flag",
    "joined",
    "load",
    "load_state",
    "number",
    "optimizer",
    "parted",
    "participants",
    "report_mean",
    "round_of",
    "state_of",
    "sweep",
    "train",
    "up",
    "weighted_mean",
    "whole",
    "with_samples",
    "word",
]

_MODULES = {
    "Algorithm": "node.algorithms.registry",
    "ClientWork": "node.learning.local_training",
    "Dataset": "node.catalogue.datasets",
    "Event": "orchestrator.results.rows",
    "Learner": "node.learning.training",
    "LocalTraining": "node.learning.local_training",
    "Message": "node.messaging.wire",
    "MiniBatch": "node.learning.training",
    "Model": "node.learning.models",
    "ModelEntry": "node.catalogue.models",
    "Parameters": "node.parameters",
    "PartitionParameters": "node.catalogue.partitions",
    "PartitionScheme": "node.catalogue.partitions",
    "Plugin": "node.plugins",
    "Role": "node.role",
    "Run": "orchestrator.verbs.runs",
    "State": "node.learning.aggregation",
    "SweepRuns": "orchestrator.sweep.python",
    "algorithm": "node.algorithms.registry",
    "average": "node.algorithms.common",
    "batches": "node.learning.training",
    "compare": "orchestrator.verbs.runs",
    "evaluate": "node.algorithms.common",
    "fitting": "node.algorithms.common",
    "flag": "node.parameters",
    "joined": "node.algorithms.common",
    "load": "orchestrator.verbs.runs",
    "load_state": "node.learning.devices",
    "number": "node.parameters",
    "optimizer": "node.learning.optimizers",
    "parted": "node.algorithms.common",
    "participants": "node.algorithms.common",
    "report_mean": "node.algorithms.common",
    "round_of": "node.algorithms.common",
    "state_of": "node.learning.devices",
    "sweep": "orchestrator.sweep.python",
    "train": "node.algorithms.common",
    "up": "orchestrator.verbs.runs",
    "weighted_mean": "node.learning.aggregation",
    "whole": "node.parameters",
    "with_samples": "node.algorithms.common",
    "word": "node.parameters",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("edgebed")
    if name not in _MODULES:
        raise AttributeError(f"module 'edgebed' has no attribute {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    from edgebed.packages import explained

    with explained(f"edgebed.{name}"):
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
