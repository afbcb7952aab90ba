"""The host's commands that the program runs, and their folders.

Debian keeps `ip` and `tc` in /usr/sbin. The PATH of an ordinary user's login shell does not contain that folder
(login.defs(5), ENV_PATH), although every user may run its commands.
"""

from __future__ import annotations

import os
import shutil

from orchestrator.errors import HostError

FOR_ADMINISTRATION = ("/usr/local/sbin", "/usr/sbin", "/sbin")
PACKAGES = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
}
"""The commands that make and shape links, and the package of each in Debian and Ubuntu."""


def extend_path() -> None:
    """Add the folders of administration commands to the PATH of this process. Every process it starts inherits it."""
    path = os.environ.get("PATH", os.defpath)
    folders = path.split(os.pathsep)
    missing = [folder for folder in FOR_ADMINISTRATION if folder not in folders]
    os.environ["PATH"] = os.pathsep.join([*folders, *missing])


def absent() -> list[HostError]:
    """An error for each command of `PACKAGES` that this host lacks."""
    errors = []
    for command, package in PACKAGES.items():
        if shutil.which(command) is not None:
            continue
        what = f"the command '{command}' is missing"
        errors.append(HostError(what, f"install the package {package}", [f"apt-get install {package}"]))
    return errors
