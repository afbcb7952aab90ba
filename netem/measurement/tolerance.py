"""How far a measured value may be from the configured one, and words about it that readers of a record look for."""

from __future__ import annotations

RTT_ABSOLUTE = 0.001  # s
RTT_RELATIVE = 0.02  # of the configured latency
WOULD_TAKE = "would take"  # in the detail of what a longer measurement would judge
