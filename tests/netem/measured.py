"""Measurements of links, written down by hand."""

from __future__ import annotations

from typing import Any

from netem.measure import Measurement, OneWay
from netem.profile import GilbertElliott, LinkProfile

PERFECT = LinkProfile()
BURSTY = GilbertElliott(p=0.02, r=0.3)


def direction(sent: int, lost: int = 0, **values: Any) -> OneWay:
    return OneWay(sent=sent, received=sent - lost, **values)


def measured(rtt: float | None, samples: int = 250) -> Measurement:
    whole = direction(250)
    return Measurement(rtt_median=rtt, rtt_p99=rtt, rtt_samples=samples if rtt else 0, forward=whole, back=whole)
