"""Tests of plug-ins: whole runs in one process, on a virtual clock, in milliseconds.

    from edgebed.testing import federation, star

    def test_it_learns(tmp_path):
        run = federation(tmp_path, "fedavgm.py", "fedavgm", star(3), rounds=3).run()
        assert run.journals["cloud"].series("global")[3] > 0.5

`node.testing` says what the parts do.
"""

from __future__ import annotations

from edgebed.packages import explained

with explained("edgebed.testing"):
    from node.testing import Federation, Journal, federation, hierarchy, star

__all__ = ["Federation", "Journal", "federation", "hierarchy", "star"]
