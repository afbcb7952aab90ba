"""The pages of the documentation, which the package contains."""

from __future__ import annotations

import difflib
from pathlib import Path

from orchestrator.errors import PlaceError

FOLDER = (Path(__file__).parent / "docs").resolve()  # in a checkout, a link to docs/


def pages() -> dict[str, Path]:
    """Every page by its topic: its file's name, with the folder where two pages have the same name."""
    found: dict[str, Path] = {}
    for file in [*sorted(FOLDER.glob("*.md")), *sorted(FOLDER.glob("*/*.md"))]:
        name = file.relative_to(FOLDER).with_suffix("")
        if name.name != "README":
            found[name.as_posix() if name.name in found else name.name] = file
    return found


def title(page: Path) -> str:
    return page.read_text().partition("\n")[0].removeprefix("# ")


def is_page(topic: str) -> bool:
    """Whether a page has this topic, such as ``hosts`` or ``reference/scenario``."""
    known = pages()
    return topic in known or FOLDER / f"{topic}.md" in known.values()


def find(topic: str) -> Path:
    """The page about ``topic``, such as ``hosts`` or ``reference/scenario``; PlaceError if there is none."""
    known = pages()
    if is_page(topic):
        return known.get(topic, FOLDER / f"{topic}.md")
    close = difflib.get_close_matches(topic, known, n=1)
    hint = f": did you mean {close[0]}?" if close else "; `edgebed docs` lists them"
    raise PlaceError(f"no page about {topic!r}{hint}")
