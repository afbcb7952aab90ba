"""The page of what edgebed prints and raises, from the code. ``docs.generate`` writes it.

A message is a text of an error, or another text of five words or more. Texts on other pages are left
out: documentation, help of commands, descriptions of keys and of the catalogue. So are texts for computers, such as
commands and queries.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from docs.language import ROOT, code, documentation

HEAD = """\
# Messages

What edgebed prints and raises, by the part of the product and the module it comes from. Search this
page for a few words of a message that you met, and report the module with a bug. A name in braces stands
for a value. Some messages consist of several entries. [Troubleshooting](../troubleshooting.md) explains the
most frequent ones.

This page is generated from the code. A changed wording is a changed line here.
"""
PARTS = {
    "Command line": ("orchestrator/cli/", "orchestrator/verbs/"),
    "Scenario": ("orchestrator/scenario/",),
    "Plan": ("orchestrator/planning/", "orchestrator/population/"),
    "Hosts": ("orchestrator/agent/", "orchestrator/drivers/", "orchestrator/host/"),
    "Links": ("netem/", "orchestrator/fabric/"),
    "Run": ("orchestrator/run/",),
    "Checks and results": (
        "orchestrator/fidelity/",
        "orchestrator/record/",
        "orchestrator/report/",
        "orchestrator/results/",
        "orchestrator/serve/",
    ),
    "Exports, archives, sweeps, claims": (
        "orchestrator/archive/",
        "orchestrator/claims/",
        "orchestrator/exports/",
        "orchestrator/sweep/",
    ),
    "Data, models and training": ("edgebed/baselines/", "node/algorithms/", "node/catalogue/", "node/learning/"),
    "Nodes and their messages": ("node/",),
    "Everything else": ("",),
}
FOR_USERS_TO_COPY = ("orchestrator/verbs/docs/", "orchestrator/verbs/project/", "orchestrator/verbs/scenarios/")
SHOWN_ELSEWHERE = {
    "Algorithm",
    "Dataset",
    "Field",
    "ModelEntry",
    "PartitionScheme",
    "SelectionKind",
    "argument",
    "option",
}
"""Calls with texts of other pages."""
FOR_COMPUTERS = {"_tc", "compile", "execute", "plain_words", "split"}
"""Calls with texts that no user reads."""
OF_KERNEL = {"_CHANGES", "_FASTER"}
"""Names with changes of the kernel's source."""
CATALOGUE = {"SOURCES"}
HELP = {"description", "help"}
"""Names and arguments with texts of other pages."""
ERROR = re.compile(r"(?:Error|Problem|Finding)$|^_Refused$")
WORD = re.compile(r"(?<!\S)[(']?[A-Za-z]?[a-z]+[.,;:!?)']*(?!\S)")
PLACEHOLDER = re.compile(r"\{[\w…]+\}")
COMMANDS = (
    "SELECT|INSERT|CREATE|WITH|GROUP|tc|ip|nft|link (?:add|set|del)|fdb|neigh|qdisc|action|match|trap|import|salloc"
)
CODE = re.compile(rf"^(?:{COMMANDS}) |[;=] ?\w+\(|^[<^#-]")
FEWEST_WORDS = 5
FEWEST_WORDS_OF_ERRORS = 2

Message = tuple[str, str]
"""The file, and the text with placeholders."""


def messages() -> list[Message]:
    """What the product prints and raises, in the order of the code."""
    listed: list[Message] = []
    for file in code():
        name = file.relative_to(ROOT).as_posix()
        if name.startswith(FOR_USERS_TO_COPY):
            continue
        for text in texts(ast.parse(file.read_text())):
            listed.append((name, text))
    return listed


def texts(tree: ast.Module) -> list[str]:
    """The messages of a module."""
    documenting = {id(constant) for constant in documentation(tree)}
    return list(_texts(tree, documenting, FEWEST_WORDS))


def _texts(node: ast.AST, documenting: set[int], fewest: int) -> Iterator[str]:
    """The messages in a part of a module: texts of ``fewest`` words or more, and all texts of errors."""
    if id(node) in documenting or _is_elsewhere(node):
        return
    if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and ERROR.search(_name(node.func))):
        fewest = FEWEST_WORDS_OF_ERRORS
    for line in template(node).splitlines():
        text = " ".join(line.split())
        words = WORD.findall(PLACEHOLDER.sub("", text))
        if len(words) >= fewest and not CODE.search(text):
            yield text
    for child in _children(node):
        yield from _texts(child, documenting, fewest)


def _is_elsewhere(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg in HELP
    if isinstance(node, ast.AnnAssign):
        return _name(node.target) in CATALOGUE
    if isinstance(node, ast.Assign):
        return _name(node.targets[0]) in OF_KERNEL
    return isinstance(node, ast.Call) and _name(node.func) in SHOWN_ELSEWHERE | FOR_COMPUTERS


def _children(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.JoinedStr):  # its other values are in its template
        return [value.value for value in node.values if isinstance(value, ast.FormattedValue)]
    return list(ast.iter_child_nodes(node))


def template(node: ast.AST) -> str:
    """The text of a string or an f-string, with ``{name}`` for each value; empty for other nodes. A name is
    the last one of the value's expression, or ``…``."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return ""
    text = ""
    for value in node.values:
        if isinstance(value, ast.FormattedValue):
            text += f"{{{_name(value.value)}}}"
        elif isinstance(value, ast.Constant):
            text += str(value.value)
    return text


def _name(expression: ast.expr) -> str:
    if isinstance(expression, ast.Name):
        return expression.id
    if isinstance(expression, ast.Attribute):
        return expression.attr
    if isinstance(expression, ast.Call):
        return _name(expression.func)
    if isinstance(expression, ast.Subscript):
        return _name(expression.value)
    return "…"


def messages_page() -> str:
    """Every message, by part and module."""
    by_part: dict[str, dict[str, list[str]]] = {part: {} for part in PARTS}
    for file, text in messages():
        listed = by_part[_part(file)].setdefault(file, [])
        if text not in listed:
            listed.append(text)
    lines = [HEAD]
    for part, modules in by_part.items():
        lines.append(f"## {part}\n")
        for file, listed in modules.items():
            module = ".".join(Path(file).with_suffix("").parts)
            lines += [f"### `{module}`\n", "```text", *listed, "```\n"]
    return "\n".join(lines)


def _part(file: str) -> str:
    for part, folders in PARTS.items():
        if file.startswith(folders):
            return part
    raise AssertionError(file)
