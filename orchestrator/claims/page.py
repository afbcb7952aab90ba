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
    lines = [HEAD, *_counts(rows)]
    for paper in papers:
        own = [each for each in rows if each.paper is paper]
        size = paper.read.size
        lines += [f"## {paper.read.paper}\n", f"Paper: {size.paper}\n", f"edgebed: {size.ours}\n"]
        lines += [f"Details: [{paper.read.paper}]({paper.read.page})\n"]
        headings = ("claim", "paper", "edgebed", "state", "seeds", "floor; ceiling", "time", "command", "notes")
        lines += [*_table(headings, [_cells(each) for each in own]), ""]
    return "\n".join(lines)


def print_list(rows: Iterable[Row], console: Console) -> None:
    cells = [
        (each.name, f"{each.paper.read.paper}, {each.claim.place}", each.evaluation.state, _time(each)) for each in rows
    ]
    write_table(console, ("claim", "place", "state", "time"), cells)


def print_row(row: Row, console: Console) -> None:
    claim = row.claim
    write(console, f"{row.paper.read.paper}, {claim.place}: {claim.says}", "")
    cells = [(name, written(each.paper), _edgebed(row, name)) for name, each in claim.figures.items()]
    write_table(console, ("figure", f"paper, {claim.unit}", f"edgebed, {claim.unit}"), cells)
    write(console, "")
    entries = [(relation, "holds" if holds else "does not hold") for relation, holds in row.evaluation.holds.items()]
    entries += [(each, _interval(of)) for each, of in row.evaluation.differences.items()]
    same = "as recorded" if row.as_recorded else f"recorded: {recorded(claim).state}"
    entries += [("state", f"{row.evaluation.state} ({same})"), ("seeds that agree", row.evaluation.seeds or "–")]
    write_entries(console, [*entries, ("size", row.size), ("time", _time(row))])
    write(console, "")


def _counts(rows: Sequence[Row]) -> list[str]:
    """How many claims of each paper are in each state."""
    tallies = {paper: Counter[str]() for paper in dict.fromkeys(each.paper.read.paper for each in rows)}
    for each in rows:
        tallies[each.paper.read.paper][each.evaluation.state] += 1
    tallies["all"] = sum(tallies.values(), Counter())
    cells = [(name, str(of.total()), *(str(of[state]) for state in STATES)) for name, of in tallies.items()]
    return [*_table(("paper", "claims", *STATES), cells), ""]


def _cells(row: Row) -> Sequence[str]:
    claim = row.claim
    figures = row.claim.figures
    link = f"[{claim.place}]({row.paper.read.page}#{claim.section})" if claim.section else claim.place
    papers = [f"{name} {written(each.paper)}" for name, each in figures.items() if each.paper is not None]
    if claim.floor or claim.ceiling:
        bounds = "; ".join((claim.floor or "–", claim.ceiling or "–"))
    else:
        bounds = "–"
    notes = [claim.size, claim.note, f"cost: {claim.cost}" if claim.cost else ""]
    return (
        f"**{link}.** {claim.says}",
        _figures(papers, claim.unit),
        _figures([f"{name} {_edgebed(row, name)}" for name in row.figures], claim.unit),
        row.evaluation.state,
        row.evaluation.seeds or "–",
        bounds,
        _time(row),
        f"`{row.command}`" if row.command else "–",
        "; ".join(filter(None, notes)),
    )


def _interval(found: PairedDifference) -> str:
    """The mean difference with its 95% interval, before any adjustment for several comparisons."""
    if found.low is None or found.high is None:
        return f"{found.mean:+.3g} with every seed"
    return f"{found.mean:+.3g} [{found.low:+.3g}, {found.high:+.3g}]".replace("-", "−")


def _figures(parts: Sequence[str], unit: str) -> str:
    return f"{', '.join(parts)}{f' ({unit})' * bool(unit)}" if parts else "–"


def _edgebed(row: Row, name: str) -> str:
    if name in row.figures:
        return row.figures[name].written
    return "–"


def _time(row: Row) -> str:
    made = row.made
    time = f"{made.minutes:g} min" if made.minutes else ""
    if kind_of(made.driver).simulated:
        driver = ""
    else:
        driver = made.driver
    return ", ".join(filter(None, (time, driver, made.version))) or "–"


def _table(headings: Iterable[str], rows: Iterable[Sequence[str]]) -> list[str]:
    head = list(headings)
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
