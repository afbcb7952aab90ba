"""The driver for laptops and CI. Every node is a process in its own Linux namespaces, forked from one warm process.

It needs neither Docker nor root. Without root, everything lies in one user namespace of the caller (see fabric/hub.py).
node/process/confinement.py limits what a node may do and see. This module gives the node the files that it needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from node.resources import OF_JOB
from orchestrator.drivers.base import Exit
from orchestrator.drivers.user import User, mapped, own_user
from orchestrator.errors import HostError
from orchestrator.fabric.base import NodeHandle
from orchestrator.fabric.namespaces.hub import Hub
from orchestrator.host.kernel.accelerators import device_files
from orchestrator.host.kernel.cgroups import CAN_SWAP, UNLIMITED, NodeGroups, may_swap, writable_hierarchies
from orchestrator.host.process import python
from orchestrator.host.process.child import JsonChild
from orchestrator.host.process.processes import labels
from orchestrator.host.training_devices import notes_here
from orchestrator.planning.plan import NodePlan
from orchestrator.record.directory import RunDirectory

FIRST = "rehearsal"  # among the files of nodes: the assignment that the fork server rehearses
WARM_UP_TIMEOUT = 120.0  # s; the first import of torch from a cold disk is slow

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Nodes share the host's cores, and only a process with a single thread forks safely."""

INHERITED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_",
    "TZ",
    "PYTHON",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "LD_",
    "GLIBC_TUNABLES",
    "MALLOC_",
    "CUDA_",
    "CUBLAS_",
    "NVIDIA_",
    "OMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "ONEDNN_",
    "DNNL_",
    "ATEN_",
    "TORCH",
    "EDGEBED_",
    OF_JOB,
)
"""Prefixes of the environment variables that nodes inherit from the caller: those that Python and its libraries read.
Nodes do not see the other variables, such as access keys."""


SAME_USER = (
    "nodes have the orchestrator's user id, without its capabilities, and the number of their processes may not be"
    " limited: the run's files cannot be given to users of their own here"
)


