"""The names for plug-ins: algorithms, models, data sets, partitions, drivers, checks, figures and
exporters of your own.

They are importable from `edgebed` too. Each is imported at its first use, so a plug-in is read without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from node.algorithms.common import (
        average,
        evaluate,
        fitting,
        joined,
        params_at,
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
    from node.learning.batching import batches
    from node.learning.devices import load_state, state_of
    from node.learning.local_training import ClientWork, LocalTraining
    from node.learning.metrics import cross_entropy, loss
    from node.learning.models import Model
    from node.learning.optimizers import optimizer
    from node.learning.training import Learner, MiniBatch
    from node.messaging.wire import Message
    from node.parameters import Parameters, flag, number, whole, word
    from node.plugins import Plugin
    from node.role import Role
    from orchestrator.drivers.base import Driver, Environment, Exit
    from orchestrator.drivers.unshaped import start_node, unshaped_environment
    from orchestrator.errors import DriverError, HostError
    from orchestrator.fabric.base import NodeHandle
    from orchestrator.planning.plan import NodePlan, Plan
    from orchestrator.record.directory import RunDirectory
    from orchestrator.record.events.curves import Curves
    from orchestrator.scenario.sections.drivers import DriverKind

__all__ = [
    "Algorithm",
    "ClientWork",
    "Curves",
    "Dataset",
    "Driver",
    "DriverError",
    "DriverKind",
    "Environment",
    "Exit",
    "HostError",
    "Learner",
    "LocalTraining",
    "Message",
    "MiniBatch",
    "Model",
    "ModelEntry",
    "NodeHandle",
    "NodePlan",
    "Parameters",
    "PartitionParameters",
    "PartitionScheme",
    "Plan",
    "Plugin",
    "Role",
    "RunDirectory",
    "State",
    "algorithm",
    "average",
    "batches",
    "cross_entropy",
    "evaluate",
    "fitting",
    "flag",
    "joined",
    "load_state",
    "loss",
    "number",
    "optimizer",
    "params_at",
    "parted",
    "participants",
    "report_mean",
    "round_of",
    "start_node",
    "state_of",
    "train",
    "unshaped_environment",
    "weighted_mean",
    "whole",
    "with_samples",
    "word",
]

_NAMES = {
    "node.algorithms.common": (
        "average evaluate fitting joined params_at parted participants report_mean round_of train with_samples"
    ),
    "node.algorithms.registry": "Algorithm algorithm",
    "node.catalogue.datasets": "Dataset",
    "node.catalogue.models": "ModelEntry",
    "node.catalogue.partitions": "PartitionParameters PartitionScheme",
    "node.learning.aggregation": "State weighted_mean",
    "node.learning.batching": "batches",
    "node.learning.devices": "load_state state_of",
    "node.learning.local_training": "ClientWork LocalTraining",
    "node.learning.metrics": "cross_entropy loss",
    "node.learning.models": "Model",
    "node.learning.optimizers": "optimizer",
    "node.learning.training": "Learner MiniBatch",
    "node.messaging.wire": "Message",
    "node.parameters": "Parameters flag number whole word",
    "node.plugins": "Plugin",
    "node.role": "Role",
    "orchestrator.drivers.base": "Driver Environment Exit",
    "orchestrator.drivers.unshaped": "start_node unshaped_environment",
    "orchestrator.errors": "DriverError HostError",
    "orchestrator.fabric.base": "NodeHandle",
    "orchestrator.planning.plan": "NodePlan Plan",
    "orchestrator.record.directory": "RunDirectory",
    "orchestrator.record.events.curves": "Curves",
    "orchestrator.scenario.sections.drivers": "DriverKind",
}
MODULES: dict[str, str] = {}
for _module, _names in _NAMES.items():
    MODULES |= dict.fromkeys(_names.split(), _module)


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'edgebed.plugin' has no attribute {name!r}; it has {', '.join(__all__)}")
    import edgebed

    value = getattr(edgebed, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
