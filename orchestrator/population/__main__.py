"""Print a trace of when devices are available, from the model `clients.availability: day-and-night`, as CSV.

python -m orchestrator.population day-and-night --devices 300 --days 7 --seed 1 > stays.csv
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from orchestrator.population.availability import DAY, DayAndNight, Flags
from orchestrator.population.table import HEADER

STEP = 300.0  # s between two looks at the model


def stays(
    model: DayAndNight,
    seconds: float,
) -> list[list[tuple[float, float]]]:
    """When each client is available, to `STEP` seconds."""
    moments = np.arange(0, seconds, STEP)
    looks = np.array([model.there(t) for t in moments])  # (moments, clients)
    of_clients = looks.T
    return [_stays_of(available) for available in of_clients]


def _stays_of(available: Flags) -> list[tuple[float, float]]:
    """The stays of one client, from whether it is available at each look."""
    from_away_to_away = np.concatenate([[0], available, [0]])
    changes = np.flatnonzero(np.diff(from_away_to_away)) * STEP
    begins = changes[::2].tolist()
    ends = changes[1::2].tolist()
    return list(zip(begins, ends, strict=True))


def main(words: list[str] | None = None) -> int:
    options = _parser().parse_args(words)
    command = f"--devices {options.devices} --days {options.days} --seed {options.seed}"
    if options.only_available:
        command += " --only-available"
    period = options.days * DAY
    model = DayAndNight(options.devices, options.seed)
    devices = stays(model, period)
    print(f"# made by: python -m orchestrator.population day-and-night {command}")
    away = devices.count([])
    if away and not options.only_available:
        note = f"{away} of {len(devices)} devices are never available"
        print(f"# {note}")
        print(f"note: {note}", file=sys.stderr)
    print(",".join(HEADER))
    for device, times in enumerate(devices):
        for begin, end in times:
            print(f"{device},{begin:.15g},{end:.15g},{period:.15g}")
        if not times and not options.only_available:
            print(f"{device},,,{period:.15g}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    model = kinds.add_parser("day-and-night")
    model.add_argument("--devices", type=int, default=300)
    model.add_argument("--days", type=int, default=7)
    model.add_argument("--seed", type=int, default=1)
    model.add_argument("--only-available", action="store_true", help="leave out devices that are never available")
    return parser


if __name__ == "__main__":
    sys.exit(main())
