"""The fork server: one process that imports all heavy modules once, and forks every node.

``python -m node.process.forkserver VIEW NODES FIRST`` reads requests, one JSON object a line, from standard input and
answers on standard output. ``VIEW`` holds the fields of a `FileView`, as JSON. ``NODES`` is the approximate number of
nodes that it will fork. ``FIRST`` is a file with the assignment of one that trains, without keys, or "": the server
rehearses its training, see `node.process.rehearsal`. Each forked node has its own network, PID, mount, UTS and IPC
namespaces, and the rights that `node.process.confinement` leaves it:

    {"id": 1, "op": "fork", "node": "edge-0", "assignment": "/run/edge-0.json", "log": "/run/logs/edge-0.log",
     "rights": {"checkpoints": "/run/checkpoints/edge-0", "user": [1879048200, 1879048192], "groups": []}}
    {"id": 1, "ok": true, "pid": 4711, "lacking": []}                     (the pid as the requester sees it)
    {"event": "exit", "node": "edge-0", "pid": 4711, "code": 0, "signal": null}

Several nodes start at the same time, so answers may come in another order than requests.

Without a view (``null``) it forks holders, see `node.process.holder`. It loads nothing then, and passes on orders.

A forked node shares the pages of torch and costs about 25 MB. A fresh process costs 250 MB. The server must
stay single-threaded, or a fork could copy a held lock. It is the first process of a PID namespace. It ends when
standard input closes or its parent ends, and the kernel then ends its nodes (pid_namespaces(7)).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from node.assignment import Assignment
from node.errors import NodeError
from node.process import namespaces
from node.process.children import wake_up_for_children
from node.process.confinement import Confinement, confine, join
from node.process.holder import Holder, Openness, lines_of, open_up
from node.process.seccomp import filter_for
from node.process.view import FileView
from node.resources import processors
from node.runtime.turns import NICENESS, Semaphore, Turn

if TYPE_CHECKING:
    from node.process.rehearsal import Rehearsal

MANY = 40  # nodes; for fewer, huge pages cost more time than they save
CROWD = 100  # nodes; so many share one session, and those without children give way
NODE_NAMESPACES = namespaces.CLONE_NEWNET | namespaces.CLONE_NEWUTS | namespaces.CLONE_NEWIPC


def main(view: FileView | None, nodes: int = 0, first: str = "") -> int:
    """``nodes``: the approximate number of nodes that it will fork. ``first``: the file of the assignment to rehearse,
    or ""."""
    namespaces.die_with_parent(os.getppid())
    namespaces.name_process("forkserver")
    namespaces.begin_pid_namespace()
    started = time.perf_counter()
    problem = ""
    rehearsal = None
    if view is not None:
        from node.process.main import preload  # a quarter of a second, which a server of holders does not need

        preload()
        try:
            view.make()
            if first:
                rehearsal = rehearsed(view, first)
        except (OSError, NodeError) as error:
            problem = str(error)
    prepare_forks(nodes)
    seconds = time.perf_counter() - started
    _write({"event": "ready", "seconds": seconds})
    crowded = nodes >= CROWD
    server = ForkServer(view, problem, rehearsal, crowded=crowded)
    server.serve()
    return 0


def rehearsed(view: FileView, first: str) -> Rehearsal | None:
    """Rehearse the training of the first node. None if that fails: then each node reports why."""
    from node.process.rehearsal import Rehearsal

    text = Path(first).read_text()
    with view.inside():
        try:
            assignment = Assignment.from_json(text)
            return Rehearsal.of(assignment)
        except Exception:
            traceback.print_exc()
            return None


def prepare_forks(nodes: int) -> None:
    """Arrange this process's memory such that about so many forks share most of it, and are made fast."""
    sys._clear_type_cache()  # a fork would change the pages of the names that it replaces there
    gc.collect()
    gc.freeze()  # the collector of a fork then does not touch the shared pages
    if nodes >= MANY:
        namespaces.use_huge_pages()


@dataclass(frozen=True)
class Start:
    """The start of a node: its name, the paths of its assignment and its log, and its rights."""

    node: str
    assignment: str
    log: str
    rights: Confinement | Openness

    @classmethod
    def of(cls, request: dict[str, Any]) -> Start:
        data = request["rights"]
        user = None
        if data["user"] is not None:
            user = tuple(data["user"])
        groups = tuple(data["groups"])
        rights: Confinement | Openness
        if "hosts" in data:
            rights = Openness(data["hosts"], user, groups)
        else:
            rights = Confinement(data["checkpoints"], user, groups)
        return cls(
            node=request["node"],
            assignment=request["assignment"],
            log=request["log"],
            rights=rights,
        )


