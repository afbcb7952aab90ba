from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from orchestrator.errors import RunError
from orchestrator.record.directory import RunDirectory, find_run, known_runs, write_whole


def make(runs: Path, name: str) -> RunDirectory:
    directory = RunDirectory.create(runs, name)
    (directory.path / "run.db").touch()
    (directory.path / "scenario.yaml").touch()
    return directory


def test_a_fresh_directory_hides_keys_and_socket_from_others(tmp_path: Path) -> None:
    directory = make(tmp_path, "hello")
    assert directory.run.startswith("hello-")
    assert directory.nodes.stat().st_mode & 0o777 == 0o700
    assert directory.control.stat().st_mode & 0o777 == 0o700


def test_two_runs_in_one_second_have_two_directories(tmp_path: Path) -> None:
    assert make(tmp_path, "hello").path != make(tmp_path, "hello").path


def test_the_latest_run_is_the_last_one_also_after_a_change_of_the_time_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kathmandu is 5 h 45 min ahead of UTC, Honolulu 10 h behind; a change to winter time moves the clock too."""
    now, made, utc = 1_793_235_000.0, list[RunDirectory](), time.gmtime
    monkeypatch.setattr("time.gmtime", lambda: utc(now + len(made)))
    try:
        for zone in ("Asia/Kathmandu", "UTC", "Pacific/Honolulu"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            made.append(make(tmp_path, "hello"))
        assert [each.run for each in known_runs(tmp_path)] == [each.run for each in made]
        assert find_run(None, tmp_path).run == made[-1].run
        assert [each.began - now for each in made] == [0, 1, 2]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_digits_that_another_run_has_are_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.strftime", lambda *_: "20260101-000000")
    drawn = iter(["aaaa", "aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr("secrets.token_hex", lambda size: next(drawn))
    assert [make(tmp_path, "hello").run[-4:] for _ in range(2)] == ["aaaa", "bbbb"]


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path, folder = tmp_path / "report.html", tmp_path / "folder"
    write_whole(path, "first")
    write_whole(path, "a\ud800z")
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(folder, "second")
    assert (path.read_text(), sorted(tmp_path.iterdir())) == ("a?z", [folder, path])


def test_the_holder_is_known_while_it_lives(tmp_path: Path) -> None:
    directory = make(tmp_path, "hello")
    assert directory.holder() is None
    with directory.held():
        assert directory.holder() == os.getpid()
        with pytest.raises(RunError, match=f"still running .process {os.getpid()}"), directory.held():
            pass
    assert directory.holder() is None


def test_all_who_wait_hold_it_in_turn(tmp_path: Path) -> None:
    directory, waited, turns = make(tmp_path, "hello"), threading.Barrier(3), list[str]()

    def wait_and_hold() -> None:
        arrived = False

        def wait(holder: int) -> None:
            nonlocal arrived
            assert holder == os.getpid()
            if not arrived:
                arrived = True
                waited.wait(timeout=10)

        with directory.held(wait):
            turns.append("start")
            time.sleep(0.01)
            turns.append("end")

    waiting = [threading.Thread(target=wait_and_hold) for _ in range(2)]
    with directory.held():
        for each in waiting:
            each.start()
        waited.wait(timeout=10)
    for each in waiting:
        each.join()
    assert turns == ["start", "end"] * 2


def test_looking_who_holds_it_is_in_nobodys_way(tmp_path: Path) -> None:
    """Who looks takes the lock for an instant: here for longer than anybody would."""
    directory = make(tmp_path, "hello")
    with directory.held():
        pass
    looking = os.open(directory.lock, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.05, os.close, [looking]).start()
    with directory.held():
        assert directory.holder() == os.getpid()


def test_who_has_just_started_to_hold_it_is_waited_for(tmp_path: Path) -> None:
    directory = make(tmp_path, "hello")
    descriptor = os.open(directory.lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    threading.Timer(0.05, os.write, [descriptor, b"4711\n"]).start()
    assert directory.holder() == 4711
    os.close(descriptor)


def test_find_by_name_by_path_and_the_latest(tmp_path: Path) -> None:
    first, second = make(tmp_path, "b"), make(tmp_path, "a")
    os.utime(second.path / "scenario.yaml")
    assert find_run(first.run, tmp_path) == first
    assert find_run(str(first.path), tmp_path) == first
    assert known_runs(tmp_path) == [first, second]
    assert find_run(None, tmp_path) == second


def test_the_latest_is_the_one_that_started_last_whatever_was_written_since(tmp_path: Path) -> None:
    for run in ("b-20260101-120000-ffff", "a-20260102-080000-0000", "renamed"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "run.db").touch()
    (tmp_path / "b-20260101-120000-ffff" / "report.html").touch()
    assert [each.run for each in known_runs(tmp_path)] == [
        *("renamed", "b-20260101-120000-ffff", "a-20260102-080000-0000")
    ]


def test_an_unknown_run_is_an_error_that_names_the_known_ones(tmp_path: Path) -> None:
    directory = make(tmp_path, "hello")
    with pytest.raises(RunError, match=directory.run):
        find_run("nothing", tmp_path)
    with pytest.raises(RunError, match="start one with `up SCENARIO`"):
        find_run(None, tmp_path / "empty")
    for name in ("x" * 300, "a\0b"):  # no file can have such a name
        with pytest.raises(RunError, match="there is no run"):
            find_run(name, tmp_path)
    with pytest.raises(RunError, match=r"read \(File name too.*--runs"):
        known_runs(tmp_path / ("x" * 300))


def test_a_folder_that_cannot_be_made_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="choose --runs"):
        RunDirectory.create(tmp_path / "file", "hello")


def test_a_lock_that_a_full_disk_refuses_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make(tmp_path, "hello")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with (
        pytest.raises(RunError, match=r"lock.*written \(No space left"),
        directory.held(),
    ):
        pass
    monkeypatch.undo()
    assert directory.holder() is None
    with directory.held():
        assert directory.holder() == os.getpid()


def test_a_file_system_without_locks_is_an_error_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    error = r"cannot lock files \(Function.*--runs"
    with pytest.raises(RunError, match=error), make(tmp_path, "hello").held():
        pass


def test_a_lock_that_is_a_link_to_that_of_another_run_is_not_followed(tmp_path: Path) -> None:
    other, mine = make(tmp_path, "other"), make(tmp_path, "mine")
    with other.held():
        mine.lock.symlink_to(other.lock)
        assert mine.holder() is None
        with pytest.raises(RunError, match="lock cannot be written"), mine.held():
            pass
