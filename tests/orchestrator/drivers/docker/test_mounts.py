from __future__ import annotations

import os
import stat
from pathlib import Path

from orchestrator.drivers.docker.mounts import remove_rights, sees


def test_whether_a_process_sees_a_file_of_this_host(tmp_path: Path) -> None:
    """An Engine with another file system makes an empty folder in the place of a file that it does not find."""
    file, other = tmp_path / "assignment.json", tmp_path / "other"
    file.touch()
    other.mkdir()
    assert sees(os.getpid(), file, file)
    assert not sees(os.getpid(), other, file)
    assert not sees(os.getpid(), tmp_path / "missing", file)
    assert sees(os.getpid(), file, tmp_path / "missing")  # it is removed once the node has registered
    assert sees(2**22 + 1, file, file)  # the process has ended


def test_programs_leave_no_rights(tmp_path: Path) -> None:
    folder, outside = tmp_path / "cloud", tmp_path / "outside"
    (folder / "below").mkdir(parents=True)
    folder.chmod(0o777)
    for path, mode in ((folder / "below" / "tool", 0o6755), (folder / "result", 0o640), (outside, 0o4755)):
        path.touch()
        path.chmod(mode)
    (folder / "link").symlink_to(outside)
    (folder / "up").symlink_to(tmp_path)
    remove_rights(folder)
    remove_rights(tmp_path / "never ran")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "below/tool", folder / "result", outside)]
    assert modes == [0o755, 0o755, 0o640, 0o4755]
