"""What this host can do for edgebed, found by trying, and what to install or allow for the rest."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import HostError, OrchestratorError
from orchestrator.fabric.hub import Hub
from orchestrator.host.cgroups import writable_hierarchies
from orchestrator.results.record import congestion_control

USUAL_TCP = "cubic"
PACKAGES = ("torch", "torchvision", "pyzmq", "msgpack", "numpy", "pydantic", "docker")


@dataclass(frozen=True)
class Finding:
    """One thing looked at: ``ok`` True or False, or None where it is only nice to have and missing."""

    name: str
    ok: bool | None
    detail: str
    remedy: str = ""


async def examine() -> list[Finding]:
    """Look at everything; the order is that of the report."""
    findings = [_python(), _system(), *_tools(), _packages()]
    findings += await _namespaces()
    findings += [_tcp(), _cgroups(), _curve(), *await asyncio.to_thread(_docker)]
    return findings


def _python() -> Finding:
    version = platform.python_version()
    return Finding(
        "Python", sys.version_info >= (3, 11), version, "" if sys.version_info >= (3, 11) else "use 3.11 or later"
    )


def _system() -> Finding:
    linux = sys.platform == "linux"
    remedy = "" if linux else "the namespaces driver needs Linux"
    user = "root" if os.geteuid() == 0 else f"user {os.geteuid()}"
    return Finding("system", linux, f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, {user}", remedy)


def _tools() -> list[Finding]:
    packages = {"unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2", "tc": "iproute2"}
    return [
        Finding(
            f"command {tool}", path is not None, path or "missing", "" if path else f"install the package {package}"
        )
        for tool, package in packages.items()
        for path in [shutil.which(tool)]
    ]


def _packages() -> Finding:
    versions, missing = [], []
    for name in PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    return Finding("packages", not missing, ", ".join(versions), f"pip install {' '.join(missing)}" if missing else "")


async def _namespaces() -> list[Finding]:
    try:
        hub = await Hub.open("doctor", Path.cwd())
    except OrchestratorError as error:
        remedy = (
            "as root: sysctl kernel.unprivileged_userns_clone=1 (Debian), or"
            " sysctl kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu 24.04), and user.max_user_namespaces"
            " above 0; or run as root"
        )
        return [Finding("namespaces", False, str(error), remedy)]
    try:
        how = "as root" if hub.privileged else "in an unprivileged user namespace"
        findings = [Finding("namespaces", True, f"made {how}")]
        findings.append(await _veth(hub))
        tried = json.loads(await hub.run([sys.executable, "-m", "orchestrator.fabric.tryout"]))
        detail = "works" if tried["netem"] else f"not here ({tried['reason']}); the userspace engine shapes the links"
        remedy = "" if tried["netem"] else "modprobe sch_netem, or a kernel that has it"
        findings.append(Finding("kernel netem", tried["netem"] or None, detail, remedy))
        return findings
    finally:
        await hub.close()


def _tcp() -> Finding:
    """Transfers over links with delay or loss depend on it, so hosts that differ here are not to be compared."""
    algorithm = congestion_control()
    if algorithm in (None, USUAL_TCP):
        return Finding("TCP", True, f"congestion control {algorithm or 'unknown'}")
    detail = f"congestion control {algorithm}: nodes inherit it, and long or lossy links carry more or less than usual"
    return Finding("TCP", None, detail, f"sysctl net.ipv4.tcp_congestion_control={USUAL_TCP}, Linux' default")


async def _veth(hub: Hub) -> Finding:
    try:
        await hub.run(["ip", "link", "add", "try0", "type", "veth", "peer", "name", "try1"])
    except OrchestratorError as error:
        return Finding("veth", False, str(error), "load the kernel module veth")
    return Finding("veth", True, "made a pair")


def _cgroups() -> Finding:
    hierarchies = writable_hierarchies()
    if not hierarchies:
        return Finding(
            "cgroups", None, "not writable: CPU and memory limits of hardware are not enforced, speed still is",
            "run as root, or have systemd delegate a hierarchy",
        )  # fmt: skip
    names = ", ".join(f"{name} (v{each.version})" for each in hierarchies for name in each.controllers)
    return Finding("cgroups", True, names)


def _curve() -> Finding:
    import zmq

    ok = zmq.has("curve")
    return Finding("CURVE", ok, f"libzmq {zmq.zmq_version()}", "" if ok else "install a pyzmq built with libsodium")


def _docker() -> list[Finding]:
    """Only the docker driver needs it, and then an image of nodes."""
    from orchestrator.drivers import docker_image
    from orchestrator.drivers.docker import unfit
    from orchestrator.drivers.docker_container import Limits
    from orchestrator.host.docker import Engine

    name = docker_image.image_name()
    try:
        engine = Engine.connect()
    except HostError as error:
        return [Finding("Docker Engine", None, "cannot be used, and so the docker driver", str(error))]
    with contextlib.closing(engine):
        facts, image = engine.facts(), engine.image(name)
    if reason := unfit(facts, platform.release()):
        return [Finding("Docker Engine", None, f"{facts['ServerVersion']}, not for the docker driver", reason)]
    limits = Limits.of(facts).notes()
    found = Finding("Docker Engine", True, "; ".join([str(facts["ServerVersion"]), *limits]))
    reason = docker_image.problem(name, image, facts["Architecture"])
    return [found, Finding("image of nodes", None if reason else True, f"{name}: {reason or 'fits'}")]
