"""The colours of figures outside a page."""

from __future__ import annotations

import re

from orchestrator.report.template import style


def light(written: str) -> str:
    """A colour such as #1f5fa8; for a variable of the report's style sheet, its value on a light page."""
    name = re.fullmatch(r"var\((--[a-z0-9-]+)\)", written)
    if name:
        found = re.search(rf"{name[1]}: (#\w+);", style())
    else:
        found = None
    return found[1] if found else written
