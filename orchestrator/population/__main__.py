"""Print a trace of when devices are available, from the model `clients.availability: day-and-night`, as CSV.

python -m orchestrator.population day-and-night --devices 300 --days 7 --seed 1 > stays.csv
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from orchestrator.population.availability import DAY, DayAndNight
from orchestrator.population.table import HEADER

STEP = 300.0  # s between two looks at the model


def stays(model: DayAndNight, seconds: float) -> list[list[tuple[float, float]]]:
    """When each client is available, to `STEP` seconds."""
    looks = np.array([model.there(t) for t in np.arange(0, seconds, STEP)])
    changes = [np.flatnonzero(np.diff(np.concatenate([[0], there, [0]]))) * STEP for there in looks.T]
    return [list(zip(each[::2].tolist(), each[1::2].tolist(), strict=True)) for each in changes]


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    model = parser.add_subparsers(dest="kind", required=True).add_parser("day-and-night")
    model.add_argument("--devices", type=int, default=300)
    model.add_argument("--days", type=int, default=7)
    model.add_argument("--seed", type=int, default=1)
    model.add_argument("--only-available", action="store_true", help="leave out devices that are never available")
    options = parser.parse_args(words)
    command = " ".join(f"--{name} {getattr(options, name)}" for name in ("devices", "days", "seed"))
    command += " --only-available" if options.only_available else ""
    period = options.days * DAY
    found = stays(DayAndNight(options.devices, options.seed), period)
    print(f"# made by: python -m orchestrator.population day-and-night {command}")
    away = found.count([])
    if away and not options.only_available:
        note = f"{away} of {len(found)} devices are never available"
        print(f"# {note}")
        print(f"note: {note}", file=sys.stderr)
    print(",".join(HEADER))
    for device, times in enumerate(found):
        for begin, end in times:
            print(f"{device},{begin:.15g},{end:.15g},{period:.15g}")
        if not times and not options.only_available:
            print(f"{device},,,{period:.15g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
