"""The colours of figures outside a page."""

from __future__ import annotations

import re

from orchestrator.report.template import style


def light(written: str) -> str:
    """A colour such as #1f5fa8; for a variable of the report's style sheet, its value on a light page."""
    name = re.fullmatch(r"var\((--[a-z0-9-]+)\)", written)
    if not name:
        return written
    value = re.search(rf"{name[1]}: (#\w+);", style())
    return value[1] if value else written
