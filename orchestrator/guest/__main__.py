"""The only program of a guest: it executes the run in the folder of its argument, and switches the guest off."""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import traceback
from pathlib import Path

from orchestrator.host.commands import extend_path

POWER_OFF = 0x4321FEDC  # reboot(2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ended", default="")
    parser.add_argument("--calibrate", action="store_true")
    arguments = parser.parse_args()
    extend_path()
    from orchestrator.guest.execution import execute_here

    execute_here(arguments.directory, arguments.ended, calibrate=arguments.calibrate)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os.sync()
        ctypes.CDLL(None).reboot(POWER_OFF)
