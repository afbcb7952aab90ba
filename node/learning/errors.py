"""The errors of learning."""

from __future__ import annotations


class LearningError(Exception):
    """Any error of `node.learning`; the message has what is wrong, where, and the remedy."""


class DataError(LearningError):
    """A data set is not available, or not the one that it is named."""


class DataNotFound(DataError):  # noqa: N818 - reads as what happened
    """A data set was not found; the message lists the places tried and the remedy."""


class PartitionError(LearningError):
    """The training data cannot be divided as requested."""


class ModelError(LearningError):
    """Weights do not fit the model."""


class AggregationError(LearningError):
    """Updates cannot be averaged; the message names the update's place in the list."""
