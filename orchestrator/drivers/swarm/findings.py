"""What keeps runs from using a host of the swarm, and what distorts their results on it, with the remedy. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from orchestrator import text
from orchestrator.drivers.docker import node_image
from orchestrator.drivers.docker.container import Limits
from orchestrator.drivers.docker.driver import unfit
from orchestrator.drivers.hosts.agents.facts import HostState
from orchestrator.drivers.swarm.cluster import SwarmHost
from orchestrator.drivers.swarm.images import Archive, Pinned, Source, has, is_in_registry, obstacle, split
from orchestrator.errors import HostError
from orchestrator.fabric.namespaces import tcp
from orchestrator.fabric.trunk import PORT
from orchestrator.planning.hosts.inventory import ARCHITECTURES, UNUSABLE
from orchestrator.scenario.sections.hosts import ACCELERATOR_LABEL, HARDWARE_LABEL, check_board

LOOK: Final = "look"
Severity = Literal["unusable", "look"]
Remedy = tuple[str, tuple[str, ...]]  # with its command lines

LEAST_ENGINE = (20, 10)
WITH_RAW_TABLE = (28, 0)  # the first Engine that needs the kernel's table "raw" for its own networks
FULL = 0.5e9  # bytes: a run copies its data set (CIFAR-100 has 0.18 GB) and its checkpoints to a host
TIGHT = 2e9  # bytes: to load an image of nodes takes about as much

BOARDS = {
    "Raspberry Pi 3": "raspberry-pi-3",
    "Raspberry Pi 4": "raspberry-pi-4",
    "Raspberry Pi 5": "raspberry-pi-5",
    "NVIDIA Jetson Nano": "jetson-nano",
    "NVIDIA Jetson Orin Nano": "jetson-orin-nano",
}
"""The hardware class of a board, by the start of its model."""


@dataclass(frozen=True)
class HostFinding:
    """``severity``: "unusable" if runs cannot use the host, "look" if their results there are to be looked at first.
    ``commands`` are the command lines of the ``remedy``, if any."""

    severity: Severity
    what: str
    remedy: str = ""
    commands: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, error: HostError) -> HostFinding:
        """What an error says that keeps runs from using a host."""
        return cls(UNUSABLE, error.what, error.remedy, error.commands)


@dataclass(frozen=True)
class Wanted:
    """What the orchestrator has: the ``version`` of edgebed, the ``architecture`` of its host, the names of the images
    of nodes and of agents, and by architecture the ``sources`` of the image of nodes."""

    version: str
    architecture: str
    image: str
    agent_image: str
    sources: Mapping[str, Source]


def has_ipv4(host: SwarmHost) -> bool:
    """Whether the swarm knows an IPv4 address of the host."""
    try:
        ipaddress.IPv4Address(host.address)
    except ValueError:
        return False
    return True


def of_member(host: SwarmHost) -> list[HostFinding]:
    """What the swarm itself shows of a host."""
    return [*_membership(host), *_label(host)]


def of_silence(host: SwarmHost, reason: str, wanted: Wanted) -> list[HostFinding]:
    """A host with an agent that does not start, or does not answer, for this reason."""
    if "no such image" in reason.lower():
        what = f"it has no image '{wanted.agent_image}', from which agents are made"
        remedy, commands = _copy(host, wanted.agent_image, wanted)
    elif "another version" in reason or "speaks protocol" in reason:
        what = f"its agent cannot report: {reason}"
        remedy, commands = _copy(host, wanted.agent_image, wanted)
    else:
        what = f"no agent reports it: {reason}"
        remedy = "see the log of its Docker Engine; does it reach the host that starts runs, by TCP?"
        commands = ("journalctl --unit docker",)
    return [HostFinding(UNUSABLE, what, remedy, commands)]


def of_facts(host: SwarmHost, facts: HostState, wanted: Wanted) -> list[HostFinding]:
    """What an agent has reported of its host."""
    return [
        *_engine(facts),
        *_image(host, facts, wanted),
        *_links(facts),
        *_state(facts),
        *_board(host, facts),
        *_accelerator(host, facts),
        *_version(facts, wanted),
    ]


def of_silent_pair(other: SwarmHost, error: str) -> HostFinding:
    """A host that gets no packet back from another one."""
    remedy = "open the firewalls of both hosts to each other, also for UDP (`edgebed docs hosts` lists the ports)"
    what = f"nothing could be measured to {other.name} ({other.address}): {error}"
    return HostFinding(UNUSABLE, what, remedy)


def of_cut_trunk(other: SwarmHost, what: str) -> HostFinding:
    """The trunk of a host to another one does not carry ``what`` ("packets of 1450 bytes")."""
    remedy = (
        f"have the firewalls pass UDP port {PORT} both ways; if only large packets are lost, give the interfaces of all"
        " hosts the MTU that the network between them carries"
    )
    return HostFinding(UNUSABLE, f"{what} do not pass the trunk to {other.name} ({other.address})", remedy)


def _membership(host: SwarmHost) -> Iterator[HostFinding]:
    if host.state != "ready":
        remedy = (
            "is it on, with its Docker Engine, and does it reach the managers (TCP 2377, TCP and UDP 7946)?"
            " `docker node rm` removes a host that is gone for good"
        )
        yield HostFinding(UNUSABLE, f"it is {host.state}", remedy)
    if host.availability != "active":
        what = f"it is to get no agent (availability {host.availability})"
        command = f"docker node update --availability active {host.name}"
        yield HostFinding(UNUSABLE, what, "let it", (command,))
    if not has_ipv4(host):
        address = host.address or "no address"
        what = f"it is known by {address}, and the trunk between hosts needs IPv4"
        remedy = "on the host, join it to the swarm by its IPv4 address"
        join = "docker swarm join --advertise-addr ADDRESS --token TOKEN MANAGER:2377"
        yield HostFinding(UNUSABLE, what, remedy, ("docker swarm leave", join))
    if host.architecture not in ARCHITECTURES:
        what = f"its architecture is {host.architecture or 'unknown'}"
        known = " or ".join(ARCHITECTURES)
        yield HostFinding(UNUSABLE, what, f"install a system of 64 bits ({known})")


def _label(host: SwarmHost) -> Iterator[HostFinding]:
    label = host.labels.get(HARDWARE_LABEL)
    if label is None:
        return
    try:
        check_board(label)
    except ValueError as error:
        what = f"its label {HARDWARE_LABEL}: {error}"
        command = f"docker node update --label-rm {HARDWARE_LABEL} {host.name}"
        yield HostFinding(UNUSABLE, what, "change it or take it away", (command,))


def _engine(facts: HostState) -> Iterator[HostFinding]:
    engine = facts.engine
    if engine is None:
        yield HostFinding(UNUSABLE, "its Docker Engine does not answer its agent", "see the Engine's log on the host")
        return
    refusal = unfit(engine, facts.kernel)
    if refusal is not None:
        yield HostFinding.of(refusal)
    version = str(engine["ServerVersion"])
    number = _number(version)
    if number is not None and number < LEAST_ENGINE:
        yield HostFinding(UNUSABLE, f"its Docker Engine is {version}", "install 20.10 or later")
    needs_raw_table = number is not None and number >= WITH_RAW_TABLE
    if needs_raw_table and facts.iptable_raw is False:
        what = f"its kernel has no module iptable_raw, which Docker Engine {version} needs for networks of its own"
        remedy = "runs use no such network; for other containers and for builds, install Engine 27"
        yield HostFinding(LOOK, what, remedy)
    limits = Limits.of(engine)
    if not limits.memory:
        what = "the memory of nodes with emulated hardware is not limited"
        yield HostFinding(LOOK, what, _memory_remedy(facts))
    if not limits.cpu:
        what = "the cores of nodes with emulated hardware are not limited; computing is stretched nevertheless"
        yield HostFinding(LOOK, what, "use a kernel with CONFIG_CFS_BANDWIDTH")


def _memory_remedy(facts: HostState) -> str:
    model = facts.model or ""
    if model.startswith("Raspberry Pi"):
        return (
            "append `cgroup_enable=memory cgroup_memory=1` to the line of /boot/firmware/cmdline.txt (before Debian 12:"
            " /boot/cmdline.txt), and restart the Pi"
        )
    return "start its kernel with the memory control group (`cgroup_enable=memory`)"


def _image(host: SwarmHost, facts: HostState, wanted: Wanted) -> Iterator[HostFinding]:
    source = wanted.sources.get(host.architecture)
    name = wanted.image
    image = facts.image
    if facts.engine is None or source is None:
        return
    lacks = f"it has no image '{name}', from which nodes are made"
    if not isinstance(source, HostError):
        if not has(image, source):
            yield _on_its_way(host, facts, source, name, lacks)
            return
        source = HostError("", "build it of this version (`edgebed docs images`)")
    if image is None:
        yield HostFinding(UNUSABLE, f"{lacks}, and {source.what}", source.remedy, source.commands)
        return
    problem = node_image.problem(name, image, facts.engine["Architecture"])
    if problem is not None:
        yield HostFinding(UNUSABLE, problem.what, source.remedy, source.commands)
        return
    note = node_image.version_note(name, image, wanted.version)
    if note is not None:
        yield HostFinding(LOOK, note, source.remedy, source.commands)


def _on_its_way(
    host: SwarmHost,
    facts: HostState,
    source: Archive | Pinned,
    name: str,
    lacks: str,
) -> HostFinding:
    """The finding for an image that a host lacks, or has another one of, and which a run gives it."""
    if facts.disk_free is not None:
        error = obstacle(name, source, host.name, host.architecture, facts.disk_free, facts.image)
        if error is not None:
            return HostFinding.of(error)
    what = lacks
    if facts.image is not None:
        what = f"it has another image '{name}' than nodes are to be made from"
    if isinstance(source, Archive):
        remedy = f"nothing: the next `up` copies it ({text.size(source.size)})"
    else:
        remedy = f"nothing: the next `up` has it pulled from its registry ({source.reference})"
    return HostFinding(LOOK, what, remedy)


def _links(facts: HostState) -> Iterator[HostFinding]:
    remedy = (
        "load the kernel module vxlan, as root; some systems have it in a package of its own (`edgebed docs hosts`)"
    )
    if facts.trunk:
        yield HostFinding(UNUSABLE, facts.trunk, remedy, ("modprobe vxlan",))
    for note in facts.trunk_notes:
        yield HostFinding(LOOK, note, remedy, ("modprobe vxlan",))
    if facts.netem:
        what = f"{facts.netem}; the link engine `userspace` shapes its links, `engine: kernel` is refused"
        load = "load the kernel module, as root, or use a kernel that has it"
        yield HostFinding(LOOK, what, load, ("modprobe -a sch_netem act_police",))
    settings = {}
    if facts.congestion_control:
        settings[tcp.CONGESTION] = facts.congestion_control
    for note in tcp.notes(settings):
        yield HostFinding(LOOK, note, tcp.REMEDY, tcp.REMEDY_COMMANDS)


def _state(facts: HostState) -> Iterator[HostFinding]:
    free = facts.disk_free
    if free is not None and free < TIGHT:
        severity: Severity = UNUSABLE if free < FULL else LOOK
        what = f"{text.size(free)} are free where its Docker Engine keeps images and volumes"
        commands = ("docker system df", "docker system prune")
        yield HostFinding(severity, what, "make room", commands)
    if facts.clock is not None and not facts.clock.synchronised:
        what = "its clock is not synchronised, so that times of this host and of others cannot be compared"
        yield HostFinding(LOOK, what, "install chrony, or switch systemd-timesyncd on", ("timedatectl set-ntp true",))
    if facts.throttled:
        what = f"its processor is slowed down at this moment: {text.some(facts.throttled)}"
        yield HostFinding(LOOK, what, "cool it, or give it a stronger power supply (`edgebed docs sensors`)")


def _board(host: SwarmHost, facts: HostState) -> Iterator[HostFinding]:
    label = host.labels.get(HARDWARE_LABEL)
    board = _board_of(facts.model or "")
    if board is None or board == label:
        return
    state = "has no label, so that it counts as a PC"
    if label is not None:
        state = f"has the label {label}"
    command = f"docker node update --label-add {HARDWARE_LABEL}={board} {host.name}"
    yield HostFinding(LOOK, f"it is a {facts.model} and {state}", "label it in the swarm", (command,))


def _board_of(model: str) -> str | None:
    """The hardware class of a model, see `BOARDS`."""
    for start, board in BOARDS.items():
        if model.startswith(start):
            return board
    return None


def _accelerator(host: SwarmHost, facts: HostState) -> Iterator[HostFinding]:
    label = host.labels.get(ACCELERATOR_LABEL)
    if label is not None and not facts.accelerators:
        what = f"it has the label {ACCELERATOR_LABEL}={label}, and its kernel shows no accelerator"
        remedy = "install the driver of its GPU (`edgebed docs accelerators`), or take the label away"
        command = f"docker node update --label-rm {ACCELERATOR_LABEL} {host.name}"
        yield HostFinding(LOOK, what, remedy, (command,))


def _version(facts: HostState, wanted: Wanted) -> Iterator[HostFinding]:
    if facts.version != wanted.version:
        what = f"its agent is of edgebed {facts.version}, the orchestrator of {wanted.version}"
        yield HostFinding(LOOK, what, f"copy the image '{wanted.agent_image}' of this version")


def _copy(host: SwarmHost, image: str, wanted: Wanted) -> Remedy:
    """The remedy for a lacking image of agents. For another architecture, images/build.sh tags it with that."""
    if is_in_registry(image):
        return "does it reach the registry, and has that the image of this version? See the log of its Engine", ()
    remedy = "build it of this version, and copy it to the host (`edgebed docs hosts`)"
    if host.architecture == wanted.architecture:
        _, tag = split(image)
        tagged = image
        if not tag:  # without one, the command saves the images of all tags
            tagged = f"{image}:latest"
        return remedy, (f"docker save {tagged} | ssh {host.name} docker load",)
    if ":" in image:
        return remedy, ()
    tagged = f"{image}:{host.architecture}"
    copy = f"docker save {tagged} | ssh {host.name} docker load"
    rename = f"ssh {host.name} docker tag {tagged} {image}"
    return remedy, (copy, rename)


def _number(version: str) -> tuple[int, int] | None:
    """The first two numbers of a version, such as 20.10.24+dfsg1."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        return None
    return int(numbers[1]), int(numbers[2])
