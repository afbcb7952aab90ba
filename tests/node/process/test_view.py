"""What is shown of the host, and where."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from node.errors import ConfinementError
from node.process.view import FileView, bindings, python, refuse_unreadable


def test_python_is_its_installation_and_what_is_loaded_from_elsewhere() -> None:
    modules = {
        "node": SimpleNamespace(__path__=["/project/node"], __file__="/project/node/__init__.py"),
        "node.process.view": SimpleNamespace(__file__="/project/node/view.py"),
        "single": SimpleNamespace(__file__="/elsewhere/single.py"),
        "sys": SimpleNamespace(),
    }
    # The folder that Python was started in, a home directory perhaps, is on the path and not among them.
    assert python(["/home/me", "/home/me/.local/lib/site-packages"], modules) == {
        sys.prefix,
        sys.base_prefix,
        "/home/me/.local/lib/site-packages",
        "/project/node",
        "/elsewhere/single.py",
    }


def test_everything_is_shown_where_it_is_known_and_where_it_is(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "lib").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(real)
    assert bindings([str(link), str(real / "lib"), str(tmp_path / "absent"), "relative", "/"]) == {
        str(link): str(real),
        str(real): str(real),  # its lib comes with it
    }
    assert bindings([str(link / "lib")]) == {str(link / "lib"): str(real / "lib"), str(real / "lib"): str(real / "lib")}


def test_python_that_only_its_owner_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.touch(mode=0o600)
    modules = {"module": SimpleNamespace(__file__=str(file)), "sys": SimpleNamespace()}
    with pytest.raises(ConfinementError, match=rf"not read {file}: `chmod --recursive a\+rX`"):
        refuse_unreadable(modules)
    file.chmod(0o644)
    refuse_unreadable(modules)


def test_nothing_is_made_for_nodes_that_could_not_read_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "module.py"
    file.touch(mode=0o600)
    monkeypatch.setitem(sys.modules, "module", SimpleNamespace(__file__=str(file)))
    with pytest.raises(ConfinementError):
        FileView(str(tmp_path), strangers=True).make()


INSIDE = """
import os, sys
from node.process.view import FileView

with FileView(sys.argv[1]).inside():
    print(os.listdir("/"))
print(os.path.isdir(sys.argv[1]), os.getcwd())
"""


@pytest.mark.netns
def test_a_process_looks_into_the_view_and_returns(tmp_path: Path) -> None:
    (tmp_path / "shown").mkdir()
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", INSIDE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if "unshare: " in done.stderr:
        pytest.skip("this user may not make user namespaces here")
    assert done.stdout.splitlines() == ["['shown']", "True /"], done.stderr
