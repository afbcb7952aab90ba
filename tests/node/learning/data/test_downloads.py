from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from node.catalogue.datasets import DATASETS
from node.learning.data import downloads
from node.learning.data.downloads import DOWNLOADS, Download, download
from node.learning.data.formats import idx_paths


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def mirror(folder: Path, handler: type[Quiet] = Quiet) -> Iterator[str]:
    """The address of a folder that is served while it lasts."""
    folder.mkdir(exist_ok=True)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def published(*mirrors: str, **files: bytes) -> Download:
    return Download(mirrors, {name: hashlib.md5(content).hexdigest() for name, content in files.items()})


def test_nothing_to_download_for_other_names(tmp_path: Path) -> None:
    assert download("har", tmp_path) is None


def test_the_published_files_are_those_that_the_readers_take() -> None:
    assert DOWNLOADS.keys() <= DATASETS.keys()
    for name, each in DOWNLOADS.items():
        assert all(len(md5) == 32 for md5 in each.files.values())
        assert all(place.endswith("/") for place in each.mirrors)
        assert name in ("cifar10", "cifar100") or len(each.files) == 4
    assert list(DOWNLOADS["cifar10"].files) == ["cifar-10-binary.tar.gz"]
    assert list(DOWNLOADS["cifar100"].files) == ["cifar-100-binary.tar.gz"]


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_reader_finds_the_files(name: str, tmp_path: Path) -> None:
    for file in DOWNLOADS[name].files:
        (tmp_path / file).touch()
    assert idx_paths(tmp_path) is not None


def test_the_files_come_from_the_first_mirror_that_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "a").write_bytes(b"one")
    (tmp_path / "good" / "b").write_bytes(b"two")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a").write_bytes(b"other")
    with mirror(tmp_path / "bad") as bad, mirror(tmp_path / "good") as good:
        monkeypatch.setitem(DOWNLOADS, "mine", published(bad, good, a=b"one", b=b"two"))
        assert download("mine", tmp_path / "cache") == tmp_path / "cache" / "mine"
    files = {path.name: path.read_bytes() for path in (tmp_path / "cache" / "mine").iterdir()}
    assert files == {"a": b"one", "b": b"two"}
    monkeypatch.setattr(downloads, "_from_any", None)  # what is complete is not fetched again
    download("mine", tmp_path / "cache")


def test_two_runs_may_fetch_a_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sends its request before the other has its answer."""
    both = threading.Barrier(2, timeout=5)

    class Slow(Quiet):
        def do_GET(self) -> None:
            both.wait()
            super().do_GET()

    (tmp_path / "a").write_bytes(b"x" * 200_000)
    with mirror(tmp_path, Slow) as place, ThreadPoolExecutor(2) as pool:
        monkeypatch.setitem(DOWNLOADS, "mine", published(place, a=b"x" * 200_000))
        files = list(pool.map(lambda _: download("mine", tmp_path / "cache"), range(2)))
    assert files == [tmp_path / "cache" / "a"] * 2
    assert (tmp_path / "cache" / "a").read_bytes() == b"x" * 200_000
    assert list((tmp_path / "cache").iterdir()) == files[:1]


def test_one_file_stands_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "a").write_bytes(b"one")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "a").write_bytes(b"half")
    with mirror(tmp_path / "good") as good:
        monkeypatch.setitem(DOWNLOADS, "mine", published(good, a=b"one"))
        assert download("mine", tmp_path / "cache") == tmp_path / "cache" / "a"
    assert (tmp_path / "cache" / "a").read_bytes() == b"one"


def test_a_file_with_another_hash_is_refused_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a").write_bytes(b"other")
    with mirror(tmp_path / "bad") as bad:
        monkeypatch.setitem(DOWNLOADS, "mine", published(bad, a=b"one"))
        with pytest.raises(OSError, match=rf"{bad}a: its 5 bytes differ.*published"):
            download("mine", tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_server_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mirror(tmp_path) as gone:
        pass
    monkeypatch.setitem(DOWNLOADS, "mine", published(gone, a=b"one"))
    with pytest.raises(OSError, match=rf"{gone}a: .*Connection refused"):
        download("mine", tmp_path / "cache")


def test_a_long_download_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "a").write_bytes(b"x" * 200_000)
    monkeypatch.setattr(downloads, "STEP", -1.0)
    with mirror(tmp_path / "good") as good, caplog.at_level("INFO"):
        monkeypatch.setitem(DOWNLOADS, "mine", published(good, a=b"x" * 200_000))
        download("mine", tmp_path / "cache")
    assert f"downloading {good}a: 0.2 of 0.2 MB" in caplog.messages
