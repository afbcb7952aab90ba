"""What a link or a channel carried in a window between two readings of its counters, and how exactly that is known."""

from __future__ import annotations

from typing import NamedTuple


class Window(NamedTuple):
    """``bits`` that were counted within ``seconds``. Of these bits, ``extra_bits`` may have been sent before, and the
    window may have been longer by ``unsure_seconds``."""

    bits: float
    seconds: float
    extra_bits: float
    unsure_seconds: float

    @property
    def rate(self) -> float:
        """The measured bit/s."""
        return self.bits / self.seconds

    @property
    def least_rate(self) -> float:
        """The bit/s that were carried at least."""
        longest = self.seconds + self.unsure_seconds
        return (self.bits - self.extra_bits) / longest

    def largest_rate(self, limit: float) -> float:
        """The measured bit/s up to which a link may have carried no more than ``limit``."""
        longest = self.seconds + self.unsure_seconds
        most_bits = limit * longest + self.extra_bits
        return most_bits / self.seconds
