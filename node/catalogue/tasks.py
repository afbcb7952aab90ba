"""What models learn to predict, and by which metrics results are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Task = Literal["classification", "multi-label", "regression"]

CLASS_METRICS = ("macro_f1", "balanced_accuracy", "recall")  # on request, of a classification
MAIN_METRIC: Mapping[str, str] = {
    "classification": "accuracy",
    "multi-label": "accuracy",
    "regression": "mae",
}
"""By task, the metric that results are compared by. Accuracy is a fraction; mae has the unit of the targets."""
CLIENTS = "clients"
"""The metric that says how many clients a reported mean over clients covers."""
WITHOUT_CLASSES: Mapping[str, str] = {
    "multi-label": "several labels for each sample",
    "regression": "numbers to predict",
}
"""What data of a task has instead of classes, in words."""
