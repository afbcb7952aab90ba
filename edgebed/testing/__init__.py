"""Tests of plug-ins: whole runs in one process, on a virtual clock, in milliseconds.

    from edgebed.testing import federation, star

    def test_it_learns(tmp_path):
        run = federation(tmp_path, "fedavgm.py", "fedavgm", star(3), rounds=3).run()
        assert run.journals["cloud"].series("global")[3] > 0.5

`node.testing` says what the parts do. `edgebed.testing.drivers` and `edgebed.testing.fabrics` have the cases that every
driver and every link engine must pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebed.packages import PACKAGES, check, explained

if TYPE_CHECKING:
    from node.testing import Federation, Journal, federation, hierarchy, star

__all__ = ["Federation", "Journal", "federation", "hierarchy", "star"]

check(*PACKAGES)


def __getattr__(name: str) -> Any:
    """These names need PyTorch. The cases for drivers, in modules of this package, do not."""
    if name not in __all__:
        raise AttributeError(f"module 'edgebed.testing' has no attribute {name!r}; it has {', '.join(__all__)}")
    with explained("edgebed.testing"):
        from node import testing

        value = getattr(testing, name)
    globals()[name] = value
    return value
