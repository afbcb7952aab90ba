"""Feed hostile input to every entry point, and report what breaks an invariant, made as small as possible.

python -m tests.campaign.hostile --inputs 5000           each entry point, the inputs of seed 1
python -m tests.campaign.hostile --only "npz" --first 7  one entry point, the inputs of seed 7
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.campaign.hostile.entries import ENTRIES
from tests.campaign.hostile.places import sandbox
from tests.campaign.hostile.search import search

LONGEST = 4000  # characters of a finding


def main() -> int:
    """Run the campaign. Returns the exit code: 1 if anything was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign.hostile", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--inputs", type=int, default=200, help="for each entry point (default: %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the seed (default: %(default)s)")
    parser.add_argument("--only", action="append", choices=sorted(ENTRIES), help="this entry point; may be repeated")
    asked = parser.parse_args()
    failed = 0
    with sandbox() as runs:
        for name in asked.only or ENTRIES:
            began = time.monotonic()
            found = search(ENTRIES[name], runs, asked.first, asked.inputs)
            failed += found is not None
            print(f"{name}: {'FAILED' if found else 'passed'}, {time.monotonic() - began:.0f} s", flush=True)
            if found is not None:
                print(told(found), flush=True)
    return 1 if failed else 0


def told(error: BaseException) -> str:
    """The error, where it was raised, and the input."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    places = traceback.format_list(traceback.extract_tb(error.__traceback__)[-4:])
    notes = "\n".join(getattr(error, "__notes__", []))
    return "".join(f"{part[:LONGEST]}\n" for part in (*places, f"{type(error).__name__}: {error}", notes))


if __name__ == "__main__":
    sys.exit(main())
