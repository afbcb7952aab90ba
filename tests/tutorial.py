"""The plug-ins and scenarios that docs/guides/algorithms.md shows."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs/guides/algorithms.md").read_text()


def lay_out(folder: Path) -> dict[str, Path]:
    """Write each plug-in and its scenario into the folder. Returns the scenarios by the names of the plug-ins."""
    names = re.findall(r"\(`(\w+)\.py`\):", PAGE)
    found = {}
    for name, code, scenario in zip(names, _blocks("python"), _blocks("yaml"), strict=True):
        (folder / f"{name}.py").write_text(code)
        found[name] = folder / f"{name}.yaml"
        found[name].write_text(scenario)
    return found


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
