"""Tables for LaTeX: plain `tabular` environments, which need no package."""

from __future__ import annotations

from collections.abc import Collection, Sequence

Cell = Sequence[str]  # its lines

_SPECIAL = {
    **{character: f"\\{character}" for character in "#$%&_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "[": "{[}",  # at the start of a row it would be an option of the row before
    "]": "{]}",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "−": "$-$",
    "–": "--",
    "…": r"\dots{}",
    "α": r"$\alpha$",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "µ": r"$\mu$",
    "μ": r"$\mu$",
    "κ": r"$\kappa$",
}
_ESCAPES = str.maketrans(_SPECIAL)


def escaped(text: str) -> str:
    """A text in which no character has a meaning for LaTeX, and signs of mathematics are in math mode."""
    return text.translate(_ESCAPES)


def tabular(
    headings: Sequence[Cell],
    rows: Sequence[Sequence[Cell]],
    right: Collection[int],
) -> str:
    """A table with rules around the headings and at the end. The columns with the numbers in ``right`` are aligned to
    the right, the others to the left."""
    columns = ""
    for number in range(len(headings)):
        columns += "r" if number in right else "l"
    lines = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\hline",
        _line(headings, columns),
        r"\hline",
        *(_line(row, columns) for row in rows),
        r"\hline",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _line(row: Sequence[Cell], columns: str) -> str:
    cells = []
    for lines, column in zip(row, columns, strict=True):
        text = r" \\ ".join(map(escaped, lines))
        if len(lines) > 1:
            text = rf"\shortstack[{column}]{{{text}}}"
        cells.append(text)
    return " & ".join(cells) + r" \\"
