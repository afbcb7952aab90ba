"""The commands of the host that the program starts, and where they lie.

Debian keeps `ip` and `tc` in /usr/sbin. The PATH of an ordinary user's login shell leaves that folder out
(login.defs(5), ENV_PATH), although every user may run what is in it.
"""

from __future__ import annotations

import os
import shutil

from orchestrator.errors import HostError

FOR_ADMINISTRATION = ("/usr/local/sbin", "/usr/sbin", "/sbin")
PACKAGES = {"unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2", "tc": "iproute2"}
"""The commands that make and shape links, and the package of each in Debian and Ubuntu."""


def extend_path() -> None:
    """Add the folders of administration commands to the PATH of this process, and so of every process it starts."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([*folders, *(each for each in FOR_ADMINISTRATION if each not in folders)])


def absent() -> list[HostError]:
    """An error for each of these commands that this host lacks."""
    return [
        HostError(
            f"the command '{command}' is missing", f"install the package {package}", [f"apt-get install {package}"]
        )
        for command, package in PACKAGES.items()
        if shutil.which(command) is None
    ]
