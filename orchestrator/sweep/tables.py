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
from orchestrator.sweep.figures import Comparison, Result, Spread, compare, spreads
from orchestrator.sweep.reading import Sweep, Target
from orchestrator.sweep.statistics import LEVEL, available

Write = Callable[[float], str]

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
        own = _of(case, results)
        cases.append(
            {
                "case": case,
                "overrides": [each for each in combinations[0].overrides if not each.startswith("seed=")],
                "figures": {name: asdict(spread) for name, spread in spreads([each.figures for each in own]).items()},
                "runs": [each.to_json() for each in own],
            }
        )
    if sweep.target is None:
        target = None
    else:
        target = sweep.target.model_dump(mode="json")
    return {
        "name": sweep.name,
        "file": str(sweep.file),
        "scenario": str(sweep.scenario),
        "target": target,
        "planned": len(sweep.combinations),
        "cases": cases,
        "comparisons": [each.row() for each in compare(results)],
    }


def table(sweep: Sweep, results: Sequence[Result], columns: Sequence[FigureColumn]) -> list[list[list[str]]]:
    """Rows of cells of lines: the headings, then one row per case. Empty columns are left out."""
    by_case = {case: _of(case, results) for case in sweep.cases}
    found = {case: spreads([each.figures for each in own]) for case, own in by_case.items()}
    columns = [column for column in columns if any(_named(column, each) for each in found.values())]
    rows = [[["case"], *([column.heading] for column in columns), ["verdicts"]]]
    for case, own in by_case.items():
        runs = sum(not each.failed for each in own)
        rows.append([[case], *(_cell(column, found[case], runs) for column in columns), [verdicts(own)]])
    return rows


def comparison_table(comparisons: Sequence[Comparison]) -> list[list[list[str]]]:
    """The headings, and a row for each case that is compared; empty if no two cases share several seeds."""
    comparisons = [each for each in comparisons if len(each.difference.by_seed) > 1]
    columns = [column for column in _COMPARED if any(each.figure == column.figure for each in comparisons)]
    if columns:
        rows = [[["case"], *([column.heading] for column in columns), ["seeds"]]]
    else:
        rows = []
    for case in dict.fromkeys(each.case for each in comparisons):
        own = {each.figure: each for each in comparisons if each.case == case}
        seeds = max(len(each.difference.by_seed) for each in own.values())
        cells = (_difference(own.get(column.figure), column.write) for column in columns)
        rows.append([[case], *cells, [str(seeds)]])
    return rows


def _difference(comparison: Comparison | None, write: Write) -> list[str]:
    """ "+1.3 [−0.2, +2.8]" and "p 0.031, detectable 4.2"."""
    if comparison is None:
        return ["–"]
    found = comparison.difference
    p = comparison.p_holm
    if found.low is None or found.high is None or found.smallest is None or p is None:
        return [_signed(found.mean, write), "with every seed"]
    interval = f"[{_signed(found.low, write)}, {_signed(found.high, write)}]"
    shown = "< 0.001" if p < 0.001 else f"{p:.2g}"
    return [f"{_signed(found.mean, write)} {interval}", f"p {shown}, detectable {write(found.smallest)}"]


def _signed(value: float, write: Write) -> str:
    return f"{'−' if value < 0 else '+' if value else ''}{write(abs(value))}"


_TO_TARGET = (
    FigureColumn("rounds to target", "to_target.rounds", text.number),
    FigureColumn("time to target", "to_target.seconds", text.duration),
)
_COMPARED = (
    *(
        FigureColumn(f"{of}, points", f"final.{name}", lambda fraction: f"{fraction * 100:.1f}")
        for of, name in (("global", "global"), ("own of clients", "clients"), ("own of edges", "edges"))
    ),
    *_TO_TARGET,
)


def about_comparisons(sweep: Sweep, comparisons: Sequence[Comparison]) -> str:
    """How the table of comparisons reads, or why there is none; empty with a single case."""
    if len(sweep.cases) > 1 and len({each.seed for each in sweep.combinations}) == 1:
        return "One seed shows no difference between cases: list at least two in `seeds`, better five."
    if len(sweep.cases) > 1 and not available():
        return f"The differences between cases need SciPy: {install_command(LEARNING)}"
    if not comparison_table(comparisons):
        return ""
    references = list(dict.fromkeys(each.reference for each in comparisons))
    minus = references[0] if len(references) == 1 else "the first case with the same varied values"
    return (
        f"Each case minus {minus}, paired by seed, with 95% intervals. p is adjusted for all comparisons in the table "
        f"(Holm): only p below {LEVEL} shows a difference. A true difference as large as 'detectable' is found in four "
        "of five such sweeps, if it is the only comparison."
    ) + (" Runs to the target are cut where the first of both cases ended without." if sweep.target else "")


def markdown(sweep: Sweep, results: Sequence[Result]) -> str:
    """The text of sweep.md: the table, its legend, the comparisons, and the failed runs."""
    comparisons = compare(results)
    parts = [f"# {sweep.name}", legend(sweep), _lines(table(sweep, results, columns_of(sweep.target)))]
    different_rounds = about_rounds(sweep)
    if different_rounds:
        parts.append(different_rounds)
    about = about_comparisons(sweep, comparisons)
    if about:
        rows = comparison_table(comparisons)
        parts += ["## Differences", about, *([_lines(rows)] if rows else [])]
    failed = failures(results)
    if failed:
        parts.append("Failed, and not part of any figure:\n\n" + "\n".join(f"- {each}" for each in failed))
    return "\n\n".join(parts) + "\n"


