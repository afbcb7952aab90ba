"""The folder of a scenario, as an archive that goes to the hosts on which the scenario's programs run.

What no program reads, and is often large, is left out: directories of runs, `__pycache__`, and folders with a dot at
the start of their names, such as `.git`.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

from orchestrator import text
from orchestrator.errors import HostError, PlanError
from orchestrator.record.directory import is_run

LARGEST = 100_000_000  # bytes of an archive
_BROUGHT = "the folder of the scenario is copied to each host"
_BLOCK = 512  # bytes; an archive has a header of one for each entry, and whole ones (tar(5))


def refuse_large(folder: Path) -> None:
    """PlanError if the folder has more than is copied to a host, or cannot be read."""
    size = 0
    try:
        for path in entries(folder):
            status = path.lstat()
            size += _BLOCK
            if stat.S_ISREG(status.st_mode):
                size += status.st_size
            if size > LARGEST:
                raise PlanError(
                    ("programs",),
                    f"{_BROUGHT}, and {folder} has more than {text.size(LARGEST)}: move the scenario to a folder that"
                    " has nothing but what the programs read",
                )
    except OSError as error:
        raise PlanError(("programs",), _unreadable(error)) from None


def pack(folder: Path, archive: Path) -> None:
    """Write the archive. Everybody may read what is in it. HostError if something cannot be read."""
    try:
        with tarfile.open(archive, "w") as tar:
            for path in entries(folder):
                tar.add(path, path.relative_to(folder), recursive=False, filter=_for_all)
    except OSError as error:
        raise HostError(_unreadable(error)) from None


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive of `pack`, which is trusted."""
    folder.mkdir()
    with tarfile.open(archive) as tar:
        tar.extraction_filter = lambda member, _: member
        tar.extractall(folder)


def entries(folder: Path) -> Iterator[Path]:
    """Files, links and folders; each folder before what is in it."""
    for place, folders, files in os.walk(folder, onerror=_raise):
        # os.walk enters the folders that this list keeps
        folders[:] = sorted(name for name in folders if _is_packed(place, name))
        for name in folders:
            yield Path(place, name)
        for name in sorted(files):
            yield Path(place, name)


def _is_packed(place: str, name: str) -> bool:
    """Whether a folder in ``place`` may have what programs read."""
    if name[0] == "." or name == "__pycache__":
        return False
    return not is_run(Path(place, name))


def _for_all(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without its owner; None if it is neither a file, nor a folder, nor a link."""
    is_link = member.issym() or member.islnk()
    if not (member.isfile() or member.isdir() or is_link):
        return None
    is_executable = member.mode & 0o100
    if member.isdir() or is_executable:
        member.mode = 0o755
    else:
        member.mode = 0o644
    member.uid = 0
    member.gid = 0
    member.uname = ""
    member.gname = ""
    return member


def _raise(error: OSError) -> None:
    raise error


def _unreadable(error: OSError) -> str:
    file = error.filename or "a file that changes"
    why = error.strerror or error
    return f"{_BROUGHT}, and {file} cannot be read ({why})"
