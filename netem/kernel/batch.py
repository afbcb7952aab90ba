"""Many `tc` commands in one process, and the result of each: ``tc -force -json -statistics -batch -``. Pure, no I/O.

With ``-force`` tc continues after a command that fails, and prints the number of its line (tc(8), -force). A show
command prints one JSON array if it succeeds, and nothing if it fails. Standard output and error are one stream, in the
order of the commands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from netem.errors import TcError

ARGUMENTS = ("tc", "-force", "-json", "-statistics", "-batch", "-")
END = "end"
"""An unknown command: tc's error for its line shows that all lines before it are done."""
Commands = list[list[str]]
"""The words of each command."""

_LINE = re.compile(r"\S.*")  # the rest of one, from its first word on
_FAILED = re.compile(r"Command failed \S+:(\d+)$")


def lines(commands: Iterable[Sequence[str]]) -> str:
    """The commands as input text of ``tc -batch -``."""
    return "".join(f"{' '.join(command[1:])}\n" for command in commands)


@dataclass(frozen=True)
class Reply:
    """Output of one command, "" if none, and tc's error message, "" if the command succeeded."""

    shown: str = ""
    error: str = ""


@contextmanager
def reading(command: str) -> Iterator[None]:
    """TcError if the body cannot read the output of ``tc -j -s`` with this command."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TcError(f"cannot read the output of tc -j -s {command}: {error!r}") from error


def failed_line(said: str) -> int | None:
    """The number of the failed line, if `said` reports one; otherwise None."""
    match = _FAILED.match(said)
    if match is None:
        return None
    return int(match[1])


def replies(
    commands: Sequence[Sequence[str]],
    said: str,
    first: int = 1,
) -> list[Reply]:
    """The result of each command, parsed from tc's output `said`; `first` is the line number of the first command.
    Raises TcError if the output does not fit the commands."""
    shown, complaints, unexplained = _parts(said)
    arrays = iter(shown)
    results = []
    for line, command in enumerate(commands, start=first):
        if line in complaints:
            results.append(Reply(error=complaints[line]))
        elif "show" in command:
            try:
                results.append(Reply(shown=next(arrays)))
            except StopIteration:
                written = " ".join(command)
                raise TcError(f"tc has not shown what `{written}` asks for: {unexplained}") from None
        else:
            results.append(Reply())
    return results


def _parts(said: str) -> tuple[list[str], dict[int, str], str]:
    """The JSON arrays, the error messages by line of the batch, and the rest of the output."""
    decoder = json.JSONDecoder()
    arrays: list[str] = []
    complaints: dict[int, str] = {}
    before: list[str] = []
    place = 0
    while match := _LINE.search(said, place):
        line = match[0]
        place = match.end()
        if line.startswith("["):
            start = match.start()
            try:
                _, place = decoder.raw_decode(said, start)
            except ValueError as error:
                raise TcError(f"cannot read the output of tc: {error}: {line[:80]}") from error
            arrays.append(said[start:place])
            continue
        number = failed_line(line)
        if number is None:
            before.append(line.strip())
        else:
            complaints[number] = " ".join(before) or "refused"
            before = []
    return arrays, complaints, " ".join(before)
