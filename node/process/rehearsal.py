"""What a fork server does once for all nodes of a run: it builds the run's model and trains it on two samples.

Forked nodes take over the model. They share the memory that the first training of a process writes.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from node.assignment import Assignment
from node.plugins import EDGEBED


@dataclass(frozen=True)
class Rehearsal:
    """The `ModelPool` of nodes with a model of this ``kind`` (`Assignment.model_kind`)."""

    kind: str
    models: Any

    @classmethod
    def of(cls, assignment: Assignment) -> Rehearsal:
        """Rehearse the training of a node of a run without plug-ins. Its assignment needs no keys. Raises DataError or
        ModelError."""
        training: Any = importlib.import_module("node.learning.training")
        learner = training.Learner.from_assignment(assignment)
        algorithm = EDGEBED.algorithms[assignment.algorithm]
        params = algorithm.params(**assignment.params)
        warm_up = learner.seeded(learner.warm_up, "rehearsal")
        warm_up(params)
        learner.models.hand_on()
        return cls(assignment.model_kind, learner.models)

    def models_of(self, assignment: Assignment) -> Any:
        """The pool of a node's models, or None if it has another kind of model."""
        if assignment.model_kind != self.kind:
            return None
        return self.models
