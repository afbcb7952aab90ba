"""Contrast of the page's colours (WCAG 2.2, 1.4.3 and 1.4.11), in the light and in the dark scheme."""

from __future__ import annotations

import re

import pytest

from orchestrator.report import figures, timeline
from orchestrator.report.page import PICTURED
from orchestrator.report.template import style

LIGHT, DARK = (
    {name: value for name, value in re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)}
    for block in (style().split("@media")[0], style().split("@media")[1])
)
ON_PAPER = [("text", "paper"), ("quiet", "paper"), ("strong", "paper"), ("quiet", "page"), ("accent", "paper")]
ON_SOFT = [(name, f"{name}-soft") for name in ("pass", "fail", "unknown", "modelled")]
INSIDE = [("strong", name) for name in ("round-even", "round-odd", "state-crashed")]
DRAWN = ["global", "many", "edge", "node-line", *(f"series-{number}" for number in range(1, 9)), *figures.FAULTS]


def luminance(colour: str) -> float:
    """The relative luminance of "#rrggbb"."""
    channels = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_worked_example() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read_and_curves_can_be_seen(scheme: dict[str, str]) -> None:
    low = {pair: round(contrast(scheme[pair[0]], scheme[pair[1]]), 2) for pair in (*ON_PAPER, *ON_SOFT, *INSIDE)}
    assert {pair: value for pair, value in low.items() if value < 4.5} == {}
    seen = {name: round(contrast(scheme[name], scheme["paper"]), 2) for name in DRAWN}
    assert {name: value for name, value in seen.items() if value < 3} == {}


def test_both_schemes_have_every_colour() -> None:
    assert LIGHT.keys() == DARK.keys()
    used = [*timeline.STATES.values(), *timeline.HOST_STATES.values(), *timeline.ROUND, timeline.MOVED]
    used += [*figures.SERIES, *figures.FAULTS.values(), *PICTURED.values(), figures.GLOBAL, figures.MANY_SERIES]
    assert {colour.removeprefix("var(--").removesuffix(")") for colour in used} <= LIGHT.keys()
