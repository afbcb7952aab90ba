"""The fork server: one process that imports all heavy modules once, and forks every node.

``python -m node.process.forkserver VIEW`` reads requests, one JSON object a line, from standard input and answers on
standard output. ``VIEW`` holds the fields of a `FileView`, as JSON. Each forked node has its own network, PID, mount,
UTS and IPC namespaces, and the rights that `node.process.confinement` leaves it:

    {"id": 1, "op": "fork", "node": "edge-0", "assignment": "/run/edge-0.json", "log": "/run/logs/edge-0.log",
     "rights": {"checkpoints": "/run/checkpoints/edge-0", "user": [1879048200, 1879048192], "groups": []}}
    {"id": 1, "ok": true, "pid": 4711, "lacking": []}                     (the pid as the requester sees it)
    {"event": "exit", "node": "edge-0", "pid": 4711, "code": 0, "signal": null}

Without a view (``null``) it forks holders, see `node.process.holder`. It loads nothing then, and passes on orders.

A forked node shares the pages of torch and costs about 25 MB. A fresh process costs 250 MB. The server must
stay single-threaded, or a fork could copy a held lock. It ends when standard input closes or its parent dies.
The kernel then ends its nodes.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import selectors
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Any, NoReturn

from node.assignment import Assignment
from node.errors import NodeError
from node.process import namespaces
from node.process.children import wake_up_for_children
from node.process.confinement import Confinement, confine, join
from node.process.holder import Holder, Openness, open_up
from node.process.main import preload, run_node
from node.process.seccomp import filter_for
from node.process.view import FileView
from node.resources import processors
from node.runtime.turns import Turn, Turns

NODE_NAMESPACES = namespaces.CLONE_NEWNET | namespaces.CLONE_NEWUTS | namespaces.CLONE_NEWIPC


def main(view: FileView | None) -> int:
    namespaces.die_with_parent(os.getppid())
    namespaces.name_process("forkserver")
    started = time.perf_counter()
    problem = ""
    if view is not None:
        preload()
        try:
            view.make()
        except (OSError, NodeError) as error:
            problem = str(error)
    gc.collect()
    gc.freeze()  # the collector of a fork then does not touch the shared pages
    _write({"event": "ready", "seconds": time.perf_counter() - started})
    ForkServer(view, problem).serve()
    return 0


@dataclass(frozen=True)
class Start:
    """The start of a node: its name, the paths of its assignment and its log, and its rights."""

    node: str
    assignment: str
    log: str
    rights: Confinement | Openness

    @classmethod
    def of(cls, request: dict[str, Any]) -> Start:
        told = request["rights"]
        user, groups = tuple(told["user"]) if told["user"] is not None else None, tuple(told["groups"])
        rights = (
            Openness(told["hosts"], user, groups) if "hosts" in told else Confinement(told["checkpoints"], user, groups)
        )
        return cls(request["node"], request["assignment"], request["log"], rights)


class Connection:
    """The connection to a holder: the server's end is ``near``. ``unanswered``: the ids of orders."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.near, self.far = socket.socketpair()
        self.pending = b""
        self.unanswered: set[int] = set()


