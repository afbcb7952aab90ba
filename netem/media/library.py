"""Named media, each with its published source, as for the link profiles of `netem.library`.

A medium is in the form of a scenario's `shared`: rates per direction, or one for a half-duplex medium; a sharing rule
and a buffer. `SOURCES` also states the assumptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MEDIA: dict[str, Mapping[str, Any]] = {
    "lte-cell": {"up": "50mbit", "down": "150mbit", "share": "airtime"},
}

SOURCES: dict[str, str] = {
    "lte-cell": "TODO",
}
"""The source of each medium's values, and what is assumed."""
