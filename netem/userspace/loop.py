"""The switch's event loop."""

from __future__ import annotations

import errno
import select
import time
from typing import TYPE_CHECKING

from netem.userspace.console import Console
from netem.userspace.port import Port, Timer

if TYPE_CHECKING:
    from netem.userspace.switch import Switch


class Loop:
    """Event loop: waits for packets, requests and due times, and calls the switch."""

    def __init__(self, switch: Switch, console: Console) -> None:
        self.switch = switch
        self.console = console
        self.timer = Timer()
        self.epoll = select.epoll()
        self._held: dict[int, Port] = {}
        self.epoll.register(console.reading, select.EPOLLIN)
        self.epoll.register(console.writing, 0)  # epoll always reports EPOLLERR, which comes when the reader has closed
        # Edge-triggered: each arming gives a new edge, so the expirations need not be read.
        self.epoll.register(self.timer.fd, select.EPOLLIN | select.EPOLLET)

    def run(self) -> None:
        armed = None
        due = None
        while self.console.open:
            if due is not None and due <= time.monotonic():
                ready = self.epoll.poll(0)
            else:
                if due is not None and due != armed:
                    self.timer.arm(due)
                    armed = due
                ready = self.epoll.poll()
            for descriptor, mask in ready:
                port = self._held.get(descriptor)
                if port is not None:
                    self._forward(port)
                    self.switch.flight.deliver()  # a thousand ports may be ready while packets become due
                elif descriptor == self.console.reading:
                    self._serve()
                elif descriptor == self.console.writing:
                    self._flush(mask)
            due = self.switch.flight.deliver()

    def _forward(self, port: Port) -> None:
        try:
            self.switch.forward(port)
        except OSError as error:
            if error.errno != errno.ENETDOWN:
                raise
            self.console.write({"event": "port_down", "port": port.name})

    def _serve(self) -> None:
        for request in self.console.requests():
            self.console.write(self.switch.handle(request))
        self._flush(0)
        ports = self.switch.ports.values()
        held = {port.fd: port for port in ports}
        for descriptor, port in held.items():
            # A closed port's descriptor may be in use again; closing has removed it from the epoll set.
            if self._held.get(descriptor) is not port:
                self.epoll.register(descriptor, select.EPOLLIN)
        self._held = held

    def _flush(self, mask: int) -> None:
        if mask & (select.EPOLLERR | select.EPOLLHUP):
            self.console.open = False
            return
        complete = self.console.flush()
        events = 0 if complete else select.EPOLLOUT
        self.epoll.modify(self.console.writing, events)
