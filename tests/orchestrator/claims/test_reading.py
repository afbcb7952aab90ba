from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from orchestrator.claims.evaluation import evaluate, recorded
from orchestrator.claims.reading import Claim, Measured, find, load, measured, number
from orchestrator.errors import PlaceError, ScenarioError
from tests.texts import containing

HEAD = """\
paper: Mine
page: mine.md
size: {paper: large, ours: small}
claims:
"""
CLAIM = """\
  mine-order:
    place: Table 1
    says: Mine is above theirs.
    sweep: mine.yaml
    figures:
      mine: {case: mine, paper: 80, ours: 70.1 ± 1.0}
      theirs: {case: theirs, paper: 75, ours: [66.0, 65.0, 67.0]}
    holds: [mine > theirs]
"""


def write(folder: Path, claims: str, name: str = "mine.yaml") -> Path:
    (folder / name).write_text(HEAD + claims)
    return folder


def errors(folder: Path, claims: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load(write(folder, claims))
    return [str(each).removeprefix(f"{folder}/") for each in caught.value.problems]


def test_a_claim_and_its_state(tmp_path: Path) -> None:
    (paper,) = load(write(tmp_path, CLAIM))
    claim = paper.read.claims["mine-order"]
    theirs = claim.figures["theirs"].recorded
    assert theirs == Measured("66.0 ± 1.0", 66.0, {1: 66.0, 2: 65.0, 3: 67.0})
    assert (recorded(claim).state, recorded(claim).seeds) == ("in direction", "")
    assert find([paper], "mine-order") is paper
    with pytest.raises(PlaceError, match="'mine-ordr' is no claim; did you mean 'mine-order'"):
        find([paper], "mine-ordr")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "holds: [mine > theirs]",
            "holds: [mine > others]",
            "mine.yaml:12: claims.mine-order.holds.0: 'others' is no figure",
        ),
        (
            ", ours: 70.1 ± 1.0",
            "",
            "mine.yaml:5: claims.mine-order: give `holds` and a",
        ),
        (
            "70.1 ± 1.0",
            "much",
            "mine.yaml:10: claims.mine-order.figures.mine.ours: write a number like",
        ),
        (
            "    sweep: mine.yaml\n",
            "",
            "mine.yaml:9: claims.mine-order.figures.mine.case: name the `sweep` that",
        ),
        (
            "    holds",
            "    state: partly\n    note: x\n    holds",
            "mine.yaml:12: claims.mine-order.state: leave it out: it",
        ),
        (
            "place: Table 1",
            "plce: Table 1",
            "mine.yaml:6: claims.mine-order.plce: unknown key; did you mean 'place'? (allowed here: ",
        ),
        ("says: Mine is above theirs.", "says: [no]", "mine.yaml:7: claims.mine-order.says: write a text, not"),
    ],
)
def test_each_mistake_has_one_message(tmp_path: Path, old: str, new: str, problem: str) -> None:
    found = errors(tmp_path, CLAIM.replace(old, new))
    assert any(each.startswith(problem) for each in found), found


def test_a_row_that_was_not_tried_has_a_reason_and_a_cost(tmp_path: Path) -> None:
    row = "  mine-more:\n    place: Table 2\n    says: More is better.\n    state: not tried\n"
    assert errors(tmp_path, row) == [
        containing("mine.yaml:5: claims.mine-more: give the reason", "`note`"),
        containing("mine.yaml:5: claims.mine-more: give the `cost`", "trying"),
    ]
    (paper,) = load(write(tmp_path, row + "    note: no data\n    cost: 1 h\n"))
    assert recorded(paper.read.claims["mine-more"]).state == "not tried"


def test_a_claim_has_one_name_and_a_folder_has_claims(tmp_path: Path) -> None:
    with pytest.raises(PlaceError, match="has no claims"):
        load(tmp_path)
    write(tmp_path, CLAIM, "other.yaml")
    with pytest.raises(ScenarioError, match=r"other.yaml:5: claims.mine-order: .*mine.yaml.*claim"):
        load(write(tmp_path, CLAIM))


def claim(holds: list[str], **keys: Any) -> Claim:
    figures = {"a": {"ours": 1}, "b": {"ours": 1}}
    return Claim.model_validate({"place": "", "says": "", "figures": figures, "holds": holds, **keys})


def test_the_states_of_relations() -> None:
    figures = {"a": measured({1: 3.0, 2: 1.0}), "b": measured({1: 1.0, 2: 1.5})}
    assert evaluate(claim(["a > b"]), lambda _: figures).state == "in direction"
    assert evaluate(claim(["a > b"], full_size=True), lambda _: figures).state == "reproduced at full size"
    assert evaluate(claim(["a > b"], each_seed=True), lambda _: figures).state == "contradicted at this size"
    both = evaluate(claim(["a > b", "b > a"]), lambda _: figures)
    assert (both.state, both.holds, both.seeds) == ("partly", {"a > b": True, "b > a": False}, "0 of 2")
    assert evaluate(claim(["a > b"]), lambda _: figures).seeds == "1 of 2"


def test_a_target_that_some_seeds_never_reached() -> None:
    assert measured({1: 10.0, 2: 15.0, 3: 11.0}, censored=1).written == "≥ 12.0 ± 2.6 (2 of 3)"
    missing = {"a": measured({1: 10.0, 2: 12.0}), "b": measured({1: 20.0})}
    found = evaluate(claim(["a < b"]), lambda _: missing)
    assert (found.state, found.seeds, found.differences) == ("in direction", "1 of 2", {})


def test_differences_are_paired_by_seed() -> None:
    figures = {"a": measured({1: 3.0, 2: 5.0, 3: 7.0}), "b": measured({1: 1.0, 2: 2.0, 3: 3.0})}
    found = evaluate(claim(["a >= b + 1 >= 2", "a = 5 ± 10%"]), lambda _: figures).differences
    assert {name: each.mean for name, each in found.items()} == {"a − (b + 1)": 2.0, "b + 1 − 2": 1.0}
    low = found["a − (b + 1)"].low
    assert low == pytest.approx(2 - 4.303 / 3**0.5, abs=1e-3)


@pytest.mark.parametrize(
    ("written", "value"), [("76.1 ± 1.3", 76.1), ("41,036", 41036), ("−0.7", -0.7), ("–", math.inf), ("7 to 9", 7)]
)
def test_the_number_of_a_figure(written: str, value: float) -> None:
    assert number(written) == value
