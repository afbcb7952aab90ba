"""Downloads of data sets: from their published places, checked against their published hashes."""

from __future__ import annotations

import hashlib
import http.client
import logging
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SILENCE = 30.0  # s that a server may be silent
STEP = 5.0  # s between two messages
CHUNK = 1 << 16  # bytes
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Download:
    """``mirrors``: the folders that have the files, in the order to try. ``files``: the MD5 of each by its name."""

    mirrors: tuple[str, ...]
    files: Mapping[str, str]


DOWNLOADS: dict[str, Download] = {
    # The hashes of MNIST and Fashion-MNIST are those of torchvision, those of CIFAR are from its page.
    "mnist": Download(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion-mnist": Download(
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    "cifar10": Download(
        ("https://www.cs.toronto.edu/~kriz/",), {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"}
    ),
    "cifar100": Download(
        ("https://www.cs.toronto.edu/~kriz/",), {"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"}
    ),
}


def download(name: str, folder: Path) -> Path | None:
    """Download data set `name` into `folder`. Returns its file, or the folder of its files; None if it has no download.

    Files that are complete already are kept. Raises OSError if no mirror has a file with the published hash.
    """
    published = DOWNLOADS.get(name)
    if published is None:
        return None
    several = len(published.files) > 1
    if several:
        place = folder / name
    else:
        place = folder
    place.mkdir(parents=True, exist_ok=True)
    for file, md5 in published.files.items():
        path = place / file
        if not _is(path, md5):
            _from_any(published.mirrors, path, md5)
    if several:
        return place
    return path


def _is(path: Path, md5: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, _md5).hexdigest() == md5


def _from_any(
    mirrors: tuple[str, ...],
    path: Path,
    md5: str,
) -> None:
    """Fetch a file from the first mirror that has it."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".part-") as own:  # others may fetch the file, too
        part = Path(own, path.name)
        for mirror in mirrors:
            url = mirror + path.name
            try:
                return _fetch(url, part, path, md5)
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", None) or error
                failed = OSError(f"{url}: {reason}")
        raise failed


def _fetch(
    url: str,
    part: Path,
    path: Path,
    md5: str,
) -> None:
    """Fetch a file to ``part``, check it, and then give it its name, so that no process sees half a file."""
    headers = {"User-Agent": "edgebed"}
    request = urllib.request.Request(url, headers=headers)
    digest = _md5()
    received = 0
    shown = time.monotonic()
    connected = urllib.request.urlopen(request, timeout=SILENCE)
    with connected as response, part.open("wb") as file:
        size = int(response.headers.get("Content-Length") or 0)
        if size:
            of_size = f" of {size / 1e6:.1f}"
        else:
            of_size = ""
        while chunk := response.read(CHUNK):
            file.write(chunk)
            digest.update(chunk)
            received += len(chunk)
            if time.monotonic() > shown + STEP:
                shown = time.monotonic()
                log.info("downloading %s: %.1f%s MB", url, received / 1e6, of_size)
    if digest.hexdigest() != md5:
        raise OSError(f"its {received:,} bytes differ from the published ones, with MD5 {md5}")
    part.replace(path)


def _md5() -> hashlib._Hash:
    return hashlib.md5(usedforsecurity=False)
