"""Whether this user may make namespaces on this host, found by trial, and the way into the namespaces of a process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import HostError
from orchestrator.host.kernel.small_files import text_of

KINDS = ("--net", "--mount", "--pid", "--uts", "--ipc", "--fork")  # the namespaces of a node
SWITCHES = {
    "kernel.unprivileged_userns_clone": "0",
    "kernel.apparmor_restrict_unprivileged_userns": "1",
}
"""Settings of Debian and Ubuntu, with the value that keeps ordinary users from making namespaces."""
LIMITS = tuple(f"user.max_{kind}_namespaces" for kind in ("user", "net", "mnt", "pid", "uts", "ipc"))
ENOUGH = 65536
TIMEOUT = 20.0  # s


def entry(
    target: int,
    kinds: Sequence[str],
    owner: int | None = None,
) -> list[str]:
    """The argv prefix that runs a command in namespaces of the process ``target``. ``kinds``: options of nsenter(1).
    ``owner``: a process in the user namespace in which they were made; None as root. Another user has rights over them
    only there, not in the user namespace of ``target`` itself, which may be a further one (user_namespaces(7))."""
    user = []
    if owner is not None:
        user = [f"--user=/proc/{owner}/ns/user", "--preserve-credentials"]
    return ["nsenter", "--target", str(target), *user, *kinds, "--"]


def refusal() -> HostError | None:
    """None if this user can make a node's namespaces, otherwise the reason and the remedy."""
    root = os.geteuid() == 0
    user = [] if root else ["--user", "--map-root-user"]
    command = ["unshare", *user, *KINDS, "--", "true"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    if done.returncode == 0:
        return None
    reason = done.stderr.strip()
    return refused(reason, root=root)


def refused(
    reason: str,
    *,
    root: bool,
    settings: Path = Path("/proc/sys"),
) -> HostError:
    """The error for the message of `unshare`, with the remedy that fits this host's ``settings`` (sysctl(8))."""
    if "No space left on device" in reason:  # a limit is reached, see user_namespaces(7)
        exhausted = [name for name in LIMITS if _value(settings, name) == "0"]
        reasons = ", ".join(exhausted) or reason
        commands = [f"sysctl {name}={ENOUGH}" for name in exhausted or LIMITS[:2]]
        what = f"this host allows no more namespaces ({reasons})"
        return HostError(what, "raise the limit as root", commands)
    if root:
        return HostError(
            f"root may not make namespaces here ({reason}), as in a container without that right",
            "start the container with the option --privileged, or use `--driver sim`",
        )
    switches = []
    commands = []
    for name, forbidding in SWITCHES.items():
        if _value(settings, name) == forbidding:
            switches.append(name)
            allowing = 1 - int(forbidding)
            commands.append(f"sysctl {name}={allowing}")
    if switches:
        what = f"ordinary users may not make namespaces on this host ({', '.join(switches)})"
        return HostError(what, "allow it as root, or run as root", commands)
    return HostError(f"this user may not make namespaces ({reason})", "run as root, or use `--driver sim`")


def _value(settings: Path, name: str) -> str | None:
    path = name.replace(".", "/")
    return text_of(settings / path)
