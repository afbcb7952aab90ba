"""The errors of learning.

LearningError
├── DataError            a data set is not available or not the one its name says
│   └── DataNotFound     it was not found: the message lists the places tried and the remedy
├── PartitionError       the training data cannot be divided as requested
├── ModelError           weights that do not fit the model
└── AggregationError     updates that cannot be averaged; the message names the update's place in the list
"""

from __future__ import annotations


class LearningError(Exception):
    """Any error of `node.learning`; the message says what, where and what to do."""


class DataError(LearningError):
    """A data set is not available, or its files are wrong."""


class DataNotFound(DataError):  # noqa: N818 - reads as what happened
    """A data set was not found."""


class PartitionError(LearningError):
    """The training data cannot be divided as requested."""


class ModelError(LearningError):
    """Weights do not fit the model."""


class AggregationError(LearningError):
    """Updates cannot be averaged."""
