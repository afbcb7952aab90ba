"""The scoreboard: every claim with its state, in a terminal and as the page docs/papers/README.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console

from orchestrator.claims.evaluation import recorded
from orchestrator.claims.reading import STATES, Paper, written
from orchestrator.claims.rows import Row, recorded_rows
from orchestrator.layout import write, write_entries, write_table
from orchestrator.scenario.sections.drivers import kind_of
from orchestrator.sweep.statistics import PairedDifference

HEAD = """\
# Does edgebed reproduce the papers?

This page lists the tables, figures and headline claims of five papers, with the paper's figures, those of
edgebed, and whether they agree. Check a row with its command:

    edgebed reproduce --list              # these rows in a terminal
    edgebed reproduce fededs-rounds-k20   # run the sweep of a claim, and compare
    edgebed reproduce --cheap             # all claims that take less than five minutes

The page is generated from the files in `scenarios/papers/claims/`
([Check the claims of a paper](../guides/reproduce.md)).

| state | meaning |
|---|---|
| reproduced at full size | all relations between figures that the paper claims hold, at the paper's size |
| in direction | they hold at a smaller size, or with a deviation that the paper's page names |
| partly | some of them hold |
| contradicted at this size | none holds at the size tried; this does not refute the paper |
| not tried | with the reason and the cost |

*Seeds* counts the seeds with which all relations hold. *Floor* is the accuracy of each client alone,
*ceiling* that with all data pooled. Minutes are for two cores; the driver is `sim` unless stated.
Figures are means ± standard deviations over seeds, and states compare means. So a state is no test: three
seeds show only differences of over three standard deviations. `edgebed reproduce` prints the differences
with their intervals.

The figures with a `dirichlet` partition are those of the draws of 0.2.0 and before. Later versions draw
other clients from the same distributions, so a figure may differ as between two seeds.
"""


def page(papers: list[Paper]) -> str:
    rows = recorded_rows(papers)
    headings = (
        "claim",
        "paper",
        "edgebed",
        "state",
        "seeds",
        "floor; ceiling",
        "time",
        "command",
        "notes",
    )
    lines = [HEAD, *_counts(rows)]
    for paper in papers:
        size = paper.read.size
        lines.append(f"## {paper.read.paper}\n")
        lines.append(f"Paper: {size.paper}\n")
        lines.append(f"edgebed: {size.ours}\n")
        lines.append(f"Details: [{paper.read.paper}]({paper.read.page})\n")
        cells = []
        for row in rows:
            if row.paper is paper:
                cells.append(_cells(row))
        lines += _table(headings, cells)
        lines.append("")
    return "\n".join(lines)


def print_list(rows: Iterable[Row], console: Console) -> None:
    cells = []
    for row in rows:
        place = f"{row.paper.read.paper}, {row.claim.place}"
        state = row.evaluation.state
        cells.append((row.name, place, state, _time(row)))
    write_table(console, ("claim", "place", "state", "time"), cells)


def print_row(row: Row, console: Console) -> None:
    claim = row.claim
    evaluation = row.evaluation
    write(console, f"{row.paper.read.paper}, {claim.place}: {claim.says}", "")
    headings = ("figure", f"paper, {claim.unit}", f"edgebed, {claim.unit}")
    cells = []
    for name, figure in claim.figures.items():
        of_paper = written(figure.paper)
        cells.append((name, of_paper, _edgebed(row, name)))
    write_table(console, headings, cells)
    write(console, "")
    entries = []
    for relation, holds in evaluation.holds.items():
        entries.append((relation, "holds" if holds else "does not hold"))
    for comparison, difference in evaluation.differences.items():
        entries.append((comparison, _interval(difference)))
    same = "as recorded"
    if not row.as_recorded:
        same = f"recorded: {recorded(claim).state}"
    entries.append(("state", f"{evaluation.state} ({same})"))
    entries.append(("seeds that agree", evaluation.seeds or "–"))
    entries.append(("size", row.size))
    entries.append(("time", _time(row)))
    write_entries(console, entries)
    write(console, "")


def _counts(rows: Sequence[Row]) -> list[str]:
    """How many claims of each paper are in each state."""
    tallies: dict[str, Counter[str]] = {}
    total = Counter[str]()
    for row in rows:
        paper = row.paper.read.paper
        state = row.evaluation.state
        tally = tallies.setdefault(paper, Counter())
        tally[state] += 1
        total[state] += 1
    tallies["all"] = total
    cells = []
    for name, tally in tallies.items():
        counts = [tally.total(), *(tally[state] for state in STATES)]
        cells.append((name, *map(str, counts)))
    headings = ("paper", "claims", *STATES)
    return [*_table(headings, cells), ""]


def _cells(row: Row) -> Sequence[str]:
    claim = row.claim
    link = claim.place
    if claim.section:
        link = f"[{claim.place}]({row.paper.read.page}#{claim.section})"
    of_paper = []
    for name, figure in claim.figures.items():
        if figure.paper is not None:
            of_paper.append(f"{name} {written(figure.paper)}")
    of_edgebed = [f"{name} {_edgebed(row, name)}" for name in row.figures]
    bounds = "–"
    if claim.floor or claim.ceiling:
        bounds = f"{claim.floor or '–'}; {claim.ceiling or '–'}"
    notes = [claim.size, claim.note]
    if claim.cost:
        notes.append(f"cost: {claim.cost}")
    return (
        f"**{link}.** {claim.says}",
        _figures(of_paper, claim.unit),
        _figures(of_edgebed, claim.unit),
        row.evaluation.state,
        row.evaluation.seeds or "–",
        bounds,
        _time(row),
        f"`{row.command}`" if row.command else "–",
        "; ".join(filter(None, notes)),
    )


def _interval(difference: PairedDifference) -> str:
    """The mean difference with its 95% interval, before any adjustment for several comparisons."""
    if difference.low is None or difference.high is None:
        return f"{difference.mean:+.3g} with every seed"
    interval = f"{difference.mean:+.3g} [{difference.low:+.3g}, {difference.high:+.3g}]"
    return interval.replace("-", "−")


def _figures(parts: Sequence[str], unit: str) -> str:
    if not parts:
        return "–"
    listed = ", ".join(parts)
    if unit:
        return f"{listed} ({unit})"
    return listed


def _edgebed(row: Row, name: str) -> str:
    if name in row.figures:
        return row.figures[name].written
    return "–"


def _time(row: Row) -> str:
    provenance = row.provenance
    parts = []
    if provenance.minutes:
        parts.append(f"{provenance.minutes:g} min")
    if not kind_of(provenance.driver).simulated:
        parts.append(provenance.driver)
    parts.append(provenance.version)
    return ", ".join(filter(None, parts)) or "–"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    rule = "|---" * len(headings) + "|"
    lines = [_line(headings), rule]
    lines += map(_line, rows)
    return lines


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
