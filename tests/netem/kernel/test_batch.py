from __future__ import annotations

import pytest

from netem.errors import TcError
from netem.kernel.batch import Reply, replies

SHOW = ["tc", "qdisc", "show", "dev", "v1"]
CHANGE = ["tc", "qdisc", "change", "dev", "v1", "root", "netem"]


def test_each_show_has_its_array_and_each_complaint_its_line() -> None:
    # As tc 6.1 writes it for a device that has gone between two lines.
    said = (
        '[{"kind":"netem",\n  "handle": "2:"}]\nCannot find device "v9"\nCommand failed -:2\n'
        "Error: qdisc not found.\nCommand failed -:3\n[]\n"
    )
    expected = [
        Reply(shown='[{"kind":"netem",\n  "handle": "2:"}]'),
        Reply(error='Cannot find device "v9"'),
        Reply(error="Error: qdisc not found."),
        Reply(),
        Reply(shown="[]"),
    ]
    assert replies([SHOW, SHOW, CHANGE, CHANGE, SHOW], said) == expected
    later = said.replace(":2\n", ":12\n").replace(":3\n", ":13\n")
    assert replies([SHOW, SHOW, CHANGE, CHANGE, SHOW], later, first=11) == expected


def test_a_line_that_fails_without_a_word() -> None:
    assert replies([CHANGE], "Command failed -:1\n") == [Reply(error="refused")]


def test_a_warning_is_no_failure() -> None:
    assert replies([CHANGE], "Warning: sch_netem: seed ignored.\n") == [Reply()]


def test_output_that_ends_early() -> None:
    with pytest.raises(TcError, match="has not shown what `tc qdisc show dev v1` asks for: killed"):
        replies([SHOW], "killed")
    with pytest.raises(TcError, match="cannot read the output of tc"):
        replies([SHOW], '[{"kind":')
