"""What a host lacks gets one message with its remedy, the right exit code, and leaves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.harness import SMALL, json_of, up, write

pytestmark = pytest.mark.e2e

# A user without rights in a namespace in which no further one may be made.
WITHOUT_NAMESPACES = (
    *("unshare", "--user", "--map-root-user", "--", "sh", "-c"),
    'echo 1 > /proc/sys/user/max_user_namespaces; exec unshare --user --map-user=1000 --map-group=1000 -- "$@"',
    "sh",
)


def test_validate_and_plan_touch_nothing(tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    before = set(tmp_path.rglob("*"))
    for verb in ("validate", "plan"):
        json_of(verb, tmp_path / "scenario.yaml")
    assert set(tmp_path.rglob("*")) == before


def test_no_user_namespaces(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    result = up(tmp_path, SMALL, prefix=WITHOUT_NAMESPACES)
    assert result.code == 1
    assert result.errors.count("error: ") == 1
    assert "sysctl user.max_user_namespaces=" in result.errors
    assert "Traceback" not in result.errors
    assert not (tmp_path / "runs").exists()


def test_a_socket_that_cannot_be_bound(tmp_path: Path) -> None:
    """The control socket is the only address a run takes on the host, and it lies in the run's own directory."""
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    result = up(deep, SMALL.replace("rounds: 3", "rounds: 1"), "--set", "probe.before=false")
    assert result.code == 0, result.errors  # longer than a socket's address may be, and it works all the same


def test_as_many_open_files_as_are_asked_for_are_enough(tmp_path: Path) -> None:
    """Too few are refused before anything is made."""
    few = up(tmp_path, SMALL, prefix=("bash", "-c", 'ulimit -n 40; exec "$@"', "bash"))
    assert few.code == 1
    assert "this shell allows 40" in few.errors
    assert not (tmp_path / "runs").exists()
    enough = few.errors.partition("`ulimit -n ")[2].partition("`")[0]
    result = up(tmp_path, SMALL, prefix=("bash", "-c", f'ulimit -n {enough}; exec "$@"', "bash"))
    assert result.summary["ended"] == "rounds", result.errors
