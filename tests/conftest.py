"""What tests of several packages share."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from functools import cache, partial
from itertools import combinations
from pathlib import Path
from types import FrameType

import pytest
from _pytest.mark.expression import Expression
from hypothesis import HealthCheck, settings

from orchestrator.drivers.docker.engine import Engine
from orchestrator.host.commands import extend_path
from tests import programs
from tests.e2e.engine import Place, with_image

# What is imported and collected stays. To search it for garbage again and again takes a third of the time.
gc.disable()

# A shell that starts the tests in the background, or nohup, has them ignore signals that they are about.
for ignored in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(ignored, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = os.getpid()


def _end(number: int, frame: FrameType | None) -> None:
    """End as by Ctrl-C, so that fixtures remove what they have made. A process forked by a test just ends."""
    if os.getpid() == TESTS:
        raise KeyboardInterrupt
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


signal.signal(signal.SIGTERM, _end)

# Examples are the same each time, and a busy host may take its time to make and to try them.
settings.register_profile(
    "tests", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")

LAB = Path(__file__).with_name("lab")
"""All tests of this folder have the mark `lab`."""

extend_path()  # the tests start the same commands as the program does


ENGINES = {"place", "engines"}
"""The fixtures that have Docker Engines."""
NEEDS_ENGINES = re.compile(
    r"\b(?:place: Place|engine: Engine|engines: Engines|place: Engines)\b|usefixtures\(\"(?:engine|on_engines)\""
)
"""How a file asks for them. Other fixtures and parameters have such names too."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import only files with tests that -m can select by the marks and fixtures they name: importing all takes half a
    minute of a processor."""
    if collection_path.suffix != ".py" or not config.option.markexpr:
        return None
    marks = set(re.findall(r"\bmark\.(\w+)", collection_path.read_text()))
    if needs_engines(collection_path):
        marks.add("engine")
    certain = ("lab",) if LAB in collection_path.parents else ()
    some = (subset for size in range(len(marks) + 1) for subset in combinations(marks, size))
    expression = Expression.compile(config.option.markexpr)
    return None if any(expression.evaluate(partial(_is_in, certain + subset)) for subset in some) else True


@cache
def needs_engines(file: Path) -> bool:
    return NEEDS_ENGINES.search(file.read_text()) is not None


def _is_in(marks: tuple[str, ...], name: str, /, **_: object) -> bool:
    return name in marks


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if ENGINES & fixtures and needs_engines(item.path):
            item.add_marker(pytest.mark.engine)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose programs are missing."""
    programs.check(item)


@pytest.fixture(scope="session")
def place() -> Iterator[Place]:
    """A Docker Engine and an image of nodes in it; made when the first test asks for it."""
    with with_image() as found:
        yield found


@pytest.fixture
def engine(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The Engine that this test, and what it starts, uses."""
    monkeypatch.setenv("DOCKER_HOST", place.address)
    monkeypatch.setenv("EDGEBED_IMAGE", place.image)
    with closing(Engine.connect()) as connected:
        yield connected
