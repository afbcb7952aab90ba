"""An image of nodes for 64-bit Arm made where it cannot run, and the emulation to run it by.

Nothing of the image is executed to make it: Debian's packages and the wheels of images/requirements-aarch64.txt are
unpacked. So there is no Dockerfile, whose steps would be emulated (docs/guides/images.md), and this takes a minute.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from node.messaging.wire import PROTOCOL
from orchestrator.drivers.docker.emulation import HANDLERS, emulated
from orchestrator.drivers.docker.node_image import PROTOCOL_LABEL, VERSION_LABEL
from tests.e2e.harness import ROOT
from tests.e2e.image import HOST, compiled, used
from tests.programs import give_up, missing

NAME = f"edgebed-test-board:{os.getpid()}"
NEEDED = ("mmdebstrap", "qemu-aarch64-static", "docker")
DEBIAN = "bookworm"
DEBIAN_PACKAGES = ("python3-minimal", "libpython3.11-stdlib", "libstdc++6")
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux2014_aarch64")
UNUSED = ("torch/include", "torch/test")  # headers and what tests them: 60 MB
PATIENCE = 600.0  # s for one step on a busy host

# The first bytes of a program for 64-bit Arm (elf(5)), and which of their bits count: the kind of system and the
# kind of program, executable or position-independent, may differ.
MAGIC = bytes.fromhex("7f454c460201010000000000000000000200b700")
MASK = bytes.fromhex("ffffffffffffff00fffffffffffffffffeffffff")
HANDLER = "edgebed-test-aarch64"

CONFIGURATION = {
    "Env": ["PYTHONPATH=/opt/edgebed:/opt/packages"],
    "Labels": {PROTOCOL_LABEL: str(PROTOCOL), VERSION_LABEL: version("edgebed")},
    "User": "1000:1000",
    "Entrypoint": ["/usr/bin/python3", "-m", "node"],
}


def require() -> None:
    """Skip the test where no image for another processor can be had; fail it in CI."""
    if platform.machine() != "x86_64":
        pytest.skip(f"on {platform.machine()} an image for 64-bit Arm is none for another processor")
    if lacking := missing(NEEDED):
        give_up(f"no image for another processor: {lacking}")


def build() -> None:
    """Make the image in the Engine that DOCKER_HOST names."""
    with tempfile.TemporaryDirectory(prefix="edgebed-") as place:
        layer, packages = Path(place) / "layer.tar", Path(place) / "packages"
        chosen = ["--variant=extract", "--architectures=arm64", f"--include={','.join(DEBIAN_PACKAGES)}"]
        _run("mmdebstrap", "--quiet", *chosen, DEBIAN, layer)
        built = ["--only-binary=:all:", "--implementation", "cp", "--python-version", "3.11"]
        built += [f"--platform={each}" for each in PLATFORMS]
        requirements = ROOT / "images" / "requirements-aarch64.txt"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-deps", "--no-compile"]
        _run(*pip, *built, "--requirement", requirements, "--target", packages)
        _compile(packages)
        with tarfile.open(layer, "a") as tar, compiled(["node"]) as folder:
            tar.add(packages, "opt/packages", filter=_wanted)
            tar.add(folder / "node", "opt/edgebed/node", filter=_wanted)
        _load(layer)


def _compile(packages: Path) -> None:
    """Compile the modules that a node loads, as far as they are the same as here. Most are never loaded."""
    site = Path(sysconfig.get_path("purelib"))
    _, modules = used(HOST.loading)
    inside = [Path(module).relative_to(site) for module in modules if Path(module).is_relative_to(site)]
    files = [packages / module for module in inside if (packages / module).suffix == ".py"]
    _run(sys.executable, "-m", "compileall", "-q", *filter(Path.exists, files))


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    return None if member.name.endswith(UNUSED) else member


def _load(layer: Path) -> None:
    """Give the Engine an image of one layer, in the form of `docker save` (Docker image specification 1.2).

    The Engine's own import would take it to be of the Engine's architecture.
    """
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    image = {
        "architecture": "arm64",
        "os": "linux",
        "config": CONFIGURATION,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "image.json", "RepoTags": [NAME], "Layers": [layer.name]}]
    # By the command, which takes the archive as it is written: on the disk it would be twice the size of the image.
    with (
        subprocess.Popen(["docker", "load", "--quiet"], stdin=subprocess.PIPE) as loading,
        tarfile.open(fileobj=loading.stdin, mode="w|") as tar,
    ):
        for name, content in (("image.json", image), ("manifest.json", manifest)):
            text = json.dumps(content).encode()
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
        tar.add(layer, layer.name)
    assert loading.returncode == 0


@contextlib.contextmanager
def emulation() -> Iterator[None]:
    """This kernel runs programs for 64-bit Arm while the body runs; where it did not, it does not afterwards either.

    Where this user may not have that, the test is skipped, and fails where CI is set. Needs NEEDED[1].
    """
    with contextlib.ExitStack() as stack:
        try:
            if not (HANDLERS / "register").exists():
                subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", HANDLERS], check=True)
                stack.callback(_run, "umount", HANDLERS)
            if "arm64" not in emulated():
                (HANDLERS / "register").write_bytes(_registration(str(shutil.which("qemu-aarch64-static"))))
                stack.callback((HANDLERS / HANDLER).write_text, "-1")
        except (OSError, subprocess.CalledProcessError) as error:
            give_up(f"programs for 64-bit Arm cannot be emulated here: {error}")
        yield


def _registration(interpreter: str) -> bytes:
    """``:name:type:offset:magic:mask:interpreter:flags``, of which F opens the interpreter now, for containers, too."""
    magic, mask = ("".join(f"\\x{byte:02x}" for byte in each) for each in (MAGIC, MASK))
    return f":{HANDLER}:M::{magic}:{mask}:{interpreter}:F".encode()


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, timeout=PATIENCE)
