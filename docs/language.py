"""Finds words that readers of the field do not expect: ``python -m docs.language``.

It reads the pages, the messages, the docstrings and comments, and the names of tests. Each kind of text has a limit in
``MOST``. Each word that remains should be deliberate.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md", "findings/*.md"]
CODE = ["edgebed", "netem", "node", "orchestrator"]
MOST = {"pages": 1.0, "messages": 1.0, "docstrings and comments": 0.6, "names of tests": 0.5}
"""For each kind of text, the words that have a better one, in a thousand words."""
BETTER = {
    r"tells?|telling|told": "report, show, log",
    r"of itself": "reports",
    r"begins?(?! with| at)|beginning|began|begun": "start",
    r"anew": "again, restart",
    r"go(?:es)? on|went on": "continue, resume",
    r"h[eo]ld \w+(?: \w+)? against|held against": "compare, check",
    r"by hand": "manually",
    r"hears?|heard|listens?(?! on| at| there)": "receive, read, handle",
    r"lives?(?= (?:in|on|at|under|below|there|as)\b)": "run",
    r"(?:is|are|be|was|were) there(?=[.,;:)]| and\b| or\b| when\b| if\b)": "available, running, online",
    r"nobody|somebody|whoever": "no node, a node, any node",
    r"whose|of which|of whom": "with, its, in a sentence of its own",
    r"beside": "next to, in addition to",
    r"is brought|are brought|brings?": "copies, installs, adds",
    r"at last|meanwhile": "finally, while",
    r"reckons?|reckoned": "assume",
    r"as ever": "as before",
    r"was asked(?: for)?|is asked|asks? of": "configured, requested",
    r"what holds": "guarantees",
    r"stands? still|stood still|came to rest": "is stalled, is paused",
    r"kept (?:pace|up)|keeps? (?:pace|up)|undisturbed": "on time",
    r"defects?": "bug",
    r"carr(?:y|ies|ied|ying) out": "run, execute",
    r"verbs?": "command",
}
WORDS = re.compile("|".join(rf"(?P<w{place}>\b(?:{word})\b)" for place, word in enumerate(BETTER)), re.IGNORECASE)
ADVICE = list(BETTER.values())
CODE_OR_ADDRESS = re.compile(r"`[^`\n]*`|\]\([^)]*\)|^ {4}[^\n]*|^```.*?^```", re.MULTILINE | re.DOTALL)

Text = tuple[str, int, str]
"""A file, a line, and text that starts there."""


def pages() -> Iterator[Text]:
    """The prose of each page, without code and addresses."""
    files: set[Path] = set()
    for pattern in PAGES:
        files.update(ROOT.glob(pattern))
    for file in sorted(files):
        prose = CODE_OR_ADDRESS.sub(_line_breaks_of, file.read_text())
        for number, line in enumerate(prose.splitlines(), 1):
            yield _name(file), number, line


def _line_breaks_of(match: re.Match[str]) -> str:
    return "\n" * match.group().count("\n")


def messages() -> Iterator[Text]:
    """The texts in the code that do not document the code: what users may read."""
    for file in code():
        tree = ast.parse(file.read_text())
        documenting = {id(constant) for constant in documentation(tree)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in documenting:
                continue
            if " " in node.value.strip():
                yield _name(file), node.lineno, node.value


def docstrings_and_comments() -> Iterator[Text]:
    """What documents the code for those who read it."""
    for file in code():
        source = file.read_text()
        for constant in documentation(ast.parse(source)):
            lines = str(constant.value).splitlines()
            for number, line in enumerate(lines, constant.lineno):
                yield _name(file), number, line
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield _name(file), token.start[0], token.string


def names_of_tests() -> Iterator[Text]:
    """The names of test functions and classes, as words."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                words = node.name.removeprefix("test_").replace("_", " ")
                yield _name(file), node.lineno, words


def code() -> list[Path]:
    """The modules of the product."""
    files: list[Path] = []
    for folder in CODE:
        files += (ROOT / folder).rglob("*.py")
    return sorted(files)


def documentation(tree: ast.AST) -> Iterator[ast.Constant]:
    """The docstrings, also those of attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def _name(file: Path) -> str:
    return str(file.relative_to(ROOT))


KINDS = {
    "pages": pages,
    "messages": messages,
    "docstrings and comments": docstrings_and_comments,
    "names of tests": names_of_tests,
}


def hits(texts: Iterable[Text]) -> tuple[int, list[str]]:
    """The number of words, and a line about each that has a better one."""
    words = 0
    lines = []
    for file, number, text in texts:
        words += len(text.split())
        for match in WORDS.finditer(text):
            group = match.lastgroup or "w0"
            advice = ADVICE[int(group.removeprefix("w"))]
            lines.append(f"{file}:{number}: {match.group()}: {advice}")
    return words, lines


def main() -> int:
    failed = False
    for kind, texts in KINDS.items():
        words, lines = hits(texts())
        share = 1000 * len(lines) / max(words, 1)
        summary = f"{kind}: {len(lines)} in {words:,} words, {share:.2f} in a thousand, at most {MOST[kind]}"
        print(*lines, summary, sep="\n")
        if share > MOST[kind]:
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
