from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PLACED = """
import sys
from pathlib import Path
from node.process import namespaces
from node.process.holder import make_place

folder = Path(sys.argv[1])
namespaces.unshare(namespaces.CLONE_NEWNS)
namespaces.private_mounts()
make_place(folder / "hosts")
namespaces.bind(folder / "given", folder / "hosts")
print((folder / "hosts").read_text())
print((folder / "passwd").read_text(), (folder / "ssl" / "cert").read_text(), (folder / "link").readlink())
"""


@pytest.mark.netns
@pytest.mark.parametrize("before", ["nothing", "a link to nowhere", "a file"])
def test_a_file_has_a_place_although_the_host_lacks_it(tmp_path: Path, before: str) -> None:
    (tmp_path / "ssl").mkdir()
    for name in ("passwd", "ssl/cert", "given"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("../away")
    if before == "a link to nowhere":
        (tmp_path / "hosts").symlink_to("nowhere")
    if before == "a file":
        (tmp_path / "hosts").write_text("the host's")
    entries = sorted(each.name for each in tmp_path.iterdir())
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", PLACED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare: " in done.stderr:
        pytest.skip(f"this host has no user namespaces: {done.stderr.strip()}")
    assert (done.stdout, done.stderr) == ("given\npasswd ssl/cert ../away\n", "")
    assert sorted(each.name for each in tmp_path.iterdir()) == entries  # on the host, nothing has changed
