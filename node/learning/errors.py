"""What can go wrong while learning.

LearningError
├── DataError            a data set cannot be had or is not what its name says
│   └── DataNotFound     it is nowhere: the message lists the places tried and the remedy
├── PartitionError       the training data cannot be divided as asked
├── ModelError           weights that do not fit the model
└── AggregationError     updates that cannot be averaged; the message names the sender's place in the list
"""

from __future__ import annotations


class LearningError(Exception):
    """Any error of `node.learning`; the message says what, where and what to do."""


class DataError(LearningError):
    """A data set cannot be had, or its files are not what they should be."""


class DataNotFound(DataError):  # noqa: N818 - reads as what happened
    """A data set is nowhere to be found."""


class PartitionError(LearningError):
    """The training data cannot be divided as asked."""


class ModelError(LearningError):
    """Weights do not fit the model."""


class AggregationError(LearningError):
    """Updates cannot be averaged."""