class ForkServer:
    """Forks nodes on request, gives them turns, and reports their ends. ``problem``: why it cannot fork, or ""."""

    def __init__(self, view: FileView | None, problem: str = "") -> None:
        self.view = view
        self.problem = problem
        self.calls = filter_for(os.uname().machine)
        self.nodes: dict[int, tuple[str, Turn]] = {}
        self.turns = Turns(processors())
        self.holders: dict[str, Connection] = {}
        self.selector = selectors.DefaultSelector()
        namespaces.adopt_orphans()

    def serve(self) -> None:
        children = wake_up_for_children()
        os.set_blocking(0, False)
        self.selector.register(0, selectors.EVENT_READ)
        self.selector.register(children, selectors.EVENT_READ)
        pending = b""
        while True:
            for key, _ in self.selector.select():
                if key.fd == children:
                    os.read(children, 4096)
                    self.reap()
                    continue
                if isinstance(key.data, Connection):
                    self.relay(key.data)
                    continue
                data = os.read(0, 65536)
                if not data:
                    return
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    self.answer(json.loads(line))

    def answer(self, request: dict[str, Any]) -> None:
        if request["op"] != "fork":
            self.pass_on(request)
            return
        start = Start.of(request)
        try:
            pid, lacking = self.fork(start)
        except OSError as error:
            _write({"id": request["id"], "error": f"cannot fork {start.node}: {error}"})
        else:
            _write({"id": request["id"], "ok": True, "pid": pid, "lacking": lacking})

    def fork(self, start: Start) -> tuple[int, list[str]]:
        """Fork a node. Return its process id, and the restrictions of its confinement that this kernel lacks.

        Fork twice: unshare(CLONE_NEWPID) takes effect on the next child only, and may be called only once.

        The process in between writes the node's process id and ends. The node is then the server's own child. It may
        go on only after that, since the end of the process in between would trigger its parent-death signal. It
        answers when it has left the server's network namespace and is confined. Only then may the requester attach an
        interface to it.

        Both processes close the server's input and output, and the server's ends of the pipes. If the server is killed
        meanwhile, the reader of its output sees the end, and the node ends, too.
        """
        if self.problem:
            raise OSError(self.problem)
        server = os.getpid()
        turn = self.turns.of_a_node()
        line = Connection(start.node) if self.view is None else None
        told, tell = os.pipe2(os.O_CLOEXEC)
        hold, let_go = os.pipe2(os.O_CLOEXEC)
        between = os.fork()
        if between == 0:
            _leave_to_the_server(told, let_go)
            namespaces.die_with_parent(server)
            _fork_again(self, server, start, turn, hold, tell, line)
        if line is not None:
            line.far.close()
        os.close(hold)
        os.close(tell)
        with open(told, "rb") as answers, open(let_go, "wb", buffering=0) as permission:
            os.waitpid(between, 0)
            said = answers.readline().decode().strip()
            if not said.isdigit():
                raise OSError(said or "the intermediate process was killed")
            pid = int(said)
            with contextlib.suppress(BrokenPipeError):
                permission.write(b"go")
            word, _, rest = answers.readline().decode().strip().partition(" ")
            if word not in ("ready", ""):
                os.waitpid(pid, 0)
                raise OSError(f"{word} {rest}".strip())
        self.nodes[pid] = start.node, turn  # also if it was killed before it was ready: `reap` reports its end
        lacking: list[str] = json.loads(rest) if word else []
        if line is not None:
            self.holders[start.node] = line
            self.selector.register(line.near, selectors.EVENT_READ, line)
        return pid, lacking

    def pass_on(self, order: dict[str, Any]) -> None:
        """Pass an order to the holder of its node, which answers it."""
        line = self.holders.get(order["node"])
        if line is None:
            _write({"id": order["id"], "error": f"{order['node']} does not run"})
            return
        line.unanswered.add(order["id"])
        with contextlib.suppress(BrokenPipeError):  # the selector reports the end of the holder, too
            line.near.sendall(json.dumps(order).encode() + b"\n")

    def relay(self, line: Connection) -> None:
        """Pass on the messages of a holder. If it has ended, refuse the orders that it has not answered."""
        data = b""
        with contextlib.suppress(ConnectionResetError):
            data = line.near.recv(65536)
        *said, line.pending = (line.pending + data).split(b"\n")
        for each in said:
            message = json.loads(each)
            line.unanswered.discard(message.get("id"))
            _write(message)
        if not data:
            self.selector.unregister(line.near)
            line.near.close()
            if self.holders.get(line.node) is line:
                del self.holders[line.node]
            for number in line.unanswered:
                _write({"id": number, "error": f"{line.node} has ended"})

    def reap(self) -> None:
        """Report the nodes that have ended. Take back the turns of nodes that ended or were stopped."""
        while self.nodes:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                return
            if pid not in self.nodes:
                continue  # the node never went on: the intermediate process was killed
            node, turn = self.nodes[pid]
            turn.give_back()
            if os.WIFSTOPPED(status):
                continue
            del self.nodes[pid]
            code = os.waitstatus_to_exitcode(status)
            _write({"event": "exit", "node": node, "pid": pid, "code": code, "signal": -code if code < 0 else None})


def _leave_to_the_server(*descriptors: int) -> None:
    """Close the descriptors that only the server may hold: its ends of pipes, and its input and output."""
    for descriptor in descriptors:
        os.close(descriptor)
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for standard in (0, 1):
        os.dup2(nothing, standard)


def _fork_again(
    server: ForkServer, parent: int, start: Start, turn: Turn, hold: int, tell: int, line: Connection | None
) -> NoReturn:
    try:
        namespaces.unshare(namespaces.CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            _become_node(server, parent, start, turn, hold, tell, line)
        os.write(tell, f"{pid}\n".encode())
    except OSError as error:
        os.write(tell, f"{error}\n".encode())
    finally:
        os._exit(0)


def _become_node(
    server: ForkServer, parent: int, start: Start, turn: Turn, hold: int, tell: int, line: Connection | None
) -> NoReturn:
    code = os.EX_SOFTWARE
    try:
        if os.read(hold, 2) != b"go":
            os._exit(code)  # the server is gone
        namespaces.die_with_parent(parent)
        _close_all_but(hold, tell, *(() if line is None else (line.far.fileno(),)))
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        try:
            _redirect_output(start.log)
            join(start.rights.groups)
            assignment = Assignment.load(start.assignment) if line is None else None
            namespaces.unshare(NODE_NAMESPACES)
            namespaces.private_mounts()
            socket.sethostname(start.node)
            namespaces.name_process(start.node)
            lacking = _limit_rights(server, start)
            namespaces.die_with_parent(parent)
        except (OSError, NodeError) as error:
            os.write(tell, f"{error}\n".encode())
            os._exit(code)
        if select.select([hold], [], [], 0)[0]:
            os._exit(code)  # the server ended before die_with_parent(), which getppid() does not show in here
        os.write(tell, f"ready {json.dumps(lacking)}\n".encode())
        os.close(hold)
        os.close(tell)
        if assignment is not None:
            code = run_node(assignment, turn=turn)
        elif line is not None:
            code = Holder(start.node, line.far).hold()
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
        open_up(start.rights)
        return []
    assert server.view is not None
    return confine(start.rights, server.view, server.calls)


def _close_all_but(*kept: int) -> None:
    first = 3  # the standard descriptors stay open
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _redirect_output(log: str) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for target, source in ((0, nothing), (1, output), (2, output)):
        os.dup2(source, target)


def _write(message: dict[str, Any]) -> None:
    data = (json.dumps(message) + "\n").encode()
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    os._exit(main(None if told is None else FileView(**told)))  # an orderly exit of torch would take half a second
