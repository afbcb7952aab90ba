"""Commands of pages other than edgebed: modules, targets of make and scripts exist, and have the options shown."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
OURS = ("benchmarks", "docs", "edgebed", "netem", "node", "orchestrator", "tests")


def modules(page: str) -> list[tuple[str, str]]:
    """The modules of ours that a page runs by `python -m`, and their arguments."""
    found = re.findall(r"\bpython -m ([\w.]+)([^`#\n]*)", SHOWN[page])
    return [(name, arguments) for name, arguments in found if name.partition(".")[0] in OURS]


def source(module: str) -> str:
    """The text of a module, or of all modules of a package that can be run."""
    spec = find_spec(module)
    assert spec is not None, f"there is no module {module}"
    assert spec.origin is not None
    path = Path(spec.origin)
    if path.name != "__init__.py":
        return path.read_text()
    assert (path.parent / "__main__.py").exists(), f"{module} cannot be run"
    return "".join(part.read_text() for part in path.parent.rglob("*.py"))


@pytest.mark.parametrize("page", [page for page in SHOWN if modules(page)])
def test_modules_exist_and_have_the_options_shown(page: str) -> None:
    for module, arguments in modules(page):
        if module == "orchestrator":
            continue  # the same as the command edgebed
        text = source(module)
        for option in re.findall(r"(?<!\S)--[a-z-]+", arguments):
            assert f'"{option}"' in text, f"{module} has no {option}"


def test_scenarios_of_benchmarks_are_shipped() -> None:
    named: list[str] = []
    for text in SHOWN.values():
        named += re.findall(r"python -m benchmarks\.bounds (\S+\.yaml)", text)
    assert named
    assert [name for name in named if not (ROOT / "scenarios" / name).exists()] == []


@pytest.mark.parametrize("page", SHOWN)
def test_targets_of_make_exist(page: str) -> None:
    named = set(re.findall(r"^ {4}make (?:[A-Z]+=\S* )*([a-z-]+)", SHOWN[page], re.MULTILINE))
    named |= set(re.findall(r"`make (?:[A-Z]+=\S* )*([a-z-]+)", SHOWN[page]))
    assert named - TARGETS == set()


@pytest.mark.parametrize("page", SHOWN)
def test_scripts_and_tests_exist(page: str) -> None:
    named = re.findall(r"^ {4}(?:sudo )?((?:\.ci|images)/[\w./-]+)", SHOWN[page], re.MULTILINE)
    named += re.findall(r"\bpytest (tests/[\w./-]+)", SHOWN[page])
    named += re.findall(r"--file (images/[\w./-]+)", SHOWN[page])
    assert [path for path in named if not (ROOT / path).exists()] == []
