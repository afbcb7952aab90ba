"""Tests of chance and of time. What is drawn follows from the seed of the guest, and from all that was drawn before."""

from __future__ import annotations

from netem.measurement.intervals import binomial_range

CONFIDENCE = 1 - 1e-6
"""A change of any test before may change what is drawn: one in a million of them makes a test fail that should pass."""

EXACT = 5e-6  # s; each reading of the guest's clock takes 256 ns
SWITCHED = 20e-6  # s; the same through the userspace engine, which reads it often


def likely(number: int, fraction: float) -> tuple[int, int]:
    """The range (low, high) in which a count surely lies."""
    return binomial_range(number, fraction, CONFIDENCE)
