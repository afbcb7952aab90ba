from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.netem.wiring import Lab, NamespacesRefusedError


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Nodes a, b and c and a switch, for all tests of a module."""
    with opened(3) as lab:
        yield lab


@pytest.fixture
def pair() -> Iterator[Lab]:
    """Nodes a and b and a switch, for one test."""
    with opened(2) as lab:
        yield lab


def opened(nodes: int) -> Lab:
    """A host that refuses namespaces skips the test, but fails it where CI is set."""
    try:
        lab = Lab(nodes)
    except NamespacesRefusedError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no network namespaces here: {error}")
    lab.start_switch()
    return lab
