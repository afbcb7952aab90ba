"""Mounts of this process, as the kernel lists them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from node.process.namespaces import MS_NODEV, MS_NOSUID, MS_RDONLY, mounts_below

# proc(5), /proc/pid/mountinfo
MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:20 / /run/tree ro,nosuid,nodev,relatime - tmpfs edgebed rw,mode=755
31 30 254:0 /usr /run/tree/usr rw,nosuid,noatime - ext4 /dev/vda rw
32 30 254:0 / /run/tree/a\\040space rw - ext4 /dev/vda rw
33 22 0:21 / /run/treehouse rw - tmpfs none rw
"""


def test_what_is_mounted_below_a_folder_and_how() -> None:
    assert mounts_below(MOUNTINFO, "/run/tree") == [
        ("/run/tree", MS_RDONLY | MS_NOSUID | MS_NODEV | 0x200000),  # MS_RELATIME
        ("/run/tree/usr", MS_NOSUID | 0x400),  # MS_NOATIME
        ("/run/tree/a space", 0),
    ]
    assert len(mounts_below(MOUNTINFO, "/")) == 5


RESTRICTED = """
import os, pathlib, sys
from node.process import namespaces

namespaces.private_mounts()
place = pathlib.Path(sys.argv[1])
namespaces.mount("tmpfs", place, namespaces.MS_NODEV)
(place / "below").mkdir()
namespaces.mount("tmpfs", place / "below")
getattr(namespaces, sys.argv[2])(place, namespaces.MS_RDONLY | namespaces.MS_NOSUID)
for each in (place, place / "below"):
    try:
        (each / "file").touch()
    except OSError as error:
        print(error.strerror)
    print(bool(os.statvfs(each).f_flag & os.ST_NOSUID), bool(os.statvfs(each).f_flag & os.ST_NODEV))
"""


@pytest.mark.netns
@pytest.mark.parametrize("way", ["restrict", "remount"])
def test_a_tree_of_mounts_is_made_read_only(tmp_path: object, way: str) -> None:
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", RESTRICTED, str(tmp_path), way]
    done = subprocess.run(command, capture_output=True, text=True)
    if "unshare: " in done.stderr:
        pytest.skip("this user may not make user namespaces here")
    refused = "Read-only file system"
    assert done.stdout.splitlines() == [refused, "True True", refused, "True False"], done.stderr
