"""Tests what this host can do for edgebed, and reports what to install or allow for the rest."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from node.errors import PluginError
from node.extras import LEARNING, install_command
from node.plugins import advertised, find
from node.resources import processors
from orchestrator.drivers.base import KnowsJob, TriesHost, entries
from orchestrator.errors import OrchestratorError
from orchestrator.fabric.namespaces import tcp
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.fabric.tc.kernel_media import KernelMedia
from orchestrator.host.commands import PACKAGES as COMMANDS
from orchestrator.host.commands import absent
from orchestrator.host.kernel import namespaces
from orchestrator.host.kernel.accelerators import accelerators
from orchestrator.host.kernel.cgroups import writable_hierarchies
from orchestrator.host.kernel.load import Others
from orchestrator.host.process import python
from orchestrator.host.training_devices import tried_here
from orchestrator.host.trial import Trial
from orchestrator.layout import write_entries, write_line
from orchestrator.record.versions import installed_version
from orchestrator.scenario.catalogue import added, catalogue_of
from orchestrator.scenario.sections.drivers import DRIVERS, DriverKind
from orchestrator.verbs.versions import LEARNING_PACKAGES, PACKAGES

LOOK = 1.0  # s, at the load of the processors


def _drivers(kinds: Iterable[DriverKind]) -> str:
    """The names of these drivers, as part of a sentence."""
    *most, last = [kind.name for kind in kinds]
    return f"the drivers {', '.join(most)} and {last}"


HERE = [kind for kind in DRIVERS.values() if not kind.several_hosts]
WITH_NODES = _drivers(kind for kind in HERE if not kind.simulated)
SHAPED = _drivers(kind for kind in HERE if not kind.simulated and not kind.virtual)
"""The drivers with links of this host's kernel. A guest has a kernel of its own."""

TRAINING = _drivers(kind for kind in HERE if not kind.images)
IFB = ("ifb", "`shared` with the link engine `kernel`")
MODPROBE = ("modprobe -a ifb act_mirred act_skbedit",)
MARKS = {
    True: ("ok", "green"),
    None: ("–", "yellow"),
    False: ("no", "red"),
}
"""A word and its colour, by ``ok`` of a trial."""


async def examine() -> list[Trial]:
    """Run all tests, in the order of the report. None runs in a thread, because a signal could not end it."""
    python = Trial("Python", "everything", True, platform.python_version())  # an older one cannot import this
    pip = f"{sys.executable} -m pip install {{}}"
    packages = _installed("Python packages", "everything", PACKAGES, False, "install what is missing", pip)
    system = _system()
    load = await _load()
    findings = [python, system, load, packages, _learning()]
    commands = _commands()
    namespaces = _namespaces()
    findings += [commands, namespaces]
    findings += await _links(bool(commands.ok and namespaces.ok))
    findings += [_cgroups(), _curve(), _accelerator()]
    job: list[Trial] = []
    for entry in entries():
        if isinstance(entry, TriesHost):
            findings += entry.trials()
        if isinstance(entry, KnowsJob):
            job += entry.job()
    findings += _plugins()
    if not job:
        return findings
    return [*job, *(_in_job(finding) for finding in findings)]


def print_findings(findings: Sequence[Trial], console: Console) -> None:
    """Write each finding with the parts that use it. Its remedy and commands follow, one command on a line."""
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        word, style = MARKS[finding.ok]
        label = Text.assemble((f"{word:2}", style), f"  {finding.name:{width}}")
        used_by = (f" · for {finding.used_by}", "dim")
        detail = Text.assemble(finding.detail, used_by)
        write_entries(console, [(label, detail)])
        if finding.remedy:
            write_entries(console, [("to do:", finding.remedy)], indent=4)
            for command in finding.commands:
                line = Text(f"        {command}", style="bold")
                write_line(console, line)


