"""Pages of one HTML file. Style, figures and plotly.js are in the file, so it needs no network and no other file."""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from orchestrator import text


def rendered(template: str, **content: Any) -> str:
    """Fill a template that extends report/base.html; its name is its path within this package.

    ``content``: the variables of the template. Among them is "figures", which `draw` in the page draws: by the id of an
    HTML element the ``data``, ``layout`` and ``height`` (pixels) of a figure. Figures without data are left out.
    """
    style = (files("orchestrator.report") / "style.css").read_text(encoding="utf-8")
    return _environment().get_template(template).render(style=style, plotly=get_plotlyjs(), **content)


@functools.cache
def _environment() -> jinja2.Environment:
    loader = jinja2.PackageLoader("orchestrator", "")
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters |= {"size": text.size, "number": text.number}
    return environment
