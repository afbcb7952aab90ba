"""The results of a sweep: sweep.json for programs, and a table for people, in a terminal or in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from orchestrator import text
from orchestrator.layout import write, write_entries, write_wide_table
from orchestrator.sweep.figures import Result, Spread, spreads
from orchestrator.sweep.reading import Sweep, Target

Write = Callable[[float], str]

LONGEST_NAME = 0.35  # of the console's width, for a word in the name of a case


@dataclass(frozen=True)
class FigureColumn:
    """A column of the figure named ``figure``; if that ends with a dot, of all figures with this prefix (one per link
    class)."""

    heading: str
    figure: str
    write: Write


def to_json(sweep: Sweep, results: Sequence[Result]) -> dict[str, Any]:
    """The results as plain JSON: per case the mean, standard deviation and count of every figure, and the runs."""
    cases = []
    for case, combinations in sweep.cases.items():
        own = _of(case, results)
        cases.append(
            {
                "case": case,
                "overrides": [each for each in combinations[0].overrides if not each.startswith("seed=")],
                "figures": {name: asdict(spread) for name, spread in spreads([each.figures for each in own]).items()},
                "runs": [each.to_json() for each in own],
            }
        )
    target = None if sweep.target is None else sweep.target.model_dump(mode="json")
    return {
        "name": sweep.name,
        "file": str(sweep.file),
        "scenario": str(sweep.scenario),
        "target": target,
        "planned": len(sweep.combinations),
        "cases": cases,
    }


def table(sweep: Sweep, results: Sequence[Result], columns: Sequence[FigureColumn]) -> list[list[list[str]]]:
    """Rows of cells of lines: the headings, then one row per case. Empty columns are left out."""
    by_case = {case: _of(case, results) for case in sweep.cases}
    found = {case: spreads([each.figures for each in own]) for case, own in by_case.items()}
    columns = [column for column in columns if any(_named(column, each) for each in found.values())]
    rows = [[["case"], *([column.heading] for column in columns), ["verdicts"]]]
    for case, own in by_case.items():
        runs = sum(not each.failed for each in own)
        rows.append([[case], *(_cell(column, found[case], runs) for column in columns), [_verdicts(own)]])
    return rows


def markdown(sweep: Sweep, results: Sequence[Result]) -> str:
    """The text of sweep.md: the table, its legend, and the failed runs."""
    headings, *rows = [[_in_markdown(cell) for cell in row] for row in table(sweep, results, columns_of(sweep.target))]
    lines = [headings, ["---", *["---:"] * (len(headings) - 2), "---"], *rows]
    parts = [f"# {sweep.name}", legend(sweep), "\n".join(f"| {' | '.join(line)} |" for line in lines)]
    if failed := failures(results):
        parts.append("Failed, and not part of any figure:\n\n" + "\n".join(f"- {each}" for each in failed))
    return "\n\n".join(parts) + "\n"


def print_tables(sweep: Sweep, results: Sequence[Result], console: Console) -> None:
    """Print the table in as many parts as the width of the terminal asks for, and the failed runs.

    If names of cases do not fit beside the figures, the cases are numbered, and a list above the table names them.
    """
    write(console, Text(legend(sweep), style="dim"), "")
    headings, *rows = table(sweep, results, columns_of(sweep.target))
    longest = max(len(word) for case in sweep.cases for word in case.split())
    if longest > console.width * LONGEST_NAME:
        write_entries(console, [(str(number), case) for number, case in enumerate(sweep.cases, start=1)])
        write(console, "")
        rows = [[[str(number)], *row[1:]] for number, row in enumerate(rows, start=1)]
    titles = [" ".join(cell) for cell in headings]
    figures = range(1, len(headings) - 1)
    write_wide_table(console, titles, [["\n".join(cell) for cell in row] for row in rows], right=figures)
    for each in failures(results):
        write(console, Text.assemble(("failed:", "red"), f" {each}"))


def columns_of(target: Target | None) -> list[FigureColumn]:
    """All columns of a sweep's table."""
    return [*columns_of_learning(target), *COSTS]