def _in_job(finding: Trial) -> Trial:
    """The finding with a note if only an administrator can follow its remedy."""
    if os.geteuid() == 0 or "root" not in finding.remedy:
        return finding
    return replace(finding, remedy=f"only the administrators of this cluster can change it: {finding.remedy}")


def _system() -> Trial:
    linux = sys.platform == "linux"
    remedy = "" if linux else "use Linux, or `--driver sim`"
    user = "root" if os.geteuid() == 0 else f"user {os.geteuid()}"
    detail = f"{platform.system()} {platform.release()}, {processors()} cores, {user}"
    return Trial("system", WITH_NODES, linux, detail, remedy)


async def _load() -> Trial:
    name = "load"
    used_by = "runs with real nodes"
    others = Others()
    await asyncio.sleep(LOOK)
    busy = others.busy()
    if not busy:
        return Trial(name, used_by, True, "the processors are free")
    remedy = "close other programs, or use `--virtual` or `--driver sim`, which only take longer"
    return Trial(name, used_by, None, busy, remedy)


def _installed(
    name: str,
    used_by: str,
    packages: Sequence[str],
    ok: bool | None,
    remedy: str,
    command: str,
) -> Trial:
    """Whether these packages are installed. ``command`` installs the missing ones, in the place of {}."""
    installed = []
    missing = []
    for package in packages:
        version = installed_version(package)
        if version is None:
            missing.append(package)
        else:
            installed.append(f"{package} {version}")
    if missing:
        commands = (command.format(" ".join(missing)),)
        return Trial(name, used_by, ok, f"missing: {', '.join(missing)}", remedy, commands)
    return Trial(name, used_by, True, ", ".join(installed))


def _learning() -> Trial:
    used_by = f"training, under {TRAINING}"
    command = install_command(LEARNING)
    return _installed("learning", used_by, LEARNING_PACKAGES, None, "install the extra", command)


def _commands() -> Trial:
    errors = absent()
    if not errors:
        paths = [str(shutil.which(command)) for command in COMMANDS]
        return Trial("commands", WITH_NODES, True, ", ".join(paths))
    commands: list[str] = []
    for error in errors:
        commands += error.commands
    distinct = tuple(dict.fromkeys(commands))
    detail = "; ".join(error.what for error in errors)
    return Trial("commands", WITH_NODES, False, detail, "install the package, as root", distinct)


def _namespaces() -> Trial:
    used_by = "the driver namespaces"
    if shutil.which("unshare") is None:
        return Trial("namespaces", used_by, False, "not tried, since a command is missing")
    error = namespaces.refusal()
    if error is not None:
        return Trial.missing("namespaces", used_by, error)
    how = "as root" if os.geteuid() == 0 else "in an unprivileged user namespace"
    return Trial("namespaces", used_by, True, f"made {how}")


async def _links(possible: bool) -> list[Trial]:
    """Try veth, netem, ifb and TCP's settings in namespaces, if namespaces are ``possible``."""
    veth = ("veth interfaces", SHAPED)
    netem = ("netem", "the link engine `kernel`")
    if not possible:
        reason = "not tried, since commands or namespaces are missing"
        optional = [Trial(*part, None, reason) for part in (netem, IFB)]
        return [Trial(*veth, False, reason), *optional]
    with tempfile.TemporaryDirectory() as folder:
        hub = await Hub.open("doctor", Path(folder))
        try:
            trials = await _tried(hub, veth, netem)
            trials.append(await _media(hub))
            trials.append(await _tcp(hub))
            return trials
        finally:
            await hub.close()