class NamespacesDriver:
    """See `Driver` for the methods. ``data`` is the folder of the prepared data. ``accelerators``: those that nodes
    train on, with the nodes of each. ``nodes``: about how many it will start. ``first``: the assignment that the fork
    server rehearses, see `node.process.rehearsal`. ``hidden``: a folder that no node sees, by default that of the
    runs."""

    name = "namespaces"
    breakdown = ""
    server = "node.process.forkserver"

    def __init__(
        self,
        hub: Hub,
        directory: RunDirectory,
        data: Path,
        accelerators: Mapping[str, Sequence[str]] | None = None,
        nodes: int = 0,
        first: str = "",
        hidden: Path | None = None,
    ) -> None:
        self._hub = hub
        self._directory = directory
        self._data = data
        self._accelerators = accelerators or {}
        self._nodes = nodes
        self._first = first
        self._hidden = hidden or directory.path.parent
        self._own_users = False
        self._server: JsonChild | None = None
        self._pids: dict[str, int] = {}
        self._killed: dict[str, int] = {}  # by node: how often its memory limit had killed before its latest start
        self._early: set[int] = set()  # processes that ended before `start` knew their ids
        self._groups: NodeGroups | None = None
        self._notes: list[str] = []
        self.exits: asyncio.Queue[Exit] = asyncio.Queue()
        self.lost = asyncio.Event()

    async def open(self) -> None:
        """Start the fork server. It warms up in the background, and ``start`` waits for it."""
        self._notes += notes_here(self._accelerators)
        view = self._view()
        await self._serve(view)
        self._open_groups()

    def _view(self) -> dict[str, Any] | None:
        """The fields of the nodes' `FileView`."""
        directory = self._directory
        if self._hub.privileged:
            group = own_user(directory.run, "").gid
            self._own_users = can_give_away(directory.control, group)
            if not self._own_users:
                self._notes.append(SAME_USER)
        tree = directory.nodes / "tree"
        tree.mkdir(exist_ok=True)
        return {
            "tree": str(tree),
            "given": {
                "data": str(self._data),
                "shards.npz": str(directory.shards),
                "control": str(directory.control),
                "plugins": str(directory.plugins),
            },
            "hidden": str(self._hidden),
            "strangers": self._own_users,
            "devices": device_files() if self._accelerators else (),
        }

    async def _serve(self, view: dict[str, Any] | None) -> None:
        directory = self._directory
        first = ""
        if self._first:
            file = directory.nodes / FIRST
            first = str(file)
            await asyncio.to_thread(file.write_text, self._first)
        in_namespaces = self._hub.enter(network=False)
        server = python.module(self.server, json.dumps(view), str(self._nodes), first)
        inherited = {name: value for name, value in os.environ.items() if name.startswith(INHERITED)}
        self._server = await JsonChild.start(
            "the fork server",
            [*in_namespaces, *server],
            environment=labels(directory.run, directory.path, "node") | ONE_THREAD,
            inherited=inherited,
            log=directory.logs / "forkserver.log",
            on_event=self._handle_event,
        )
        watching = self._watch_server(self._server)
        self._watch = asyncio.create_task(watching)

    def _open_groups(self) -> None:
        hierarchies = writable_hierarchies()
        groups = NodeGroups(self._directory.run, hierarchies)
        try:
            paths = groups.create()
            for path in paths:
                self._hub.remember_cgroup(path)
        except OSError as error:
            self._notes.append(f"cpu and memory limits of the hardware are not enforced: {error}")
            return
        covered: set[str] = set()
        for hierarchy in hierarchies:
            covered.update(hierarchy.controllers)
        missing = [name for name in ("cpu", "memory") if name not in covered]
        if missing:
            names = " and ".join(missing)
            self._notes.append(UNLIMITED.format(names, "this user may not make cgroups"))
        if "memory" in covered and may_swap(paths):
            self._notes.append(CAN_SWAP)
        if covered:
            self._groups = groups
        else:
            self._groups = None

    async def start(self, node: NodePlan, assignment: Path, log: Path) -> NodeHandle:
        assert self._server is not None
        await self._server.wait_ready(WARM_UP_TIMEOUT)
        rights = self._rights(node)
        rights["groups"] = [str(group) for group in self._groups_of(node)]
        answer = await self._server.request(
            "fork",
            node=node.name,
            assignment=str(assignment),
            log=str(log),
            rights=rights,
        )
        new_notes = [note for note in answer["lacking"] if note not in self._notes]
        self._notes += new_notes
        pid = int(answer["pid"])
        if pid in self._early:
            self._early.discard(pid)
        else:
            self._pids[node.name] = pid
        return NodeHandle(pid)

    def _rights(self, node: NodePlan) -> dict[str, Any]:
        """The fields of the node's `Confinement`, without its groups."""
        user = None
        ids = None
        if self._own_users:
            user = own_user(self._directory.run, node.name)
            ids = [user.uid, user.gid]
        checkpoints = hand_over(self._directory, node.name, self._data, user)
        return {"checkpoints": str(checkpoints), "user": ids}

    def _groups_of(self, node: NodePlan) -> list[Path]:
        """The control groups with the limits of the node's hardware."""
        if self._groups is None:
            return []
        cores = self._cores(node)
        groups = self._groups.make(node.name, cores, node.hardware.memory)
        self._killed[node.name] = self._groups.killed(node.name)
        return groups

    def _cores(self, node: NodePlan) -> float | None:
        """How many cores' processor time the node may use; None: without a limit."""
        return node.hardware.cores

    async def kill(self, node: str) -> None:
        self._signal(node, signal.SIGKILL)

    async def pause(self, node: str) -> None:
        self._signal(node, signal.SIGSTOP)

    async def resume(self, node: str) -> None:
        self._signal(node, signal.SIGCONT)

    def notes(self) -> list[str]:
        return list(self._notes)

    async def close(self) -> None:
        for node in list(self._pids):
            self._signal(node, signal.SIGKILL)
        if self._server is not None:
            self._watch.cancel()
            await self._server.close()

    def _signal(self, node: str, number: signal.Signals) -> None:
        pid = self._pids.get(node)
        if pid is None:
            raise HostError(f"{node} has no running process")
        with contextlib.suppress(ProcessLookupError):  # the process has ended, and its Exit follows
            os.kill(pid, number)

    def _handle_event(self, event: dict[str, Any]) -> None:
        if event["event"] != "exit":
            return
        node = event["node"]
        pid = event["pid"]
        code = event["code"]
        known = self._pids.pop(node, None)
        if known is None:
            self._early.add(pid)
        out_of_memory = self._out_of_memory(node, code)
        end = Exit(node, NodeHandle(pid), code, out_of_memory)
        self.exits.put_nowait(end)

    def _out_of_memory(self, node: str, code: int) -> bool:
        """Whether a process of the node that failed with ``code`` failed because of the node's memory limit."""
        if code == 0 or self._groups is None:
            return False
        return self._groups.killed(node) > self._killed[node]

    async def _watch_server(self, server: JsonChild) -> None:
        await server.ended.wait()
        self.breakdown = server.ending
        self.lost.set()


def can_give_away(folder: Path, group: int) -> bool:
    """Whether this host has the ids of `own_user`, and the file system of ``folder`` lets root give files to them. Some
    file systems from other hosts or from the host of a virtual machine do not."""
    uid_map = Path("/proc/self/uid_map").read_text()
    if not mapped(uid_map):
        return False
    try:
        os.chown(folder, -1, group)
    except OSError:
        return False
    return folder.stat().st_gid == group


def hand_over(
    directory: RunDirectory,
    node: str,
    data: Path,
    user: User | None,
) -> Path:
    """Let a node use its files as ``user``, if it has its own user. Returns the folder of its checkpoints.

    HostError if that user cannot read the prepared data, which do not belong to the run.
    """
    checkpoints = directory.checkpoints_of(node)
    checkpoints.mkdir(exist_ok=True)
    if user is None:
        return checkpoints
    try:
        for path in (checkpoints, *checkpoints.iterdir()):
            os.chown(path, user.uid, user.gid, follow_symlinks=False)
    except PermissionError:  # in the guest of an ordinary user these files stay that user's
        directory.checkpoints.chmod(0o700)  # no other user of the host can open what is in it
        checkpoints.chmod(0o777)
    modes = {directory.control: 0o710, directory.socket: 0o660, directory.shards: 0o640}
    for path, mode in modes.items():
        os.chown(path, -1, user.gid)
        path.chmod(mode)
    user.refuse_hidden(data)
    return checkpoints