def columns_of_learning(target: Target | None) -> list[FigureColumn]:
    """The columns of accuracies, and of what the target took."""
    return [*_accuracies(target), *_to_target(target)]


def _accuracies(target: Target | None) -> list[FigureColumn]:
    return [
        FigureColumn("global", "final.global", text.percent),
        FigureColumn("own, clients", "final.clients", text.percent),
        FigureColumn("own, edges", "final.edges", text.percent),
        FigureColumn("best, global", "best.global", text.percent)
        if target is None
        else FigureColumn(f"best, {_judged(target)}", "best.target", text.percent),
    ]


def _to_target(target: Target | None) -> list[FigureColumn]:
    if target is None:
        return []
    return [
        FigureColumn("rounds to target", "to_target.rounds", text.number),
        FigureColumn("time to target", "to_target.seconds", text.duration),
        FigureColumn("bytes to target", "to_target.bytes.", _size),
    ]


def _size(count: float) -> str:
    return text.size(round(count))


COSTS = (
    FigureColumn("clients seen", "population.share_seen", text.percent),
    FigureColumn("bytes per round", "bytes_per_round.", _size),
    FigureColumn("rounds", "rounds", text.number),
    FigureColumn("wall", "wall_seconds", text.duration),
)


def _judged(target: Target) -> str:
    return "global" if target.scope == "global" else f"own of {target.whose}"


def _named(column: FigureColumn, found: Mapping[str, Spread]) -> list[str]:
    if not column.figure.endswith("."):
        return [column.figure] if column.figure in found else []
    return [name for name in found if name.startswith(column.figure)]


def _cell(column: FigureColumn, found: Mapping[str, Spread], runs: int) -> list[str]:
    """One line per figure."""
    lines = []
    for name in _named(column, found):
        line = spread_in_words(found[name], column.write, runs)
        lines.append(f"{name.removeprefix(column.figure)} {line}".strip())
    return lines or ["–"]


def spread_in_words(spread: Spread, write: Write, runs: int) -> str:
    """ "84.2 ± 1.1%", "30 ± 19.8 (2 of 3)": with the number of runs that have the figure, if fewer than ``runs``."""
    of = f" ({spread.count} of {runs})" if spread.count < runs else ""
    return _in_words(spread, write) + of


def _in_words(spread: Spread, write: Write) -> str:
    """ "84.2 ± 1.1%", "7.01 s ± 986 ms": a common unit is written once."""
    mean = write(spread.mean)
    if spread.deviation is None:
        return mean
    deviation = write(spread.deviation) if spread.deviation else "0"
    unit = mean.lstrip(_DIGITS)
    return f"{mean.removesuffix(unit) if deviation.lstrip(_DIGITS) == unit else mean} ± {deviation}"


_DIGITS = "−0123456789.,"


def _verdicts(own: Iterable[Result]) -> str:
    tally = Counter("failed" if each.failed else each.verdict for each in own)
    return ", ".join(f"{count} {verdict}" for verdict, count in tally.items()) or "–"


def legend(sweep: Sweep) -> str:
    """What the figures of the table are, in words."""
    seeds = {each.seed for each in sweep.combinations}
    over = f"mean ± standard deviation over {len(seeds)} seeds" if len(seeds) > 1 else f"seed {min(seeds)}"
    legend = f"{sweep.scenario.name}, {over}; accuracies after the last round."
    if sweep.target is not None:
        of = "on the global test set" if sweep.target.scope == "global" else f"of {sweep.target.whose} on their own"
        legend += f" Target: {text.percent(sweep.target.accuracy)} {of}, means over the runs that reached it."
    return legend


def failures(results: Iterable[Result]) -> list[str]:
    """The runs that failed, with the reason."""
    return [f"{each.combination.case}, seed {each.combination.seed}: {each.error}" for each in results if each.failed]


def _of(case: str, results: Iterable[Result]) -> list[Result]:
    return [each for each in results if each.combination.case == case]


def _in_markdown(cell: Sequence[str]) -> str:
    return "<br>".join(line.replace("|", "\\|") for line in cell)