async def _tried(
    hub: Hub,
    veth: tuple[str, str],
    netem: tuple[str, str],
) -> list[Trial]:
    """Make a pair of veth interfaces in the hub, and try netem there."""
    try:
        await hub.run(["ip", "link", "add", "try0", "type", "veth", "peer", "name", "try1"])
        pair = Trial(*veth, True, "made a pair")
    except OrchestratorError as error:
        commands = ("modprobe veth",)
        pair = Trial(*veth, False, str(error), "load the kernel module, as root", commands)
    output = await hub.run(python.module("orchestrator.fabric.tc.netem_support"))
    probe = json.loads(output)
    if probe["netem"]:
        return [pair, Trial(*netem, True, "works")]
    detail = f"{probe['reason']}; the link engine `userspace` shapes the links instead"
    remedy = "load the kernel module, as root, or use a kernel that has it"
    commands = ("modprobe -a sch_netem act_police",)
    return [pair, Trial(*netem, None, detail, remedy, commands)]


async def _media(hub: Hub) -> Trial:
    """Try the kernel engine's shared media, in the hub."""
    missing = await KernelMedia.missing(hub)
    if missing:
        detail = f"{missing}; the link engine `userspace` shares media instead"
        return Trial(*IFB, None, detail, "load the kernel modules, as root", MODPROBE)
    return Trial(*IFB, True, "works")


async def _tcp(hub: Hub) -> Trial:
    """Try the TCP settings of nodes, in the hub."""
    settings = await tcp.in_force(hub)
    refused = tcp.notes(settings)
    if refused:
        detail = "; ".join(refused)
        return Trial("TCP", SHAPED, None, detail, tcp.REMEDY, tcp.REMEDY_COMMANDS)
    algorithm = settings.get(tcp.CONGESTION, "unknown")
    return Trial("TCP", SHAPED, True, f"congestion control {algorithm}")


def _cgroups() -> Trial:
    hierarchies = writable_hierarchies()
    used_by = "cores and memory of `hardware`, under the driver namespaces"
    if not hierarchies:
        detail = "not writable: limits of CPU and memory are not enforced, speed still is"
        return Trial("cgroups", used_by, None, detail, "run as root, or let root delegate them to this user")
    controllers = []
    for hierarchy in hierarchies:
        controllers += [f"{name} (v{hierarchy.version})" for name in hierarchy.controllers]
    return Trial("cgroups", used_by, True, ", ".join(controllers))


def _curve() -> Trial:
    import zmq

    detail = f"libzmq {zmq.zmq_version()}"
    used_by = "encrypted messages between nodes"
    if zmq.has("curve"):
        return Trial("CURVE", used_by, True, detail)
    commands = (f"{sys.executable} -m pip install --force-reinstall --only-binary=pyzmq pyzmq",)
    return Trial("CURVE", used_by, False, f"{detail} is built without it", "install pyzmq's own build", commands)


def _accelerator() -> Trial:
    """Try whether torch can train on an accelerator of this host. Few hosts have one, so nothing is to be done then."""
    used_by = "`compute: {device: cuda}`"
    devices = ", ".join(accelerators())
    result = tried_here("cuda")
    if "name" in result:
        return Trial("accelerator", used_by, True, result["name"])
    if not devices:
        return Trial("accelerator", used_by, None, f"this host shows none; {result['problem']}")
    remedy = "install its driver and torch's build for CUDA (`edgebed docs accelerators`)"
    return Trial("accelerator", used_by, None, f"{devices}, and {result['problem']}", remedy)


def _plugins() -> list[Trial]:
    """Load each plug-in that an installed package advertises, alone."""
    findings = []
    for plugin, package in advertised().items():
        name = f"plug-in {plugin}"
        used_by = f"scenarios with `plugins: [{plugin}]`"
        try:
            catalogue = catalogue_of([find(plugin, Path())])
            additions = ", ".join(added(catalogue)) or "adds nothing"
            findings.append(Trial(name, used_by, True, f"of {package}: {additions}"))
        except PluginError as error:
            detail = f"of {package}, cannot be used: {error}"
            remedy = "update its package, or remove it"
            commands = (f"{sys.executable} -m pip uninstall {package}",)
            findings.append(Trial(name, used_by, None, detail, remedy, commands))
    return findings
