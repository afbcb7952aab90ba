"""Images made from the Python that runs the tests, with the code of this moment and no base image: of nodes, and of
all that makes a run on a host.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import IO

import docker

from node.messaging.wire import PROTOCOL
from tests.e2e.harness import ROOT, memory_directory

HOME = Path("/opt/edgebed")
PACKAGES = HOME / "packages"
COMMANDS = Path("/usr/bin")
SIZE = 1 << 30  # bytes, of a whole image
LEFT_OUT = {"test", "tests", "include", "idlelib", "site-packages", "dist-packages"}

USED = """
import json, os, sys
{loading}
maps = {{line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}}
files = {{module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)}}
print(json.dumps([sorted(maps), sorted(files)]))
"""
"""What is loaded by some statements: shared objects and modules."""


@dataclass(frozen=True)
class Contents:
    """``packages`` of ours, the statements that load what they use, and ``commands`` of this host."""

    packages: tuple[str, ...]
    loading: str
    commands: tuple[str, ...]


NODE = Contents(
    ("edgebed", "node"),
    "from node.process.main import preload; preload()",
    ("nsenter",),  # what a helper container needs (drivers/docker/helper.py)
)
HOST = Contents(
    (*NODE.packages, "netem", "orchestrator"),
    "import orchestrator.drivers.docker.driver, orchestrator.fabric.userspace, netem.userspace.switch,"
    f" orchestrator.cli.main, orchestrator.sweep.running, orchestrator.drivers.sim.driver; {NODE.loading}",
    (*NODE.commands, "unshare", "ip", "tc", "bridge", "env", "sh"),
)
"""Nodes, what makes them on a host, and the command edgebed for tasks of a sweep. It is the image of nodes too."""

AGENT = Contents(
    HOST.packages,
    "import orchestrator.drivers.swarm.agent_task, orchestrator.agent.in_container, orchestrator.fabric.userspace"
    ", netem.userspace.switch",
    HOST.commands,
)
"""An agent, without torch."""


def import_image(client: docker.DockerClient, name: str, changes: tuple[str, ...] = ()) -> None:
    """Make the image ``name`` of nodes; ``changes`` are further lines of a Dockerfile."""
    with packed(NODE) as archive:
        import_archive(client, name, archive, [*settings(), *changes])


@contextlib.contextmanager
def packed(contents: Contents) -> Iterator[Path]:
    """A tar archive of an image's files, for as long as the context lasts."""
    with tempfile.NamedTemporaryFile(suffix=".tar", dir=memory_directory(SIZE)) as archive:
        pack(archive, contents)
        archive.flush()
        yield Path(archive.name)


def import_archive(client: docker.DockerClient, name: str, archive: Path, changes: Sequence[str]) -> None:
    """Make the image ``name`` of the files in ``archive``."""
    repository, _, tag = name.partition(":")
    client.api.import_image_from_file(str(archive), repository, tag or "latest", changes=list(changes))


def import_commands(
    client: docker.DockerClient, name: str, commands: Sequence[str], changes: Sequence[str] = ()
) -> None:
    """Make the image ``name`` of commands of this host, with the libraries that they need. Its user is nobody."""
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        with tarfile.open(fileobj=archive, mode="w|", dereference=True) as tar:
            _add(tar, commands, ())
        archive.flush()
        import_archive(client, name, Path(archive.name), ["USER 65534:65534", *changes])


def pack(stream: IO[bytes], contents: Contents = NODE) -> None:
    """Write the image's files to ``stream``, as a tar archive."""
    python = Path(sys.executable).resolve()
    site = Path(sysconfig.get_path("purelib"))
    objects, _ = used(contents.loading)
    with tarfile.open(fileobj=stream, mode="w|", dereference=True) as tar:
        for path in (python, Path(sysconfig.get_path("stdlib"))):
            tar.add(path, filter=_wanted)
        _add(tar, contents.commands, [python, *map(Path, objects)])
        for path in _packages(site, contents.loading):  # not at their own place, which may be below /tmp: a node has
            tar.add(path, PACKAGES / path.name, filter=_wanted)  # its own /tmp
        with compiled(contents.packages) as folder:
            for package in contents.packages:
                tar.add(folder / package, HOME / package, filter=_wanted)
            if "orchestrator" in contents.packages:
                script = folder / "command"
                script.write_text(f'#!/usr/bin/sh\nexec {python} -P -m orchestrator "$@"\n')
                script.chmod(0o755)
                tar.add(script, COMMANDS / "edgebed", filter=_wanted)


@contextlib.contextmanager
def compiled(packages: Iterable[str]) -> Iterator[Path]:
    """A folder that has these packages of ours and their compiled modules, as images/*/Dockerfile make them: a node may
    not write what it compiles."""
    with tempfile.TemporaryDirectory(prefix="edgebed-") as folder:
        for package in packages:
            shutil.copytree(ROOT / package, Path(folder) / package)
        subprocess.run([sys.executable, "-m", "compileall", "-q", folder], check=True)
        yield Path(folder)


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
def used(loading: str) -> tuple[list[str], list[str]]:
    """The shared objects and the modules that are loaded by some statements."""
    said = subprocess.run(
        [sys.executable, "-c", USED.format(loading=loading)], cwd=ROOT, capture_output=True, check=True
    )
    maps, files = json.loads(said.stdout)
    return maps, files


def _add(tar: tarfile.TarFile, commands: Iterable[str], others: Sequence[Path]) -> None:
    """Add commands, and the shared libraries of the system that they and ``others`` need."""
    found = {command: Path(shutil.which(command) or f"/usr/sbin/{command}").resolve() for command in commands}
    for command, file in found.items():
        tar.add(file, COMMANDS / command, filter=_wanted)
    for library in _needed([*found.values(), *others]):
        if not _is_package(library):
            tar.add(library, filter=_wanted)


def _needed(files: Sequence[Path]) -> list[Path]:
    """The shared libraries that these files ask for (ldd(1)), under the names by which they ask, the program loader
    included."""
    said = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False).stdout
    words = [word for line in said.splitlines() for word in line.split() if line.startswith("\t")]
    return [Path(word) for word in sorted(set(words)) if word.startswith("/")]


def _packages(site: Path, loading: str) -> list[Path]:
    """What is loaded from the site's packages, and the facts about our own, which tell its version."""
    objects, modules = used(loading)
    inside = [Path(path) for path in (*objects, *modules) if Path(path).is_relative_to(site)]
    return sorted({site / path.relative_to(site).parts[0] for path in inside} | set(site.glob("edgebed-*.dist-info")))


def _is_package(path: Path) -> bool:
    return "site-packages" in path.parts or "dist-packages" in path.parts


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.mode |= 0o444 | (0o111 if member.isdir() else 0)
    member.uid = member.gid = 0
    name = Path(member.name).name
    return None if name in LEFT_OUT else member
