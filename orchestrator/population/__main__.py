"""Make a trace of when devices are there: from a model, or from a trace of FedScale or FLASH. It is printed as CSV.

python -m orchestrator.population day-and-night --devices 300 --days 7 --seed 1 > scenarios/traces/availability.csv
python -m orchestrator.population fedscale client_behave_trace > stays.csv
python -m orchestrator.population flash state_traces.json > stays.csv
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from orchestrator.layout import print_error
from orchestrator.population.availability import DAY, DayAndNight
from orchestrator.population.importing import Devices, from_fedscale, from_flash, to_csv

LARGEST_FILE = 1 << 30  # bytes
STEP = 300.0  # s between two looks at a model


def devices_of(model: DayAndNight, seconds: float) -> Devices:
    """When each client of a model is available, to `STEP` seconds; its stays repeat after ``seconds``."""
    looks = np.array([model.there(t) for t in np.arange(0, seconds, STEP)])
    found = Devices()
    for client, there in enumerate(looks.T):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(np.int8))) * STEP
        found.add(str(client), list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)), seconds)
    return found


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    model = kinds.add_parser("day-and-night", help="the model of `clients.availability: day-and-night`")
    model.add_argument("--devices", type=int, default=300)
    model.add_argument("--days", type=int, default=7)
    model.add_argument("--seed", type=int, default=1)
    model.add_argument("--only-available", action="store_true", help="leave out devices that are never available")
    for name in ("fedscale", "flash"):
        kinds.add_parser(name).add_argument("file", type=Path)
    options = parser.parse_args(words)
    try:
        found, origin = _found(options)
        print(to_csv(found, origin), end="")
    except (OSError, ValueError) as error:
        print_error(f"{getattr(options, 'file', options.kind)}: {error}")
        return 2
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    return 0


def _found(options: argparse.Namespace) -> tuple[Devices, str]:
    """The devices, and where they come from."""
    if options.kind == "day-and-night":
        command = " ".join(f"--{name} {getattr(options, name)}" for name in ("devices", "days", "seed"))
        command += " --only-available" if options.only_available else ""
        found = devices_of(DayAndNight(options.devices, options.seed), options.days * DAY)
        if options.only_available:
            found.devices = [device for device in found.devices if device.stays]
        return found, f"made by: python -m orchestrator.population day-and-night {command}"
    if options.file.stat().st_size > LARGEST_FILE:
        raise ValueError(f"is larger than {LARGEST_FILE >> 30} GiB")
    if not options.file.is_file():
        raise ValueError("is not a regular file")
    name = options.file.name
    if options.kind == "fedscale":
        return from_fedscale(options.file.read_bytes()), f"from {name} of FedScale"
    return from_flash(options.file.read_text(encoding="utf-8-sig")), f"from {name} of FLASH"


if __name__ == "__main__":
    sys.exit(main())
