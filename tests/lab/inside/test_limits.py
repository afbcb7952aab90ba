"""Cores and memory of hardware under cgroup v2, which the kernel of a guest has, whatever the host's own has."""

from __future__ import annotations

import pytest

from orchestrator.host.cgroups import writable_hierarchies
from tests.orchestrator.host.test_cgroups import (  # noqa: F401
    groups,
    start,
    test_a_node_has_its_cores_and_no_more,
    test_a_node_that_needs_more_memory_than_it_has_is_killed,
)

pytestmark = pytest.mark.skipif(
    [each.version for each in writable_hierarchies()] != [2], reason="no cgroup v2 to make groups in"
)
