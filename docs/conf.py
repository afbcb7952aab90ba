"""The site of the documentation, which `make site` builds. README.md is the start page, and its lists of links are the
navigation."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

import edgebed

project = "edgebed"
release = edgebed.__version__
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"edgebed {release}"
html_static_path: list[str] = []
html_show_copyright = False
root_doc = "README"
exclude_patterns = ["notebooks"]
myst_heading_anchors = 4
FOLDER = Path(__file__).parent
SOURCES = "https://github.com/edgebed/edgebed/blob/main"
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def linked(text: str, page: Path) -> str:
    """A page's text with links to files outside this folder leading to the sources of the project."""

    def target(match: re.Match[str]) -> str:
        path, anchor = match.group(1), match.group(2) or ""
        if "://" in path:
            return match.group()
        file = os.path.relpath(os.path.normpath(page.parent / path), FOLDER.parent)
        inside = file.startswith("docs/") and file.endswith((".md", ".png"))
        return match.group() if inside else f"]({SOURCES}/{file}{anchor})"

    return LINK.sub(target, text)


def navigation(text: str) -> str:
    """A table of contents for each section of the start page, from the links in it."""
    _, *sections = SECTION.split(text)
    trees = []
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        pages = [
            path.removesuffix(".md") for path, _ in LINK.findall(body) if path.endswith(".md") and ".." not in path
        ]
        trees.append("\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```"]))
    return "\n\n".join(trees)


def read(app: Sphinx, name: str, source: list[str]) -> None:
    text = linked(source[0], Path(app.srcdir) / f"{name}.md")
    source[0] = f"{text}\n{navigation(source[0])}\n" if name == root_doc else text


def copy_the_start_page(app: Sphinx, problem: Exception | None) -> None:
    """Write the page that a web server shows for the site's own address."""
    if problem is None:
        shutil.copyfile(Path(app.outdir, "README.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> None:
    app.connect("source-read", read)
    app.connect("build-finished", copy_the_start_page)
