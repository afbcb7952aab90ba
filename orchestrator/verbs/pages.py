"""The pages of the documentation, which the package contains."""

from __future__ import annotations

import difflib
from pathlib import Path

from orchestrator.errors import PlaceError

FOLDER = (Path(__file__).parent / "docs").resolve()  # in a checkout, a link to docs/


def pages() -> dict[str, Path]:
    """Every page by its topic: its file's name, with the folder where two pages have the same name."""
    by_topic: dict[str, Path] = {}
    in_folder = sorted(FOLDER.glob("*.md"))
    below = sorted(FOLDER.glob("*/*.md"))
    for file in [*in_folder, *below]:
        path = file.relative_to(FOLDER).with_suffix("")
        if path.name == "README":
            continue
        topic = path.name
        if topic in by_topic:
            topic = path.as_posix()
        by_topic[topic] = file
    return by_topic


def title(page: Path) -> str:
    first_line, _, _ = page.read_text().partition("\n")
    return first_line.removeprefix("# ")


def is_page(topic: str) -> bool:
    """Whether a page has this topic, such as ``hosts`` or ``reference/scenario``."""
    known = pages()
    return topic in known or FOLDER / f"{topic}.md" in known.values()


def find(topic: str) -> Path:
    """The page about ``topic``, such as ``hosts`` or ``reference/scenario``; PlaceError if there is none."""
    known = pages()
    if is_page(topic):
        return known.get(topic, FOLDER / f"{topic}.md")
    hint = "; `edgebed docs` lists them"
    close = difflib.get_close_matches(topic, known, n=1)
    if close:
        hint = f": did you mean {close[0]}?"
    raise PlaceError(f"no page about {topic!r}{hint}")
