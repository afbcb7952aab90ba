from __future__ import annotations

import math

import pytest

from orchestrator.claims.relations import parse
from tests.texts import containing

FIGURES = {"phe-fl": 81.0, "onlyedge": 84.7, "edgecloud": 74.9, "e-1.5": 45.1, "never": math.inf, "nothing": 0.0}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("onlyedge >= phe-fl >= edgecloud", True),
        ("phe-fl >= onlyedge >= edgecloud", False),
        ("phe-fl >= edgecloud + 6", True),
        ("phe-fl >= edgecloud + 6.2", False),
        ("onlyedge - phe-fl > 3", True),
        ("2 * e-1.5 < (onlyedge + phe-fl) / 2", False),
        ("phe-fl = 80 ± 1.5", True),
        ("phe-fl = 80 ± 1%", False),
        ("onlyedge - phe-fl = 3.5 ± 10%", True),
        ("phe-fl < never", True),
        ("never < never", False),
        ("never - never <= 1", False),
        ("phe-fl / nothing > 0", False),
        ("nothing >= -3", True),
        ("nothing = 0.00001 ± 50%", False),
    ],
)
def test_relations(text: str, holds: bool) -> None:
    assert parse(text, FIGURES).holds(FIGURES) is holds


def test_the_names_that_it_compares() -> None:
    assert [*parse("onlyedge >= phe-fl + 0.5 * edgecloud", FIGURES).names] == ["onlyedge", "phe-fl", "edgecloud"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "phefl >= edgecloud",
            containing("'phefl' is no figure", "did you mean 'phe-fl'"),
        ),
        *[
            (text, containing(f"'{text}' is no relation"))
            for text in (
                "phe-fl",
                "1 > 0",
                "phe-fl > onlyedge = 80 ± 1",
                "phe-fl = edgecloud",
                "phe-fl >",
                "phe-fl ** 2 > 1",
                "",
            )
        ],
    ],
)
def test_what_is_no_relation(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="no ") as caught:
        parse(text, FIGURES)
    assert str(caught.value) == message
