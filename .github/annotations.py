"""Show the result of `edgebed up --json` on GitHub: annotations, the summary of the step, and its outputs.

python .github/annotations.py result.json
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MARKS = {"fail": "❌", "unknown": "⚠️", "pass": "✅", "modelled": "➖", "measured": "➖"}
LEVELS = {"fail": "error", "unknown": "warning"}


def annotation(level: str, title: str, message: str) -> str:
    """A workflow command of GitHub, with the characters escaped that would end it or its title."""
    for character, escape in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        title, message = title.replace(character, escape), message.replace(character, escape)
    title = title.replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={title}::{message}"


def annotate(summary: Mapping[str, Any]) -> list[str]:
    """An error for each failed check and a warning for each unknown one. An error if the run itself failed."""
    lines = [
        annotation(LEVELS[check["verdict"]], f"edgebed {summary['name']}: {check['name']}", check["detail"])
        for check in summary["checks"]
        if check["verdict"] in LEVELS
    ]
    if summary["error"]:
        lines.append(annotation("error", f"edgebed {summary['name']}", summary["error"]))
    return lines


def page(summary: Mapping[str, Any]) -> str:
    """The summary of the step, in Markdown."""
    accuracy = summary["accuracy"]["global"]
    figures = [f"{summary['driver']} driver", f"{summary['nodes']} nodes", f"{summary['rounds']} rounds"]
    figures += [] if summary["seconds"] is None else [f"{summary['seconds']:.1f} s"]
    figures += [] if accuracy is None else [f"global accuracy {accuracy:.1%}"]
    verdict = summary["verdict"]
    lines = [f"### {MARKS[verdict]} edgebed {summary['name']}: {verdict}", "", ", ".join(figures), ""]
    lines += ["| | check | result |", "|---|---|---|"]
    lines += [
        f"| {MARKS[check['verdict']]} | {check['name']} | {_cell(check['detail'])} |" for check in summary["checks"]
    ]
    return "\n".join(lines) + "\n\n"


def _cell(text: str) -> str:
    for character, escape in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("\n", "<br>")):
        text = text.replace(character, escape)
    return text


def main() -> None:
    result = Path(sys.argv[1])
    text = result.read_text() if result.exists() else ""
    if not text:
        print(annotation("error", "edgebed", "there is no result: the log of this step has the reason"))
        return
    summary = json.loads(text)
    for line in annotate(summary):
        print(line)
    with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a") as file:
        file.write(page(summary))
    with Path(os.environ["GITHUB_OUTPUT"]).open("a") as file:
        file.write(f"verdict={summary['verdict']}\nrun={summary['run']}\n")


if __name__ == "__main__":
    main()
