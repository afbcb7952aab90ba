"""How often a measurement is tried until it is as expected: `python -m tests.tries FOLDER` fails if that is often.

A host that is busy with something else disturbs a measurement now and then. A fault of the product disturbs many, and
would hide behind the tries. So each test notes which try was its last in the file that ``EDGEBED_TRIES`` names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

NOTES = "EDGEBED_TRIES"
MOST = 1.2  # tries of a measurement, on average


def tries(most: int) -> Iterator[int]:
    """Number the tries from 1. The caller ends its loop with `break` when the measurement is as expected."""
    number = 0
    try:
        for number in range(1, most + 1):
            yield number
    finally:
        _note(number)


def _note(number: int) -> None:
    path = os.environ.get(NOTES)
    if path is None:
        return
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    with Path(path).open("a") as file:
        file.write(f"{number} {test}\n")


def summary(lines: list[str]) -> tuple[float, list[str]]:
    """The mean of the tries, and a line for each measurement that was tried more than once."""
    numbers = [int(line.partition(" ")[0]) for line in lines]
    repeated = [line for line, number in zip(lines, numbers, strict=True) if number > 1]
    return mean(numbers or [1]), repeated


def main() -> int:
    lines = []
    for file in sorted(Path(sys.argv[1]).glob("*.tries")):
        lines += file.read_text().splitlines()
    average, repeated = summary(lines)
    print(*(f"tried {line}" for line in repeated), sep="\n")
    print(f"{len(lines)} measurements took {average:.2f} tries on average, at most {MOST}")
    return int(average > MOST)


if __name__ == "__main__":
    sys.exit(main())
