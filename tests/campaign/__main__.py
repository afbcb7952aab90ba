"""Run random scenarios, and report those that break an invariant.

    python -m tests.campaign --seeds 2000          the cases of seeds 1 to 2000
    python -m tests.campaign --first 4711 --seeds 1  one of them again
    python -m tests.campaign runs/campaign/4711.yaml a case in a file, for example a reduced one

A failing case is reported with its seed, reduced as far as possible, and written as YAML for `up`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.campaign.canaries import CANARIES
from tests.campaign.case import Case
from tests.campaign.generate import generate
from tests.campaign.search import search, smallest
from tests.campaign.trial import Hosts

EVERY = 50  # cases between two progress lines


def main() -> int:
    """Run the campaign. Returns the exit code: 1 if any case failed."""
    arguments = _arguments()
    cases = [Case.read(path) for path in arguments.cases] or [
        generate(seed) for seed in range(arguments.first, arguments.first + arguments.seeds)
    ]
    failed = refused = 0
    began = time.monotonic()
    with Hosts() as hosts:
        for number, outcome in enumerate(search(hosts, cases, arguments.planted), start=1):
            refused += outcome.refused
            if outcome.broken:
                failed += 1
                print(outcome.told(), flush=True)
                small = smallest(hosts, outcome, arguments.planted, arguments.attempts)
                arguments.found.mkdir(parents=True, exist_ok=True)
                path = arguments.found / f"{outcome.case.name}.yaml"
                path.write_text(small.written())
                print(f"made small ({path}):\n{small.written()}", flush=True)
            if number % EVERY == 0 or number == len(cases):
                print(
                    f"{number} cases, {failed} failed, {refused} refused, {time.monotonic() - began:.0f} s", flush=True
                )
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("cases", nargs="*", type=Path, help="files of cases; default: those of the seeds")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds (default: %(default)s)")
    parser.add_argument("--attempts", type=int, default=100, help="to make a case smaller (default: %(default)s)")
    parser.add_argument("--found", type=Path, default=Path("runs/campaign"), help="where failing cases are written")
    parser.add_argument("--planted", choices=sorted(CANARIES), help="a defect that is to be found")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
