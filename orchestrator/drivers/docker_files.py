"""What a node's container is given of the host: five things, each at a fixed place below /run/edgebed.

The assignment, the control plane's socket, the prepared data and the shards, which it can only read; and a folder for
its checkpoints. They are laid out here for the user whom the container runs as.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from docker.types import Mount

from node.assignment import Assignment
from orchestrator.errors import HostError
from orchestrator.host.directory import RunDirectory

INSIDE = Path("/run/edgebed")


@dataclass(frozen=True)
class User:
    """Whom a container's process runs as."""

    uid: int
    gid: int

    def may_read(self, path: Path) -> bool:
        """By the file's owner, group and mode alone; a folder must also be searchable."""
        state = path.stat()
        shift = 6 if state.st_uid == self.uid else 3 if state.st_gid == self.gid else 0
        wanted = 0o5 if stat.S_ISDIR(state.st_mode) else 0o4
        return (state.st_mode >> shift) & wanted == wanted


@dataclass(frozen=True)
class Given:
    """Files and folders of the host that one container sees."""

    assignment: Path
    control: Path
    shards: Path
    data: Path
    checkpoints: Path

    def mounts(self) -> list[Mount]:
        places = {
            "assignment.json": self.assignment,
            "control": self.control,
            "shards.npz": self.shards,
            "data": self.data,
            "checkpoints": self.checkpoints,
        }
        return [
            Mount(target=str(INSIDE / name), source=str(path), type="bind", read_only=name != "checkpoints")
            for name, path in places.items()
        ]


def seen_from_inside(assignment: Assignment) -> Assignment:
    """The assignment with the places at which a container finds what it is given."""
    return replace(
        assignment,
        control_endpoint=f"ipc://{INSIDE / 'control' / Path(assignment.control_endpoint).name}",
        data=replace(assignment.data, directory=str(INSIDE / "data"), shards=str(INSIDE / "shards.npz")),
        checkpoint_directory=str(INSIDE / "checkpoints"),
    )


def lay_out(directory: RunDirectory, assignment: Path, user: User) -> Given:
    """Write the assignment as the container will read it, and hand over to ``user`` what it has to use.

    HostError if the prepared data, which is not the run's own, cannot be read by that user.
    """
    told = Assignment.load(assignment)
    given = Given(
        assignment=assignment.with_suffix(".inside.json"),
        control=directory.control,
        shards=directory.shards,
        data=Path(told.data.directory),
        checkpoints=directory.checkpoints_of(told.node),
    )
    given.assignment.unlink(missing_ok=True)
    descriptor = os.open(given.assignment, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        file.write(seen_from_inside(told).to_json())
    given.checkpoints.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        socket = Path(told.control_endpoint.removeprefix("ipc://"))
        for path in (given.assignment, socket, given.checkpoints):
            os.chown(path, user.uid, user.gid)
        given.control.chmod(0o711)
        given.shards.chmod(0o644)
    for path in (given.data, *given.data.iterdir()):
        if not user.may_read(path):
            raise HostError(
                f"nodes run as user {user.uid}, who may not read {path}: `chmod --recursive a+rX {given.data}`"
            )
    return given