class Connection:
    """The connection to a holder: the server's end is ``near``. ``unanswered``: the ids of orders."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.near, self.far = socket.socketpair()
        self.pending = b""
        self.unanswered: set[int] = set()


@dataclass
class Forked:
    """A forked node. ``request``: the id of its request. ``start``: the descriptor on which it reports its start, -1
    when it has started. ``report``: the bytes read from it. ``pid``: its id, as the requester sees it."""

    name: str
    turn: Turn
    request: int
    start: int
    line: Connection | None = None
    report: bytes = b""
    pid: int = 0


class ForkServer:
    """Forks nodes on request, gives them turns, and reports their ends. ``problem``: why it cannot fork, or "".
    ``crowded``: whether the nodes share this process's session. Where the scheduler groups processes by session
    (sched(7), "autogroup"), all of them together then weigh as much as the orchestrator, or as the switch. Nodes
    without children give way to the others."""

    def __init__(
        self,
        view: FileView | None,
        problem: str = "",
        rehearsal: Rehearsal | None = None,
        *,
        crowded: bool = False,
    ) -> None:
        self.view = view
        self.crowded = crowded
        self.problem = problem
        self.rehearsal = rehearsal
        self.calls = filter_for(os.uname().machine)
        flags = os.O_RDONLY | os.O_CLOEXEC
        self.own = os.open("/proc/self/ns/pid", flags)
        self.nodes: dict[int, Forked] = {}  # by process id, as this process sees it
        self.turns = Semaphore(processors())
        self.holders: dict[str, Connection] = {}
        self.selector = selectors.DefaultSelector()

    def serve(self) -> None:
        children = wake_up_for_children()
        os.set_blocking(0, False)
        self.selector.register(0, selectors.EVENT_READ)
        self.selector.register(children, selectors.EVENT_READ)
        pending = b""
        while True:
            ready = self.selector.select()
            for key, _ in ready:
                if key.fd == children:
                    os.read(children, 4096)
                    self.reap()
                    continue
                if isinstance(key.data, Connection):
                    self.relay(key.data)
                    continue
                if key.data is not None:
                    node = self.nodes.get(key.data)
                    if node is not None and node.start == key.fd:  # otherwise `reap` has read it
                        self.read_start(key.data)
                    continue
                data = os.read(0, 65536)
                if not data:
                    return
                lines, pending = lines_of(pending + data)
                for line in lines:
                    self.answer(json.loads(line))

    def answer(self, request: dict[str, Any]) -> None:
        if request["op"] != "fork":
            self.pass_on(request)
            return
        start = Start.of(request)
        number = request["id"]
        try:
            self.fork(start, number)
        except OSError as error:
            _write({"id": number, "error": f"cannot fork {start.node}: {error}"})

    def fork(self, start: Start, request: int) -> None:
        """Fork a node into a PID namespace of its own.

        unshare(CLONE_NEWPID) takes effect on the next child, and may be called again only after the return to this
        process's own namespace. `read_start` answers the request.
        """
        if self.problem:
            raise OSError(self.problem)
        turn = Turn(self.turns)
        line = None
        if self.view is None:
            line = Connection(start.node)
        report, report_end = os.pipe2(os.O_CLOEXEC)
        try:
            namespaces.unshare(namespaces.CLONE_NEWPID)
            pid = os.fork()
            if pid == 0:
                _become_node(self, start, turn, report_end, line)
        except OSError:
            os.close(report)
            raise
        finally:
            namespaces.enter(self.own, namespaces.CLONE_NEWPID)
            os.close(report_end)
            if line is not None:
                line.far.close()
        self.nodes[pid] = Forked(
            name=start.node,
            turn=turn,
            request=request,
            start=report,
            line=line,
        )
        self.selector.register(report, selectors.EVENT_READ, pid)

    def read_start(self, number: int) -> None:
        """Read the report of a forked node about its start. At its end, answer the request.

        The requester may attach an interface only when the node is ready: it has then left the server's network
        namespace and is confined. A node that was killed before counts as forked: `reap` reports its end.
        """
        node = self.nodes[number]
        data = os.read(node.start, 4096)
        node.report += data
        if data:
            return
        self.selector.unregister(node.start)
        os.close(node.start)
        node.start = -1
        report = node.report.decode().strip()
        pid, _, rest = report.partition("\n")
        word, _, lacking = rest.partition(" ")
        failed = not pid or word not in ("ready", "")
        if failed:
            del self.nodes[number]
            why = rest or "its process was killed"
            _write({"id": node.request, "error": f"cannot fork {node.name}: {why}"})
            return
        node.pid = int(pid)
        answer = {
            "id": node.request,
            "ok": True,
            "pid": node.pid,
            "lacking": [],
        }
        if word:
            answer["lacking"] = json.loads(lacking)
        _write(answer)
        if node.line is not None:
            self.holders[node.name] = node.line
            self.selector.register(node.line.near, selectors.EVENT_READ, node.line)

    def pass_on(self, order: dict[str, Any]) -> None:
        """Pass an order to the holder of its node, which answers it."""
        name = order["node"]
        line = self.holders.get(name)
        if line is None:
            _write({"id": order["id"], "error": f"{name} does not run"})
            return
        line.unanswered.add(order["id"])
        data = json.dumps(order).encode()
        with contextlib.suppress(BrokenPipeError):  # the selector reports the end of the holder, too
            line.near.sendall(data + b"\n")

    def relay(self, line: Connection) -> None:
        """Pass on the messages of a holder. If it has ended, refuse the orders that it has not answered."""
        data = b""
        with contextlib.suppress(ConnectionResetError):
            data = line.near.recv(65536)
        messages, line.pending = lines_of(line.pending + data)
        for text in messages:
            message = json.loads(text)
            line.unanswered.discard(message.get("id"))
            _write(message)
        if not data:
            self.selector.unregister(line.near)
            line.near.close()
            current = self.holders.get(line.node)
            if current is line:
                del self.holders[line.node]
            for number in line.unanswered:
                _write({"id": number, "error": f"{line.node} has ended"})

    def reap(self) -> None:
        """Report the nodes that have ended. Take back the turns of nodes that ended or were stopped."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            node = self.nodes.get(pid)
            if node is None:
                continue  # it could not start; the answer reports that
            node.turn.give_back()
            if os.WIFSTOPPED(status):
                continue
            while node.start >= 0:
                self.read_start(pid)
            if self.nodes.pop(pid, None) is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            exit = {
                "event": "exit",
                "node": node.name,
                "pid": node.pid,
                "code": code,
                "signal": None,
            }
            if code < 0:
                exit["signal"] = -code
            _write(exit)


