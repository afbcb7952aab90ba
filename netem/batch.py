"""Many `tc` commands in one process, and what became of each: ``tc -force -json -statistics -batch -``. Pure, no I/O.

With ``-force`` tc goes on after a command that fails, and tells on standard error which line that was (tc(8), -force).
A command that shows something prints one JSON array if it succeeds, and nothing if it fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netem.errors import TcError

ARGUMENTS = ("tc", "-force", "-json", "-statistics", "-batch", "-")
_FAILED = re.compile(r"Command failed \S+:(\d+)$")


@dataclass(frozen=True)
class Outcome:
    """What one command has shown, "" if nothing; and what tc has complained of, "" if it succeeded."""

    shown: str = ""
    error: str = ""


def outcomes(commands: Sequence[Sequence[str]], output: str, errors: str) -> list[Outcome]:
    """What became of each command, from what tc has printed. Raises TcError if that is something else."""
    complaints = _complaints(errors)
    shown = _arrays(output)
    results = []
    for line, command in enumerate(commands, start=1):
        if line in complaints:
            results.append(Outcome(error=complaints[line]))
        elif "show" in command:
            try:
                results.append(Outcome(shown=next(shown)))
            except StopIteration:
                raise TcError(f"tc has not shown what `{' '.join(command)}` asks for: {errors.strip()}") from None
        else:
            results.append(Outcome())
    return results


def _complaints(errors: str) -> dict[int, str]:
    """By line of the batch, what was said before the line was told to have failed."""
    complaints = {}
    said: list[str] = []
    for line in errors.splitlines():
        if match := _FAILED.match(line):
            complaints[int(match[1])] = " ".join(said) or "refused"
            said = []
        else:
            said.append(line.strip())
    return complaints


def _arrays(output: str) -> Iterator[str]:
    """The JSON texts of an output, one after the other."""
    decoder = json.JSONDecoder()
    place = 0
    while rest := output[place:].lstrip():
        place = len(output) - len(rest)
        try:
            _, end = decoder.raw_decode(output, place)
        except ValueError as error:
            raise TcError(f"cannot read the output of tc: {error}: {rest[:80]}") from error
        yield output[place:end]
        place = end
