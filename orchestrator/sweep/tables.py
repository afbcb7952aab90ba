"""The results of a sweep: sweep.json for programs, and a table for people, in a terminal or in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from node.extras import LEARNING, install_command
from orchestrator import text
from orchestrator.latex import tabular
from orchestrator.layout import write, write_entries, write_wide_table
from orchestrator.results.evaluation.targets import judged_on
from orchestrator.sweep.quantities import Comparison, Result, Spread, compare, spreads
from orchestrator.sweep.reading import Sweep, Target
from orchestrator.sweep.statistics import LEVEL, available

Write = Callable[[float], str]
Spreads = Mapping[str, Spread]  # by the names of figures
Rows = Sequence[Sequence[list[str]]]
"""Rows of cells of lines."""

LONGEST_NAME = 0.35  # of the console's width, for a word in the name of a case


@dataclass(frozen=True)
class FigureColumn:
    """A column of the figure ``figure``; with a dot at its end, of all figures with this prefix."""

    heading: str
    figure: str
    write: Write


def to_json(sweep: Sweep, results: Sequence[Result]) -> dict[str, Any]:
    """Per case the mean, deviation and count of every figure, and the runs; then the comparisons."""
    cases = []
    for case, combinations in sweep.cases.items():
        of_case = results_of(case, results)
        overrides = []
        for override in combinations[0].overrides:
            if not override.startswith("seed="):
                overrides.append(override)
        figures = {}
        for name, spread in _spreads(of_case).items():
            figures[name] = asdict(spread)
        facts = {
            "case": case,
            "overrides": overrides,
            "figures": figures,
            "runs": [result.to_json() for result in of_case],
        }
        cases.append(facts)
    target = None
    if sweep.target is not None:
        target = sweep.target.model_dump(mode="json")
    return {
        "name": sweep.name,
        "file": str(sweep.file),
        "scenario": str(sweep.scenario),
        "target": target,
        "planned": len(sweep.combinations),
        "cases": cases,
        "comparisons": [comparison.row() for comparison in compare(results)],
    }


def _spreads(results: Iterable[Result]) -> dict[str, Spread]:
    return spreads([result.figures for result in results])


def table(
    sweep: Sweep,
    results: Sequence[Result],
    columns: Sequence[FigureColumn],
) -> Rows:
    """Rows of cells of lines: the headings, then one row per case. Empty columns are left out."""
    by_case = {}
    figures = {}
    for case in sweep.cases:
        of_case = results_of(case, results)
        by_case[case] = of_case
        figures[case] = _spreads(of_case)
    filled = []
    for column in columns:
        if any(_named(column, of_case) for of_case in figures.values()):
            filled.append(column)
    headings = [[column.heading] for column in filled]
    rows = [[["case"], *headings, ["verdicts"]]]
    for case, of_case in by_case.items():
        runs = sum(not result.failed for result in of_case)
        cells = [_cell(column, figures[case], runs) for column in filled]
        last = [verdicts(of_case)]
        rows.append([[case], *cells, last])
    return rows


def comparison_table(comparisons: Sequence[Comparison]) -> Rows:
    """The headings, and a row for each case that is compared; empty if no two cases share several seeds."""
    by_case: dict[str, dict[str, Comparison]] = {}
    figures = set()
    for comparison in comparisons:
        if len(comparison.difference.by_seed) < 2:
            continue
        figures.add(comparison.figure)
        of_case = by_case.setdefault(comparison.case, {})
        of_case[comparison.figure] = comparison
    columns = [column for column in _COMPARED if column.figure in figures]
    rows = []
    if columns:
        headings = [[column.heading] for column in columns]
        rows.append([["case"], *headings, ["seeds"]])
    for case, of_case in by_case.items():
        cells = []
        for column in columns:
            shown = of_case.get(column.figure)
            cells.append(_difference(shown, column.write))
        seeds = [len(comparison.difference.by_seed) for comparison in of_case.values()]
        last = [str(max(seeds))]
        rows.append([[case], *cells, last])
    return rows


def _difference(comparison: Comparison | None, write: Write) -> list[str]:
    """ "+1.3 [−0.2, +2.8]" and "p 0.031, detectable 4.2"."""
    if comparison is None:
        return ["–"]
    difference = comparison.difference
    low = difference.low
    high = difference.high
    smallest = difference.smallest
    p = comparison.p_holm
    mean = _signed(difference.mean, write)
    if low is None or high is None or smallest is None or p is None:
        return [mean, "with every seed"]
    interval = f"[{_signed(low, write)}, {_signed(high, write)}]"
    shown = "< 0.001" if p < 0.001 else f"{p:.2g}"
    return [f"{mean} {interval}", f"p {shown}, detectable {write(smallest)}"]


def _signed(value: float, write: Write) -> str:
    sign = ""
    if value < 0:
        sign = "−"
    elif value:
        sign = "+"
    return sign + write(abs(value))


_TO_TARGET = (
    FigureColumn("rounds to target", "to_target.rounds", text.number),
    FigureColumn("time to target", "to_target.seconds", text.duration),
)


def _points(fraction: float) -> str:
    """A difference of accuracies in percentage points."""
    return f"{fraction * 100:.1f}"


_COMPARED = (
    FigureColumn("global, points", "final.global", _points),
    FigureColumn("own of clients, points", "final.clients", _points),
    FigureColumn("own of edges, points", "final.edges", _points),
    *_TO_TARGET,
)


def about_comparisons(sweep: Sweep, comparisons: Sequence[Comparison]) -> str:
    """How the table of comparisons reads, or why there is none; empty with a single case."""
    seeds = {combination.seed for combination in sweep.combinations}
    if len(sweep.cases) > 1 and len(seeds) == 1:
        return "One seed shows no difference between cases: list at least two in `seeds`, better five."
    if len(sweep.cases) > 1 and not available():
        return f"The differences between cases need SciPy: {install_command(LEARNING)}"
    if not comparison_table(comparisons):
        return ""
    references = list(dict.fromkeys(comparison.reference for comparison in comparisons))
    reference = "the first case with the same varied values"
    if len(references) == 1:
        reference = references[0]
    about = (
        f"Each case minus {reference}, paired by seed, with 95% intervals. p is adjusted for all comparisons in the "
        f"table (Holm): only p below {LEVEL} shows a difference. A true difference as large as 'detectable' is found "
        "in four of five such sweeps, if it is the only comparison."
    )
    if sweep.target:
        about += " Runs to the target are cut where the first of both cases ended without."
    return about


def markdown(sweep: Sweep, results: Sequence[Result]) -> str:
    """The text of sweep.md: the table, its legend, the comparisons, and the failed runs."""
    comparisons = compare(results)
    rows = table(sweep, results, columns_of(sweep.target))
    parts = [f"# {sweep.name}", legend(sweep), _lines(rows)]
    different_rounds = about_rounds(sweep)
    if different_rounds:
        parts.append(different_rounds)
    about = about_comparisons(sweep, comparisons)
    if about:
        parts += ["## Differences", about]
        rows = comparison_table(comparisons)
        if rows:
            parts.append(_lines(rows))
    failed = [f"- {failure}" for failure in failures(results)]
    if failed:
        parts.append("Failed, and not part of any figure:\n\n" + "\n".join(failed))
    return "\n\n".join(parts) + "\n"


def latex(sweep: Sweep, results: Sequence[Result]) -> str:
    """The text of sweep.tex: the table, and the comparisons, each as a `tabular` below a comment that explains it."""
    comparisons = compare(results)
    rows = table(sweep, results, columns_of(sweep.target))
    parts = [_latex_table(legend(sweep), rows)]
    rows = comparison_table(comparisons)
    if rows:
        about = about_comparisons(sweep, comparisons)
        parts.append(_latex_table(about, rows))
    return "\n".join(parts)


def _latex_table(about: str, rows: Rows) -> str:
    headings = rows[0]
    numbers = range(1, len(headings) - 1)
    return f"% {about}\n" + tabular(headings, rows[1:], numbers)


def print_tables(sweep: Sweep, results: Sequence[Result], console: Console) -> None:
    """Print the table in as many parts as the width of the terminal requires, and the failed runs. If names of cases do
    not fit next to the figures, the cases are numbered, and a list above the table names them."""
    write(console, Text(legend(sweep), style="dim"), "")
    numbers: dict[str, str] = {}
    words = " ".join(sweep.cases).split()
    longest = max(len(word) for word in words)
    if longest > console.width * LONGEST_NAME:
        entries = []
        for number, case in enumerate(sweep.cases, start=1):
            numbers[case] = str(number)
            entries.append((str(number), case))
        write_entries(console, entries)
        write(console, "")
    rows = table(sweep, results, columns_of(sweep.target))
    _print_table(rows, numbers, console)
    different_rounds = about_rounds(sweep)
    if different_rounds:
        write(console, "", Text(different_rounds, style="yellow"))
    comparisons = compare(results)
    about = about_comparisons(sweep, comparisons)
    if about:
        write(console, "", Text(about, style="dim"), "")
        _print_table(comparison_table(comparisons), numbers, console)
    for failure in failures(results):
        write(console, Text.assemble(("failed:", "red"), f" {failure}"))


def _print_table(rows: Rows, numbers: Mapping[str, str], console: Console) -> None:
    """Print rows of cells of lines, with the numbers of cases instead of their names, if any."""
    if not rows:
        return
    headings = list(map(" ".join, rows[0]))
    body = []
    for row in rows[1:]:
        cells = list(map("\n".join, row))
        case = cells[0]
        cells[0] = numbers.get(case, case)
        body.append(cells)
    figures = range(1, len(headings) - 1)
    write_wide_table(console, headings, body, right=figures)


def _lines(rows: Rows) -> str:
    """Rows of cells of lines as a table in Markdown."""
    numbers = len(rows[0]) - 2
    lines = []
    for row in rows:
        cells = []
        for cell in row:
            written = "<br>".join(cell)
            cells.append(written.replace("|", "\\|"))
        lines.append(_line(cells))
    rule = ["---", *["---:"] * numbers, "---"]
    lines.insert(1, _line(rule))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def columns_of(target: Target | None) -> list[FigureColumn]:
    return [*columns_of_learning(target), *COSTS]


def columns_of_learning(target: Target | None) -> list[FigureColumn]:
    """The columns of accuracies, and of what the target took."""
    if target is None:
        best = FigureColumn("best, global", "best.global", text.percent)
    elif target.scope == "global":
        best = FigureColumn("best, global", "best.target", text.percent)
    else:
        best = FigureColumn(f"best, own of {target.whose}", "best.target", text.percent)
    columns = [
        FigureColumn("global", "final.global", text.percent),
        FigureColumn("own, clients", "final.clients", text.percent),
        FigureColumn("own, edges", "final.edges", text.percent),
        best,
    ]
    if target is None:
        return columns
    bytes_to_target = FigureColumn("bytes to target", "to_target.bytes.", text.size)
    return [*columns, *_TO_TARGET, bytes_to_target]


COSTS = (
    FigureColumn("clients seen", "population.share_seen", text.percent),
    FigureColumn("bytes per round", "bytes_per_round.", text.size),
    FigureColumn("rounds", "rounds", text.number),
    FigureColumn("wall", "wall_seconds", text.duration),
)


def _named(column: FigureColumn, figures: Spreads) -> list[str]:
    if column.figure.endswith("."):
        return [name for name in figures if name.startswith(column.figure)]
    if column.figure in figures:
        return [column.figure]
    return []


def _cell(column: FigureColumn, figures: Spreads, runs: int) -> list[str]:
    """One line per figure."""
    lines = []
    for name in _named(column, figures):
        words = spread_in_words(figures[name], column.write, runs)
        link_class = name.removeprefix(column.figure)
        lines.append(f"{link_class} {words}".strip())
    return lines or ["–"]


def spread_in_words(spread: Spread, write: Write, runs: int) -> str:
    """ "84.2 ± 1.1%", "≥ 30 ± 19.8 (2 of 3)": with the number of runs that have the figure, or reached the target, if
    fewer than ``runs``."""
    words = _in_words(spread, write)
    if spread.censored:
        words = f"≥ {words}"
    have = spread.count - spread.censored
    if have < runs:
        words += f" ({have} of {runs})"
    return words


def _in_words(spread: Spread, write: Write) -> str:
    """ "84.2 ± 1.1%", "7.01 s ± 986 ms": a common unit is written once."""
    mean = write(spread.mean)
    if spread.deviation is None:
        return mean
    deviation = write(spread.deviation) if spread.deviation else "0"
    unit = mean.lstrip(_DIGITS)
    if deviation.lstrip(_DIGITS) == unit:
        mean = mean.removesuffix(unit)
    return f"{mean} ± {deviation}"


_DIGITS = "−0123456789.,"


def verdicts(results: Iterable[Result]) -> str:
    tally = Counter[str | None]()
    for result in results:
        verdict = "failed" if result.failed else result.verdict
        tally[verdict] += 1
    parts = [f"{count} {verdict}" for verdict, count in tally.items()]
    return ", ".join(parts) or "none"


def legend(sweep: Sweep) -> str:
    """What the figures of the table are, in words."""
    seeds = {combination.seed for combination in sweep.combinations}
    over = f"seed {min(seeds)}"
    if len(seeds) > 1:
        over = f"mean ± standard deviation over {len(seeds)} seeds"
    legend = f"{sweep.scenario.name}, {over}; accuracies after the last round."
    target = sweep.target
    if target is not None:
        legend += (
            f" Target: {text.percent(target.accuracy)} {judged_on(target.judged)}. A mean with ≥ includes runs that "
            "never reached it, up to the end of the shortest of them."
        )
    return legend


def about_rounds(sweep: Sweep) -> str:
    """The planned rounds of the cases, if they differ; else empty."""
    planned: dict[int | None, list[str]] = {}
    for case, combinations in sweep.cases.items():
        rounds = combinations[0].scenario.rounds
        planned.setdefault(rounds, []).append(case)
    if len(planned) < 2:
        return ""
    parts = []
    for number, cases in planned.items():
        words = "no fixed number" if number is None else str(number)
        parts.append(f"{words} ({text.some(cases)})")
    return (
        f"Cases have different numbers of rounds: {'; '.join(parts)}. Accuracies after the last round and totals "
        "compare them after different amounts of training: set `algorithm.rounds` to the same number in all cases."
    )


def failures(results: Iterable[Result]) -> list[str]:
    sentences = []
    for result in results:
        if result.failed:
            combination = result.combination
            sentences.append(f"{combination.case}, seed {combination.seed}: {result.error}")
    return sentences


def results_of(case: str, results: Iterable[Result]) -> list[Result]:
    """The results of a case."""
    own = []
    for result in results:
        if result.combination.case == case:
            own.append(result)
    return own