def latex(sweep: Sweep, results: Sequence[Result]) -> str:
    """The text of sweep.tex: the table, and the comparisons, each as a `tabular` below a comment that explains it."""
    comparisons = compare(results)
    tables = [(legend(sweep), table(sweep, results, columns_of(sweep.target)))]
    tables.append((about_comparisons(sweep, comparisons), comparison_table(comparisons)))
    parts = []
    for about, rows in tables:
        if rows:
            headings, *body = rows
            parts.append(f"% {about}\n" + tabular(headings, body, range(1, len(headings) - 1)))
    return "\n".join(parts)


def print_tables(sweep: Sweep, results: Sequence[Result], console: Console) -> None:
    """Print the table in as many parts as the width of the terminal requires, and the failed runs. If names of cases do
    not fit next to the figures, the cases are numbered, and a list above the table names them."""
    write(console, Text(legend(sweep), style="dim"), "")
    numbers: dict[str, str] = {}
    if max(len(word) for case in sweep.cases for word in case.split()) > console.width * LONGEST_NAME:
        numbers = {case: str(number) for number, case in enumerate(sweep.cases, start=1)}
        write_entries(console, [(number, case) for case, number in numbers.items()])
        write(console, "")
    _print_table(table(sweep, results, columns_of(sweep.target)), numbers, console)
    different_rounds = about_rounds(sweep)
    if different_rounds:
        write(console, "", Text(different_rounds, style="yellow"))
    comparisons = compare(results)
    about = about_comparisons(sweep, comparisons)
    if about:
        write(console, "", Text(about, style="dim"), "")
        _print_table(comparison_table(comparisons), numbers, console)
    for each in failures(results):
        write(console, Text.assemble(("failed:", "red"), f" {each}"))


def _print_table(rows: Sequence[Sequence[list[str]]], numbers: Mapping[str, str], console: Console) -> None:
    """Print rows of cells of lines, with the numbers of cases instead of their names, if any."""
    if not rows:
        return
    headings, *body = [["\n".join(cell) for cell in row] for row in rows]
    body = [[numbers.get(case, case), *cells] for case, *cells in body]
    write_wide_table(console, [each.replace("\n", " ") for each in headings], body, right=range(1, len(headings) - 1))


def _lines(rows: Sequence[Sequence[Sequence[str]]]) -> str:
    """Rows of cells of lines as a table in Markdown."""
    headings, *body = [["<br>".join(cell).replace("|", "\\|") for cell in row] for row in rows]
    lines = [headings, ["---", *["---:"] * (len(headings) - 2), "---"], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def columns_of(target: Target | None) -> list[FigureColumn]:
    return [*columns_of_learning(target), *COSTS]


def columns_of_learning(target: Target | None) -> list[FigureColumn]:
    """The columns of accuracies, and of what the target took."""
    best = ("best, global", "best.global")
    if target is not None:
        best = ("best, global" if target.scope == "global" else f"best, own of {target.whose}"), "best.target"
    columns = [
        FigureColumn("global", "final.global", text.percent),
        FigureColumn("own, clients", "final.clients", text.percent),
        FigureColumn("own, edges", "final.edges", text.percent),
        FigureColumn(*best, text.percent),
    ]
    if target is None:
        return columns
    return [*columns, *_TO_TARGET, FigureColumn("bytes to target", "to_target.bytes.", text.size)]


COSTS = (
    FigureColumn("clients seen", "population.share_seen", text.percent),
    FigureColumn("bytes per round", "bytes_per_round.", text.size),
    FigureColumn("rounds", "rounds", text.number),
    FigureColumn("wall", "wall_seconds", text.duration),
)


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
    """ "84.2 ± 1.1%", "≥ 30 ± 19.8 (2 of 3)": with the number of runs that have the figure, or reached the target, if
    fewer than ``runs``."""
    have = spread.count - spread.censored
    of = f" ({have} of {runs})" if have < runs else ""
    return ("≥ " if spread.censored else "") + _in_words(spread, write) + of


def _in_words(spread: Spread, write: Write) -> str:
    """ "84.2 ± 1.1%", "7.01 s ± 986 ms": a common unit is written once."""
    mean = write(spread.mean)
    if spread.deviation is None:
        return mean
    deviation = write(spread.deviation) if spread.deviation else "0"
    unit = mean.lstrip(_DIGITS)
    return f"{mean.removesuffix(unit) if deviation.lstrip(_DIGITS) == unit else mean} ± {deviation}"


_DIGITS = "−0123456789.,"


def verdicts(results: Iterable[Result]) -> str:
    tally = Counter("failed" if each.failed else each.verdict for each in results)
    return ", ".join(f"{count} {verdict}" for verdict, count in tally.items()) or "none"


def legend(sweep: Sweep) -> str:
    """What the figures of the table are, in words."""
    seeds = {each.seed for each in sweep.combinations}
    over = f"mean ± standard deviation over {len(seeds)} seeds" if len(seeds) > 1 else f"seed {min(seeds)}"
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
        planned.setdefault(combinations[0].scenario.rounds, []).append(case)
    if len(planned) < 2:
        return ""
    parts = []
    for rounds, cases in planned.items():
        number = "no fixed number" if rounds is None else str(rounds)
        parts.append(f"{number} ({text.some(cases)})")
    return (
        f"Cases have different numbers of rounds: {'; '.join(parts)}. Accuracies after the last round and totals "
        "compare them after different amounts of training: set `algorithm.rounds` to the same number in all cases."
    )


def failures(results: Iterable[Result]) -> list[str]:
    return [f"{each.combination.case}, seed {each.combination.seed}: {each.error}" for each in results if each.failed]


def _of(case: str, results: Iterable[Result]) -> list[Result]:
    return [each for each in results if each.combination.case == case]
