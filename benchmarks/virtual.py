"""What virtual time costs: the same scenarios in real time and in virtual time, in turns.

    edgebed kernel build
    python -m benchmarks.virtual [SCENARIO ...] [--repeat 3]

SCENARIO is a shipped example. Prints one JSON object: for each scenario and driver the medians of the seconds that `up`
took, of its processor time with all of its processes, and of the run's own clock; the virtual seconds for each second;
the ratios of the drivers; and whether all records of the virtual runs are equal, if there are several.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

from orchestrator.record.schema import DATABASE, TABLES

DRIVERS = ("namespaces", "virtual")
OF_HOST = ("meta", "outcome", "resources", "sensor")
"""Tables with when a run started, and with what it took from its host."""


def measured(scenario: str, driver: str, runs: Path) -> dict[str, Any]:
    """One run."""
    words = ["-m", "orchestrator", "up", scenario, "--driver", driver, "--runs", str(runs), "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    took = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{scenario} under {driver}: {done.stderr}")
    user = after.ru_utime - before.ru_utime
    system = after.ru_stime - before.ru_stime
    summary = json.loads(done.stdout)
    return {
        "took": took,
        "processor": user + system,
        "clock": summary["seconds"],
        "record": digest(runs / summary["run"]),
    }


def digest(directory: Path) -> str:
    """SHA-256 of all rows of a record that do not depend on the host."""
    sha256 = hashlib.sha256()
    with closing(sqlite3.connect(directory / DATABASE)) as connection:
        for table in TABLES:
            if table in OF_HOST:
                continue
            for row in connection.execute(f"SELECT * FROM {table}"):
                sha256.update(repr(row).encode())
    return sha256.hexdigest()


def compared(rows: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The medians of each driver, and their ratios."""
    result: dict[str, Any] = {}
    for driver, runs in rows.items():
        medians = {}
        for name in ("took", "processor", "clock"):
            medians[name] = round(median(run[name] for run in runs), 2)
        medians["clock_per_second"] = round(medians["clock"] / medians["took"], 2)
        result[driver] = medians
    real = result["namespaces"]
    virtual = result["virtual"]
    result["ratio_took"] = round(virtual["took"] / real["took"], 2)
    result["ratio_processor"] = round(virtual["processor"] / real["processor"], 2)
    records = [run["record"] for run in rows["virtual"]]
    if len(records) > 1:
        result["equal_records"] = len(set(records)) == 1
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenarios", nargs="*", default=["hello", "dropout", "mqtt"])
    parser.add_argument("--repeat", type=int, default=1)
    arguments = parser.parse_args()
    results = {}
    for scenario in arguments.scenarios:
        rows = defaultdict(list)
        for _ in range(arguments.repeat):
            for driver in DRIVERS:
                with tempfile.TemporaryDirectory() as folder:
                    run = measured(scenario, driver, Path(folder))
                rows[driver].append(run)
        results[scenario] = compared(rows)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
