"""The folder of a scenario, as an archive that goes to the hosts on which the scenario's programs run.

What no program reads, and is often large, stays: directories of runs, `__pycache__`, and folders whose names begin
with a dot, such as `.git`.
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
    """PlanError if the folder has more than a host is brought, or cannot be read."""
    size = 0
    try:
        for path in entries(folder):
            found = path.lstat()
            size += _BLOCK + (found.st_size if stat.S_ISREG(found.st_mode) else 0)
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
        folders[:] = sorted(
            each for each in folders if each[0] != "." and each != "__pycache__" and not is_run(Path(place, each))
        )
        yield from (Path(place, each) for each in (*folders, *sorted(files)))


def _for_all(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without its owner; None if it is neither a file, nor a folder, nor a link."""
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        return None
    if member.isdir() or member.mode & 0o100:
        member.mode = 0o755
    else:
        member.mode = 0o644
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _raise(error: OSError) -> None:
    raise error


def _unreadable(error: OSError) -> str:
    file = error.filename or "a file that changes"
    why = error.strerror or error
    return f"{_BROUGHT}, and {file} cannot be read ({why})"
