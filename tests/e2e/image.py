"""An image of nodes made from the Python that runs the tests, with the code of this moment and no base image."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import IO

import docker

from node.messaging.wire import PROTOCOL
from tests.e2e.harness import ROOT

HOME = Path("/opt/edgebed")
PACKAGES = HOME / "packages"
NSENTER = Path(shutil.which("nsenter") or "/usr/bin/nsenter")  # what a helper container needs (fabric/helper.py)
LEFT_OUT = {"test", "tests", "include", "idlelib", "site-packages", "dist-packages"}

USED = """
import json, os, sys
from node.process.main import preload
preload()
maps = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
files = {module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)}
print(json.dumps([sorted(maps), sorted(files)]))
"""
"""What a node loads: shared objects and modules."""


def import_image(client: docker.DockerClient, name: str, changes: tuple[str, ...] = ()) -> None:
    """Make the image ``name``; ``changes`` are further lines of a Dockerfile."""
    repository, _, tag = name.partition(":")
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        pack(archive)
        archive.flush()
        client.api.import_image_from_file(archive.name, repository, tag or "latest", changes=[*settings(), *changes])


def import_commands(client: docker.DockerClient, name: str, commands: Sequence[str]) -> None:
    """Make the image ``name`` of commands of this host, with the libraries that they need. Its user is nobody."""
    repository, _, tag = name.partition(":")
    files = [Path(shutil.which(command) or f"/usr/sbin/{command}").resolve() for command in commands]
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        with tarfile.open(fileobj=archive, mode="w|", dereference=True) as tar:
            for command, file in zip(commands, files, strict=True):
                tar.add(file, Path("/usr/bin", command))
            for library in _needed(files):
                tar.add(library)
        archive.flush()
        client.api.import_image_from_file(archive.name, repository, tag, changes=["USER 65534:65534"])


def pack(stream: IO[bytes]) -> None:
    """Write the image's files to ``stream``, as a tar archive."""
    python = Path(sys.executable).resolve()
    site = Path(sysconfig.get_path("purelib"))
    with tarfile.open(fileobj=stream, mode="w|", dereference=True) as tar:
        for path in (python, Path(sysconfig.get_path("stdlib")), NSENTER, *_libraries(python)):
            tar.add(path, filter=_wanted)
        for path in _packages(site):  # not at their own place, which may be below /tmp: a node has its own /tmp
            tar.add(path, PACKAGES / path.name, filter=_wanted)
        for package in ("edgebed", "node"):
            tar.add(ROOT / package, HOME / package, filter=_wanted)


def settings() -> list[str]:
    """What else makes it an image of nodes, as lines of a Dockerfile."""
    python = Path(sys.executable).resolve()
    return [
        f"ENV PYTHONPATH={HOME}:{PACKAGES}",
        f"LABEL org.edgebed.protocol={PROTOCOL} org.edgebed.version={version('edgebed')}",
        f"ENTRYPOINT {json.dumps([str(python), '-m', 'node'])}",
        "USER 1000:1000",
    ]


@cache
def _used() -> tuple[list[str], list[str]]:
    said = subprocess.run([sys.executable, "-c", USED], cwd=ROOT, capture_output=True, check=True)
    maps, files = json.loads(said.stdout)
    return maps, files


def _libraries(python: Path) -> list[Path]:
    """Shared libraries of the system under the names by which they are asked for, the program loader included."""
    objects, _ = _used()
    return [path for path in _needed([python, NSENTER, *map(Path, objects)]) if not _is_package(path)]


def _needed(files: Sequence[Path]) -> list[Path]:
    """The shared libraries that these files ask for (ldd(1))."""
    said = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False).stdout
    words = [word for line in said.splitlines() for word in line.split() if line.startswith("\t")]
    return [Path(word) for word in sorted(set(words)) if word.startswith("/")]


def _packages(site: Path) -> list[Path]:
    objects, modules = _used()
    inside = [Path(path) for path in (*objects, *modules) if Path(path).is_relative_to(site)]
    return sorted({site / path.relative_to(site).parts[0] for path in inside})


def _is_package(path: Path) -> bool:
    return "site-packages" in path.parts or "dist-packages" in path.parts


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.mode |= 0o444 | (0o111 if member.isdir() else 0)
    member.uid = member.gid = 0
    name = Path(member.name).name
    return None if name in LEFT_OUT else member
