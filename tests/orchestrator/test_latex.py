"""Tables for LaTeX. The special characters are those of the LaTeX companion: # $ % & ~ _ ^ \\ { }."""

from __future__ import annotations

import pytest

from orchestrator.latex import escaped, tabular


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("links.device_cloud=2%", r"links.device\_cloud=2\%"),
        ("#1 & $x$ {a}", r"\#1 \& \$x\$ \{a\}"),
        ("~^\\", r"\textasciitilde{}\textasciicircum{}\textbackslash{}"),
        ("84.2 ± 1.1", r"84.2 $\pm$ 1.1"),
        ("≥ −3", r"$\geq$ $-$3"),
        ("[−1, 2]", "{[}$-$1, 2{]}"),
    ],
)
def test_no_character_has_a_meaning(text: str, expected: str) -> None:
    assert escaped(text) == expected


def test_a_table() -> None:
    rows = [[["a_b"], ["84.2%"], ["up", "down"]]]
    assert tabular([["case"], ["global"], ["bytes"]], rows, {1, 2}).splitlines() == [
        r"\begin{tabular}{lrr}",
        r"\hline",
        r"case & global & bytes \\",
        r"\hline",
        r"a\_b & 84.2\% & \shortstack[r]{up \\ down} \\",
        r"\hline",
        r"\end{tabular}",
    ]
