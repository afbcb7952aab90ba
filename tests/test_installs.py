"""Every command of a page that installs something is run: `.ci/installs` has it, or `.ci/run` the package of Debian."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEMPLATE = ROOT / "orchestrator" / "verbs" / "project"
INSTALLS = (ROOT / ".ci" / "installs").read_text().splitlines()
IN_CI = (ROOT / ".ci" / "run").read_text().split()

NOT_RUN = {
    "uv tool install edgebed": "there is no release",
    "pip install 'edgebed[learning]'": "there is no release",
    "pip install -e mylab": "stands for a package of the reader",
    "uv pip install --system --torch-backend cpu -r pyproject.toml --group dev": "changes the Python of a whole runner",
    "~/flower/bin/pip install flwr==1.41.0 torch scikit-learn": "Flower, for one scenario, wants another environment",
}
"""Commands that CI cannot run, and why."""

NOT_INSTALLED = {
    "binfmt-support": "changes how the kernel of the host starts programs",
    "linux-modules-extra-raspi": "is for a Raspberry Pi with Ubuntu",
    "linux-source": "the source of the kernel of virtual time, which takes minutes to build",
    **dict.fromkeys(["bc", "bison", "flex", "gcc", "libc6-dev", "tar", "xz-utils"], "builds that kernel"),
}
"""Packages of Debian that CI does not install, and why."""

IN_TEXT = re.compile(r"`((?:uv tool|uv pip|pipx|pip)\s+install\b[^`]*)`")
"""A command between backticks, which may go on in the next line."""

PYTHON = re.compile(r"(?:~\S*/)?\b(?:uv tool|uv pip|pipx|pip) install\b[^`#;\n\"]*")
DEBIAN = re.compile(r"\bapt(?:-get)? install\b([^`#;\n\"]*)")


def text_of(path: Path) -> str:
    if path.suffix != ".ipynb":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells)


def pages() -> list[Path]:
    docs = ROOT / "docs"
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted(docs.rglob("*.md")),
        *sorted(docs.rglob("*.ipynb")),
        TEMPLATE / "README.md",
    ]


def commands(text: str) -> set[str]:
    in_text = {" ".join(match.split()) for match in IN_TEXT.findall(text)}
    found = in_text | {match.strip() for match in PYTHON.findall(IN_TEXT.sub("", text))}
    return {command for command in found if not command.endswith(" install")}


def packages(text: str) -> set[str]:
    found: set[str] = set()
    for names in DEBIAN.findall(text):
        found.update(names.split())
    return found - {"-y"}


SHOWN = {path: text_of(path) for path in pages()}


@pytest.mark.parametrize("page", SHOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_ci_runs_every_command_of_a_page(page: Path) -> None:
    assert commands(SHOWN[page]) - set(INSTALLS) - NOT_RUN.keys() == set()


@pytest.mark.parametrize("page", SHOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_ci_installs_every_package_of_a_page(page: Path) -> None:
    assert packages(SHOWN[page]) - set(IN_CI) - NOT_INSTALLED.keys() == set()


def test_what_ci_leaves_out_is_still_shown() -> None:
    everything = "\n".join(SHOWN.values())
    assert NOT_RUN.keys() - commands(everything) == set()
    assert NOT_INSTALLED.keys() - packages(everything) == set()


def test_commands_are_found_wherever_a_page_shows_them() -> None:
    page = "`uv tool install`, `pip\n  install .`:\n\n    cd a && uv tool install --reinstall .  # or: pip install a\n"
    assert commands(page) == {"pip install .", "uv tool install --reinstall .", "pip install a"}
    assert packages("    sudo apt-get install make ping   # both\n") == {"make", "ping"}
