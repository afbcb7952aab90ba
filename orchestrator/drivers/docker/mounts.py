"""The files of the host that a node's container gets: six, each at a fixed place below `PLACE`.

The container can only read the assignment, the control plane's socket, the prepared data, the shards and the plug-ins.
It can write to a folder for its checkpoints. This module gives access to the user that the container runs as.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from docker.types import Mount

from node.assignment import PLACE
from orchestrator.drivers.user import User
from orchestrator.record.directory import RunDirectory


def lay_out(
    directory: RunDirectory,
    node: str,
    assignment: Path,
    data: Path,
    user: User,
    group: int,
) -> list[Mount]:
    """Give ``user`` access to the files of a node's container. ``assignment`` is as in `seen_from_inside`. ``group``:
    of all nodes, since images may have different users. HostError if ``user`` cannot read the prepared data, which do
    not belong to the run."""
    checkpoints = directory.checkpoints_of(node)
    checkpoints.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        for path in (assignment, checkpoints):
            os.chown(path, user.uid, user.gid)
        os.chown(directory.socket, -1, group)
        directory.socket.chmod(0o660)
        directory.control.chmod(0o711)
        directory.shards.chmod(0o644)
    user.refuse_hidden(data)
    places = {
        "assignment.json": assignment,
        "control": directory.control,
        "shards.npz": directory.shards,
        "data": data,
        "plugins": directory.plugins,
        "checkpoints": checkpoints,
    }
    mounts = []
    for name, path in places.items():
        mount = Mount(
            target=str(PLACE / name),
            source=str(path),
            type="bind",
            read_only=name != "checkpoints",
        )
        mounts.append(mount)
    return mounts


def sees(pid: int, inside: Path, here: Path) -> bool:
    """Whether a process sees the file ``here`` of this host at the place ``inside``. An Engine with another file system
    refuses what it does not find, or makes an empty folder of that name. True if this user cannot see it."""
    process = Path(f"/proc/{pid}")
    try:
        seen = Path(f"{process}/root{inside}").stat()
        return os.path.samestat(seen, here.stat())
    except FileNotFoundError:
        return not here.exists() or not process.exists()
    except OSError:
        return True


def remove_rights(folder: Path) -> None:
    """Remove what the programs of ended containers must not leave in their ``folder``: set-user-ID and set-group-ID of
    files, and the right of others to write to it. As an ordinary user, only for files of this user."""
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        sets_id = mode & (stat.S_ISUID | stat.S_ISGID)
        if stat.S_ISREG(mode) and sets_id:
            harmless = stat.S_IMODE(mode) & 0o1777
            with contextlib.suppress(PermissionError):
                path.chmod(harmless)
    with contextlib.suppress(FileNotFoundError):  # a node that never ran has none
        folder.chmod(0o755)
