"""Keeps what thirteen faults did, for docs/frameworks-under-faults.md: ``python -m docs.faults runs/NAME-faults``.

It reads faults.json in that folder and writes ``NAME.json`` into ``docs/frameworks/faults/``. The page is made of
these files and of ``docs/faults.yaml``, which has versions, settings and explanations. ``python -m docs.generate``
writes it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from orchestrator.limits.fault_table import JSON_FILE, by_case, in_short, markdown_table, rows
from orchestrator.limits.faults import FAULTS

FOLDER = Path(__file__).parent
KEPT = FOLDER / "frameworks" / "faults"
NOTES = FOLDER / "faults.yaml"
HEAD = """\
# Frameworks under faults

What do the same thirteen faults do to messaging systems, to federated frameworks and to edgebed's own nodes? `edgebed
limits --faults` [tries them](guides/limits.md#thirteen-faults) on a server and its clients. Times are in seconds from
the start of a fault, those after *back* from its end.

This page is generated from `docs/faults.yaml` and the results in `docs/frameworks/faults/`. *Lost* are messages that
the library accepted without an error, in the fault or after it, and that never arrived. In a federation,
*round* is when the round of the fault ended, followed by the clients that it counted, and *again* is when the client
trains again.
"""

Facts = Mapping[str, Any]


def kept(facts: Facts) -> dict[str, Any]:
    """What is kept of the object in faults.json. ``date``: of the last run, in UTC."""
    runs = [dict(run) for run in facts["runs"]]
    days = []
    for run in runs:
        match = re.search(r"-(\d{4})(\d\d)(\d\d)-\d{6}-", run.pop("run"))
        if match is not None:
            days.append("-".join(match.groups()))
    return {"date": max(days), "scenario": facts["scenario"], "runs": runs}


def faults_page() -> str:
    """The page."""
    notes = yaml.safe_load(NOTES.read_text())
    results = {name: json.loads((KEPT / f"{name}.json").read_text()) for name in notes}
    described = [[fault.name, fault.what] for fault in FAULTS]
    lines = [HEAD, markdown_table(["fault", "what happens"], described)]
    for kind, heading in (("messages", "Messages"), ("rounds", "Federations")):
        names = [name for name, note in notes.items() if note["kind"] == kind]
        if names:
            lines += [f"## {heading}\n", _summary(names, notes, results)]
    for name, note in notes.items():
        lines += _section(note, results[name])
    return "\n".join(lines)


def _summary(names: Sequence[str], notes: Facts, results: Facts) -> str:
    """One row for each fault, one column for each case."""
    columns = {}
    for name in names:
        for case, runs in by_case(results[name]).items():
            columns[_title(notes[name], case)] = runs
    table = []
    for fault in FAULTS:
        row = [fault.name]
        for runs in columns.values():
            of_fault = [run for run in runs if run["fault"] == fault.name]
            row.append(in_short(of_fault) if of_fault else "")
        if any(row[1:]):
            table.append(row)
    return markdown_table(["fault", *columns], table)


def _section(note: Facts, result: Facts) -> Iterator[str]:
    for case, runs in by_case(result).items():
        yield f"## {_title(note, case)}, in detail\n"
        yield f"{note['setting'].strip()} Runs of {result['date']}, {note['driver']}.\n"
        yield markdown_table(*rows(runs))
        for line in note.get("explanations", {}).get(case, ()):
            yield f"- {line}"
        yield ""


def _title(note: Facts, case: str) -> str:
    title = note["title"]
    if case == "default":
        return str(title)
    return f"{title}, {case}"


def main() -> None:
    for argument in sys.argv[1:]:
        folder = Path(argument)
        facts = json.loads((folder / JSON_FILE).read_text())
        KEPT.mkdir(parents=True, exist_ok=True)
        file = KEPT / f"{folder.name.removesuffix('-faults')}.json"
        file.write_text(json.dumps(kept(facts), indent=1) + "\n")
        print(f"written: {file}")


if __name__ == "__main__":
    main()
