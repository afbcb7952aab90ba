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
            if (state.st_mode >> shift) & wanted != wanted:
                raise HostError(
                    f"nodes run as user {self.uid}, who may not read {path}: `chmod --recursive a+rX {data}`"
                )


def own_user(run: str, node: str) -> User:
    """The user of one node, in the group of its run. A continued run gets the same ids, so a node keeps its files."""
    return User(_id(run, node), _id(run))


def mapped(uid_map: str) -> bool:
    """Whether a user namespace has the ids of `own_user`, by its /proc/self/uid_map (user_namespaces(7))."""
    ranges = [tuple(map(int, line.split())) for line in uid_map.splitlines()]
    return any(inside <= _FIRST and inside + length >= _FIRST + _NUMBER for inside, _, length in ranges)


def _id(*names: str) -> int:
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    return _FIRST + int.from_bytes(digest[:8], "big") % _NUMBER
