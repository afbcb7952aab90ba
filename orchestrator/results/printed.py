"""The summary of a run as lines on a console."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from orchestrator import text
from orchestrator.layout import Cell, write_entries
from orchestrator.results.checks.verdicts import STYLES
from orchestrator.results.hosts import energy_in_words, sentences
from orchestrator.results.means import Coverage
from orchestrator.results.overview import other_metrics
from orchestrator.results.traffic.volumes import sentences as real_sentences


def _recalls(metrics: Mapping[str, float | None]) -> list[tuple[Cell, Cell]]:
    """A row with the lowest and the highest recall of a class; none without recalls."""
    recalls = {}
    for name, value in metrics.items():
        if name.startswith(text.RECALL) and value is not None:
            recalls[name.removeprefix(text.RECALL)] = value
    if not recalls:
        return []
    lowest = min(recalls, key=recalls.__getitem__)
    highest = max(recalls, key=recalls.__getitem__)
    low = f"{text.percent(recalls[lowest])} (class {lowest})"
    high = f"{text.percent(recalls[highest])} (class {highest})"
    return [("recall", f"lowest {low}, highest {high}")]


def print_summary(summary: Mapping[str, Any], report: Path, console: Console) -> None:
    """Print a run's summary. ``report`` is the path of its report page, which may be missing."""
    accuracy = summary["accuracy"]["global"]
    ended = {
        "rounds": "all rounds done",
        "accuracy": "accuracy reached",
        "target": "target reached",
        "after": "time is up",
        "bytes": "the devices' bytes are used up",
        "programs": "programs ended",
        None: "not yet",
    }
    sizes = []
    for link_class, size in summary["bytes"].items():
        kinds = " and ".join(summary["link_kinds"][link_class])
        sizes.append(f"{link_class} ({kinds}) {text.size(size)}")
    links = summary["links"]
    if sizes:
        links = f"{links}: {', '.join(sizes)}"
    verdict = summary["verdict"]
    rows: list[tuple[Cell, Cell]] = []
    rows.append(("verdict", Text(verdict, style=f"bold {STYLES[verdict]}")))
    for check in summary["checks"]:
        style = STYLES[check["verdict"]]
        mark = Text.assemble("  ", (check["verdict"], style))
        rows.append((mark, f"{check['name']}: {check['detail']}"))
    rounds = text.count(summary["rounds"], "round")
    trained = summary["training_seconds"]
    if trained is not None:
        took = f"{rounds} in {trained:.1f} s of training"
    else:
        took = f"no training in {summary['seconds']:.1f} s"
    reason = ended.get(summary["ended"], summary["ended"])
    rows.append(("ended", f"{reason}, {took}"))
    if accuracy is not None:
        rows.append(("accuracy", f"{text.percent(accuracy)}{_covered(summary)}"))
    others = other_metrics(summary)
    for name, value in others.items():
        if not name.startswith(text.RECALL):
            rows.append((name, text.metric(name, value)))
    rows += _recalls(others)
    rows.append(("links", links))
    real_links = summary.get("real_links") or {"before": ()}
    rows += [("real", sentence) for sentence in real_sentences(real_links)]
    clients = summary.get("population")
    if clients is not None:
        share = text.percent(clients["share_seen"])
        rows.append(("clients", f"{clients['seen']:,} of {clients['clients']:,} ({share}) answered in time"))
    started = [fault for fault in summary["faults"] if fault["at"] is not None]
    manual = sum("by" in fault for fault in started)
    number = str(len(started))
    if manual:
        number += f", {manual} of them manual"
    rows.append(("faults", number))
    for program in summary.get("ended_programs") or ():
        how = text.how_ended(program["code"])
        rows.append(("program", f"{program['program']} ended at {program['at']:.1f} s ({how})"))
    for device, nodes in (summary.get("accelerators") or {}).items():
        rows.append(("accelerator", f"{device}: {text.some(nodes)}"))
    for host in summary.get("hosts", ()):
        if host["energy"] is not None:
            energy = energy_in_words(host["energy"])
            if host["host"]:
                energy += f", host {host['host']}"
            rows.append(("energy", energy))
        rows += [("host", sentence) for sentence in sentences(host)]
    rows.append(("report", str(report) if report.exists() else "not written"))
    write_entries(console, rows)


def _covered(summary: Mapping[str, Any]) -> str:
    """What the mean accuracy covers, in brackets, unless it covers all."""
    means = summary.get("mean_over")
    if means is None:
        return ""
    covered = str(Coverage(means["clients"], means["of"]))
    return f" ({covered})" if covered else ""
