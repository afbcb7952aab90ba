"""The pages of the commands and of the catalogue are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.commands import PAGES
from orchestrator.scenario.plugins import use

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_current(name: str) -> None:
    use([])  # plug-ins of earlier tests are not on the page
    if (DOCS / name).read_text() != PAGES[name]():
        pytest.fail(f"docs/{name} differs from the code: run python -m docs.commands")
