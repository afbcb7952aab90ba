"""The program of a guest: it runs pytest with its arguments, and switches the guest off."""

from __future__ import annotations

import ctypes
import os
import sys
import traceback

import pytest

from orchestrator.guest.__main__ import POWER_OFF

OPTIONS = ("-p", "no:cacheprovider", "--color=no", "--basetemp=/run/pytest")


def main() -> None:
    sys.dont_write_bytecode = True  # it would be lost with the guest
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    pytest.main([*OPTIONS, *sys.argv[1:]])


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.sync()
        ctypes.CDLL(None).reboot(POWER_OFF)
