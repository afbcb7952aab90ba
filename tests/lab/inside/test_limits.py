"""Cores and memory of hardware under cgroup v2, which the kernel of a guest has, whatever the host's own has."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from orchestrator.host.kernel.cgroups import ROOT, writable_hierarchies
from tests.lab.guests import RESULTS
from tests.orchestrator.host.kernel.test_cgroups import (  # noqa: F401
    groups,
    start,
    test_a_node_has_its_cores_and_no_more,
    test_a_node_has_no_swap,
    test_a_node_that_needs_more_memory_than_it_has_is_killed,
)

pytestmark = pytest.mark.real_time  # in virtual time a program that computes has all that it needs at one moment


@pytest.fixture(autouse=True, scope="module")
def controllers() -> Iterator[None]:
    """In a guest they are handed on as systemd does it elsewhere."""
    handed_on = ROOT / "cgroup.subtree_control"
    if RESULTS in os.environ:
        handed_on.write_text("+cpu +memory")
    if [each.version for each in writable_hierarchies()] != [2]:
        pytest.skip("no cgroup v2 to make groups in")
    yield
    if RESULTS in os.environ:
        handed_on.write_text("-cpu -memory")
