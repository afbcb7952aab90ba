"""The claims that edgebed ships: they fit their sweeps, the papers and the papers' pages, and the cheapest hold."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from docs.generate import anchor
from orchestrator.claims import rows
from orchestrator.claims.reading import Claim, Paper, find, load
from orchestrator.cli.main import cli
from orchestrator.sweep.reading import Sweep
from tests.shipped import read_sweep

PAPERS = {paper.read.paper: paper for paper in load()}
PAGES = Path(__file__).parents[3] / "docs/papers"
CLAIMS = [(paper, name) for paper in PAPERS.values() for name in paper.read.claims]
NAMES = [name for _, name in CLAIMS]


def section(page: str, wanted: str) -> str:
    """The text under the heading with this anchor, up to the next heading of its level."""
    text = (PAGES / page).read_text().replace("**", "")
    (level, rest), *_ = [
        (match[1], text[match.end() :])
        for match in re.finditer(r"^(#+) (.+)$", text, re.MULTILINE)
        if anchor(match[2]) == wanted
    ]
    return re.split(rf"^#{{1,{len(level)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def of(paper: Paper, name: str) -> Claim:
    return paper.read.claims[name]


@cache
def cases_of(name: str) -> tuple[Sweep, dict[str, str]]:
    """The sweep of a claim and the case of each figure. Several claims have the same sweep."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rows, "load", lambda file, overrides: read_sweep(file, *overrides))
        return rows.claimed(find([*PAPERS.values()], name), name, "sim")


def test_every_table_figure_and_headline_of_the_papers_has_a_row() -> None:
    counts = {name: len(paper.read.claims) for name, paper in PAPERS.items()}
    assert counts == {"DFFKE": 16, "FedEDS": 14, "FedFeat+": 13, "FEELPGen": 22, "PHE-FL": 14}


@pytest.mark.parametrize(("paper", "name"), CLAIMS, ids=NAMES)
def test_the_sweep_has_the_cases(paper: Paper, name: str) -> None:
    if of(paper, name).sweep is not None:
        sweep, cases = cases_of(name)
        assert len(sweep.cases) == len(set(cases.values()))


@pytest.mark.parametrize(("paper", "name"), CLAIMS, ids=NAMES)
def test_the_paper_claims_what_its_figures_say(paper: Paper, name: str) -> None:
    """A relation that is wrongly written down would contradict the paper's own figures."""
    claim = of(paper, name)
    figures = {key: float(each.paper) for key, each in claim.figures.items() if isinstance(each.paper, (int, float))}
    for relation in claim.relations:
        if relation.names.keys() <= figures.keys():
            assert relation.holds(figures), relation.text


@pytest.mark.parametrize(("paper", "name"), CLAIMS, ids=NAMES)
def test_the_papers_page_shows_the_recorded_figures(paper: Paper, name: str) -> None:
    """Each figure of edgebed and of the paper stands in the section that the claim names, as it is in the claim or
    rounded to one decimal, as often as the claim has it. So a claim that is changed without its page is found, and a
    page without its claim, unless the section has the same figure elsewhere. Figures of the page that no claim has are
    not looked at."""
    claim = of(paper, name)
    if not claim.section:
        assert claim.state == "not tried", "name the section that shows the figures"
        return
    text = section(paper.read.page, claim.section)
    alike = Counter(tuple(dict.fromkeys(forms)) for _, forms in shown(claim))
    assert [forms for forms, times in alike.items() if sum(how_often(text, each) for each in forms) < times] == []


def test_one_setting_has_one_figure() -> None:
    """Claims of the same runs, though of different sweeps, have the same figure of them."""
    found: dict[str, dict[str, str]] = {}
    for paper, name in CLAIMS:
        claim = of(paper, name)
        if claim.sweep is None:
            continue
        sweep, cases = cases_of(name)
        for key, case in cases.items():
            metric, recorded = claim.figures[key].metric or claim.metric, claim.figures[key].recorded
            runs = [each.scenario.model_dump_json(exclude={"name"}) for each in sweep.combinations if each.case == case]
            target = sweep.target if metric.startswith("to_target.") else None
            if recorded is not None:
                setting = repr((runs, metric, target, claim.unit, claim.recorded.driver))
                found.setdefault(setting, {})[f"{name}: {key}"] = recorded.written
    assert [each for each in found.values() if len(set(each.values())) > 1] == []


def shown(claim: Claim) -> list[tuple[str, list[str]]]:
    """The forms of each figure that may stand on the page."""
    found = []
    for key, figure in claim.figures.items():
        if figure.recorded is not None and figure.ours != "–":
            found.append((key, [figure.recorded.written, *forms(figure.ours)]))
        if figure.paper is not None:
            found.append((f"{key}, paper", forms(figure.paper)))
    return found


def forms(figure: object) -> list[str]:
    """A number as it is and rounded to one decimal; a list of numbers in a row."""
    if isinstance(figure, list):
        return [", ".join(f"{each:g}" for each in figure).replace("-", "−")]
    return [f"{figure:,.10g}", f"{figure + 1e-9:,.1f}"] if isinstance(figure, int | float) else [str(figure)]


def how_often(text: str, figure: str) -> int:
    return len(re.findall(rf"(?<![\d.,]){re.escape(figure)}(?!\d|[.,]\d)", text))


@pytest.mark.slow
def test_a_cheap_claim_is_as_recorded(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["reproduce", "feelpgen-bytes", "--runs", str(tmp_path), "--json"])
    (row,) = json.loads(done.stdout)["claims"]
    assert (done.exit_code, row["state"]) == (0, "reproduced at full size")
