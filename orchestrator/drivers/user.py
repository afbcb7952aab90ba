"""The users that nodes run as."""

from __future__ import annotations

import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import HostError

_FIRST = 0x70000000
_NUMBER = 0x0FFFFFFE
"""The first id and the number of ids of a range that systemd leaves unused (systemd.io/UIDS-GIDS), and distributions do
not assign."""


@dataclass(frozen=True)
class User:
    """The user and group that a node's process runs as."""

    uid: int
    gid: int

    def refuse_hidden(self, data: Path) -> None:
        """HostError if a folder of prepared data, or a file in it, cannot be read by this user, by its owner, group and
        mode alone. A folder must also be searchable."""
        for path in (data, *data.iterdir()):
            state = path.stat()
            if state.st_uid == self.uid:
                shift = 6
            elif state.st_gid == self.gid:
                shift = 3
            else:
                shift = 0
            wanted = 0o5 if stat.S_ISDIR(state.st_mode) else 0o4
            granted = state.st_mode >> shift
            if granted & wanted != wanted:
                raise HostError(
                    f"nodes run as user {self.uid}, who may not read {path}: `chmod --recursive a+rX {data}`"
                )


def own_user(run: str, node: str) -> User:
    """The user of one node, in the group of its run. A continued run gets the same ids, so a node keeps its files."""
    uid = _id(run, node)
    gid = _id(run)
    return User(uid, gid)


def mapped(uid_map: str) -> bool:
    """Whether a user namespace has the ids of `own_user`, by its /proc/self/uid_map (user_namespaces(7))."""
    last = _FIRST + _NUMBER
    for line in uid_map.splitlines():
        first_inside, _, length = [int(field) for field in line.split()]
        if first_inside <= _FIRST and first_inside + length >= last:
            return True
    return False


def _id(*names: str) -> int:
    text = "\0".join(names)
    digest = hashlib.sha256(text.encode()).digest()
    number = int.from_bytes(digest[:8], "big")
    return _FIRST + number % _NUMBER
