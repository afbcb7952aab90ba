"""Pages of one HTML file. Style, figures and scripts are in the file, so it needs no network and no other file."""

from __future__ import annotations

import functools
import shlex
from importlib.resources import files
from typing import Any

import jinja2

from orchestrator import text

SCRIPTS = ("scale", "marks", "exports", "reading", "chart", "topology")


def rendered(template: str, **content: Any) -> str:
    """Fill a template that extends report/base.html; its name is its path within this package. ``content``: the
    variables of the template. Among them is "figures": by the id of an HTML element the figure that is drawn into it
    (`orchestrator.report.marks`). Figures without marks are left out."""
    page = _environment().get_template(template)
    return page.render(style=style(), script=script(), **content)


def fragment(template: str, **content: Any) -> str:
    """Fill a template that is a part of a page."""
    part = _environment().get_template(template)
    return part.render(**content)


@functools.cache
def style() -> str:
    return _read("style.css")


@functools.cache
def script() -> str:
    """The script that draws figures and pictures, in a report and in a live page."""
    return "\n".join(_read(f"script/{name}.js") for name in SCRIPTS)


def _read(name: str) -> str:
    file = files("orchestrator.report") / name
    return file.read_text(encoding="utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("orchestrator", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {
        "size": text.size,
        "number": text.number,
        "duration": text.duration,
        "some": text.some,
        "command": shlex.join,
        "percent": text.percent,
        "counted": text.count,
    }
    return environment
