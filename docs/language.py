"""Finds words that readers of the field do not expect, in the pages and in the messages: ``python -m docs.language``.

Fails if there is more than one in a thousand words. Each that remains should be deliberate.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md", "findings/*.md"]
CODE = ["edgebed", "netem", "node", "orchestrator"]
MOST = 1.0  # in a thousand words
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
"""A file, a line, and text that begins there."""


def pages() -> Iterator[Text]:
    """The prose of each page, without code and addresses."""
    for file in sorted({file for pattern in PAGES for file in ROOT.glob(pattern)}):
        prose = CODE_OR_ADDRESS.sub(lambda match: "\n" * match.group().count("\n"), file.read_text())
        yield from ((str(file.relative_to(ROOT)), number, line) for number, line in enumerate(prose.splitlines(), 1))


def messages() -> Iterator[Text]:
    """The texts in the code that are no documentation of the code: what users may read."""
    for file in sorted(file for folder in CODE for file in (ROOT / folder).rglob("*.py")):
        tree = ast.parse(file.read_text())
        documentation = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in documentation:
                continue
            if " " in node.value.strip():
                yield str(file.relative_to(ROOT)), node.lineno, node.value


def found(texts: Iterator[Text]) -> tuple[int, list[str]]:
    """The number of words, and a line about each that has a better one."""
    words, lines = 0, []
    for file, number, text in texts:
        words += len(text.split())
        for match in WORDS.finditer(text):
            lines.append(f"{file}:{number}: {match.group()}: {ADVICE[int((match.lastgroup or 'w0')[1:])]}")
    return words, lines


def main() -> int:
    failed = False
    for kind, texts in {"pages": pages(), "messages": messages()}.items():
        words, lines = found(texts)
        share = 1000 * len(lines) / max(words, 1)
        print(*lines, f"{kind}: {len(lines)} in {words:,} words, {share:.2f} in a thousand", sep="\n")
        failed = failed or share > MOST
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
