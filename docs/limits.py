"""Keeps the limits that a study found, for docs/limits-of-frameworks.md: ``python -m docs.limits runs/NAME``.

It reads limits.json in the folder of the study's runs and writes ``NAME.json`` into ``docs/frameworks/``. The page is
made of these files, of the studies in ``scenarios/limits/`` and of ``docs/frameworks.yaml``, which has the versions and
what a person has read in the logs. ``python -m docs.generate`` writes it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from orchestrator import text

FOLDER = Path(__file__).parent
KEPT = FOLDER / "frameworks"
NOTES = FOLDER / "frameworks.yaml"
STUDIES = FOLDER.parent / "scenarios" / "limits"
HEADINGS = ("axis", "limit", "fails by", "first symptom", "what moves it")
HEAD = """\
# Limits of frameworks

Which latency, loss, rate, outage and number of missing devices do other systems survive? `edgebed limits` has
searched these limits with real programs on emulated links. The [guide](guides/limits.md) explains how it searches
and what *crash*, *hang*, *slow* and *wrong* mean.

The setting is small and the same for all: a server, five devices, links of 100 Mbit/s and 5 ms, a model of 16 kB,
training of half a second. One property at a time is made worse, and all else has its default. Each value was
tried in one run on two busy cores. Where chance decides, the table has the number of runs. *Not finished* and
*not tried* are searches for which there was no time yet. Larger models and other settings have other limits: search
them with your own scenario.

This page is generated from `docs/frameworks.yaml` and the results in `docs/frameworks/`.
"""

Facts = Mapping[str, Any]


def kept(limits: Facts) -> dict[str, Any]:
    """What is kept of the object in limits.json. ``date``: of the last run, in UTC."""
    return {
        "date": _last_date(limits),
        "minutes": round(limits["wall_seconds"] / 60),
        "unimpaired": limits["unimpaired"],
        "limits": [_kept_limit(limit) for limit in limits["limits"]],
    }


def _last_date(limits: Facts) -> str:
    days = []
    for limit in limits["limits"]:
        for run in limit["runs"]:
            found = re.search(r"-(\d{4})(\d\d)(\d\d)-\d{6}-", run["run"])
            if found is not None:
                days.append("-".join(found.groups()))
    return max(days, default="")


def _kept_limit(limit: Facts) -> dict[str, Any]:
    keys = ("case", "axis", "unit", "kind", "low", "high", "middle", "words", "failure")
    shorter: dict[str, Any] = {key: limit[key] for key in keys}
    symptom = limit["symptom"] or {}
    shorter["symptom"] = symptom.get("what")
    shorter["lines"] = symptom.get("lines", [])
    shorter["runs"] = len(limit["runs"])
    return shorter


def keep(directory: Path) -> Path:
    """Write the results of the study with its runs in ``directory``. SystemExit if it has none."""
    source = directory / "limits.json"
    if not source.is_file():
        sys.exit(f"{source} is missing: name the folder of a study's runs, like runs/flower")
    limits = json.loads(source.read_text())
    KEPT.mkdir(exist_ok=True)
    target = KEPT / f"{limits['name']}.json"
    target.write_text(json.dumps(kept(limits), indent=2) + "\n")
    return target


def limits_page() -> str:
    """The page of the limits of all frameworks with kept results."""
    lines = [HEAD]
    for name, notes in yaml.safe_load(NOTES.read_text()).items():
        kept_file = KEPT / f"{name}.json"
        if not kept_file.exists():
            lines.append(f"## {notes['title']}\n\nNot tried.\n")
            continue
        results = json.loads(kept_file.read_text())
        study = yaml.safe_load((STUDIES / f"{name}.yaml").read_text())
        lines += framework(name, notes, results, study)
    return "\n".join(lines)


def framework(
    name: str,
    notes: Facts,
    results: Facts,
    study: Facts,
) -> Iterator[str]:
    """The section of a framework. ``notes``: its entry in frameworks.yaml; ``study``: its file in scenarios/limits."""
    first = next(iter(study.get("cases") or {"default": {}}))
    runs = sum(limit["runs"] for limit in results["limits"])
    scale = results["unimpaired"][first]
    unimpaired = f"{text.count(scale['rounds'], 'round')} in {text.duration(scale['seconds'])}"
    yield f"## {notes['title']}\n"
    made = f"{text.count(runs, 'run')} in {results['minutes']} min"
    yield f"{notes['setting']} Unimpaired: {unimpaired}."
    yield f"The study [{name}](../scenarios/limits/{name}.yaml) made {made}, on {results['date']}.\n"
    yield f"| {' | '.join(HEADINGS)} |\n{'|---' * len(HEADINGS)}|"
    for axis in study["axes"]:
        of_axis = [limit for limit in results["limits"] if limit["axis"] == axis]
        yield row(axis, of_axis, notes["axes"].get(axis, {}), first, study)
    yield ""


def row(
    axis: str,
    limits: Iterable[Facts],
    notes: Facts,
    first: str,
    study: Facts,
) -> str:
    """The row of an axis: the limit of the ``first`` case, and those of the others as what moves it."""
    by_case = {limit["case"]: limit for limit in limits}
    limit = by_case.pop(first, None)
    moves = [notes["moves"]] if "moves" in notes else []
    for case, other in by_case.items():
        changes = study["cases"][case]
        settings = in_words(changes) if len(changes) == 1 else f"the case *{case}*"
        moves.append(f"with {settings}: {other['words']}")
    if limit is None:
        cells = [axis, "not tried", "", "", "; ".join(moves)]
    else:
        chance = f", {text.count(limit['runs'], 'run')}" if limit["kind"] == "chance" else ""
        symptom = ""
        if limit["failure"] is not None:
            symptom = notes.get("symptom") or limit["symptom"] or ""
        cells = [axis, limit["words"] + chance, limit["failure"] or "", symptom, "; ".join(moves)]
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def in_words(overrides: Facts) -> str:
    """The overrides of a case, the last part of each key with its value."""
    settings = []
    for path, value in overrides.items():
        key = path.rpartition(".")[2]
        if isinstance(value, Mapping):
            settings.append(in_words(value))
        else:
            settings.append(f"`{key}: {value}`")
    return ", ".join(settings)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m docs.limits runs/NAME")
    print(f"written: {keep(Path(sys.argv[1]))}")
