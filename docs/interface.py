"""The page of the public names of `edgebed` and `edgebed.plugin`, from their docstrings. `docs.generate` writes it."""

from __future__ import annotations

import enum
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import edgebed
import edgebed.plugin
from docs.commands import table

HEAD = """\
# Python API

Every public name of `edgebed`. Names that are not on this page may change in any release.
[Runs from Python](python.md) is the introduction, [Your own algorithm](../guides/algorithms.md) that of plug-ins.
This page is generated from the docstrings.
"""


def interface_page() -> str:
    """Every public name with its signature, its description and its public members."""
    lines = [HEAD, "## Runs: `import edgebed`\n"]
    lines += members(edgebed, [name for name in edgebed.__all__ if name not in ("__version__", "plugin")])
    lines.append("## Plug-ins: `edgebed.plugin`\n")
    lines += members(edgebed.plugin, edgebed.plugin.__all__)
    return "\n".join(lines)


def members(module: ModuleType, names: list[str]) -> Iterator[str]:
    for name in names:
        each = getattr(module, name)
        yield f"### `{name}`\n"
        yield from code(name, each)
        yield from prose(each.__doc__ or "")
        if inspect.isclass(each) and not issubclass(each, dict):
            yield from members_of(each)


def code(name: str, each: Any) -> Iterator[str]:
    """The signature of a function or of a constructor that a user calls, one parameter a line if it is long."""
    if not inspect.isroutine(each):
        return
    signature = inspect.signature(each)
    line = written(f"{name}{signature}")
    if len(line) > 88:
        arrow = written(f" -> {signature.return_annotation}")
        line = "\n".join([f"{name}(", *(written(f"    {one},") for one in parts(signature)), f"){arrow}"])
    yield f"```python\n{line}\n```\n"


def written(code: str) -> str:
    return re.sub(r"PosixPath\('(.*?)'\)", r'Path("\1")', code).replace("'", "")


def parts(signature: inspect.Signature) -> Iterator[str]:
    star = False
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        star = star or each.kind is each.VAR_POSITIONAL
        yield str(each)


def members_of(each: type) -> Iterator[str]:
    """The public methods, properties and documented attributes of a class, each with the first sentence on it."""
    rows = []
    for name, value in vars(each).items():
        member = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        text = member.fget.__doc__ if isinstance(member, property) else getattr(member, "__doc__", None)
        known = isinstance(member, property) or inspect.isroutine(member)
        if name.startswith("_") or not known or not text or isinstance(member, enum.Enum):
            continue
        call = f"{name}()" if callable(member) else name
        rows.append((f"`{call}`", " ".join(plain(text.partition("\n\n")[0]).split())))
    yield from table(("member", ""), rows)


def prose(text: str) -> Iterator[str]:
    """A docstring as Markdown: paragraphs filled, lists and examples kept."""
    for paragraph in inspect.cleandoc(plain(text)).split("\n\n"):
        if paragraph.startswith("    "):
            yield paragraph + "\n"
        elif paragraph.lstrip().startswith(("- ", "* ")) or ":\n    " in paragraph:
            yield listed(paragraph) + "\n"
        else:
            yield textwrap.fill(" ".join(paragraph.split()), 100, break_on_hyphens=False) + "\n"


def listed(paragraph: str) -> str:
    """A section of arguments, results or errors as a list."""
    head, *rest = paragraph.split("\n")
    if paragraph.lstrip().startswith(("- ", "* ")):
        return paragraph
    items: list[str] = []
    for line in textwrap.dedent("\n".join(rest)).split("\n"):
        if line.startswith(" ") and items:
            items[-1] += f" {line.strip()}"
        else:
            items.append(line)
    named = (f"- `{name}`:{text}" if text else f"- {name}" for name, _, text in (item.partition(":") for item in items))
    return "\n".join([head, "", *named])


def plain(text: str) -> str:
    return text.replace("``", "`")