def _become_node(
    server: ForkServer,
    start: Start,
    turn: Turn,
    report_end: int,
    line: Connection | None,
) -> NoReturn:
    code = os.EX_SOFTWARE
    try:
        number = os.readlink("/proc/self")  # its id in the namespace of the host's /proc
        os.write(report_end, f"{number}\n".encode())
        kept = [report_end]
        if line is not None:
            kept.append(line.far.fileno())
        _close_all_but(kept)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            _redirect_output(start.log)
            assignment = None
            if line is None:
                assignment = Assignment.load(start.assignment)
            if not server.crowded:
                os.setsid()
            elif assignment is not None and not assignment.related("child"):
                os.nice(NICENESS)
            namespaces.unshare(NODE_NAMESPACES)
            namespaces.private_mounts()
            join(start.rights.groups)  # not before: the namespaces are no memory of the node's hardware
            socket.sethostname(start.node)
            namespaces.name_process(start.node)
            lacking = _limit_rights(server, start)
        except (OSError, NodeError) as error:
            os.write(report_end, f"{error}\n".encode())
            os._exit(code)
        os.write(report_end, f"ready {json.dumps(lacking)}\n".encode())
        os.close(report_end)
        if assignment is not None:
            from node.process.main import run_node

            code = run_node(assignment, turn, server.rehearsal)
        elif line is not None:
            holder = Holder(start.node, line.far)
            code = holder.hold()
    except BaseException as error:
        # A fork must never return into the server's loop.
        traceback.print_exception(error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _limit_rights(server: ForkServer, start: Start) -> list[str]:
    """Give this process the rights of a node. Return the restrictions that this kernel lacks."""
    if isinstance(start.rights, Openness):
        return open_up(start.rights)
    assert server.view is not None
    return confine(start.rights, server.view, server.calls)


def _close_all_but(kept: Iterable[int]) -> None:
    first = 3  # the standard descriptors stay open
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    last = os.sysconf("SC_OPEN_MAX")
    os.closerange(first, last)


def _redirect_output(log: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    output = os.open(log, flags, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _write(message: dict[str, Any]) -> None:
    text = json.dumps(message) + "\n"
    data = text.encode()
    while data:
        written = os.write(1, data)
        data = data[written:]


if __name__ == "__main__":
    fields = json.loads(sys.argv[1])
    view = None if fields is None else FileView(**fields)
    nodes = int(sys.argv[2])
    os._exit(main(view, nodes, sys.argv[3]))  # an orderly exit of torch would take half a second
