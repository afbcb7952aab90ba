"""Real traffic between the nodes of a `tests.netem.wiring.Wiring`, and what became of it."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence

from netem.userspace.frame import internet_checksum
from tests.netem.wiring import Wiring

PAYLOAD_SHARE = 1448 / 1514  # TCP payload in a full Ethernet frame, with timestamps
TCP_WINDOW_CLAMP = 10  # <linux/tcp.h>
UDP_SEGMENT = 103  # <linux/udp.h>
SO_TIMESTAMPNS = 35  # <asm/socket.h>
NUMBER = struct.Struct("!I")
ECHO = struct.Struct("!BBHHH")  # RFC 792: type, code, checksum, identifier, sequence number
TIMESPEC = struct.Struct("@ll")


def round_trips(lab: Wiring, source: str, target: str, count: int = 100, spacing: float = 0.005) -> list[float]:
    """Round-trip times in ascending order of ICMP echoes sent at a fixed spacing; lost ones are missing.

    The target's kernel answers and the source's kernel notes the time of arrival, so that on a busy machine the times
    are still those of the link and not of these processes' turns on the processor.
    """
    times: list[float] = []
    with lab.nodes[source].socket(socket.SOCK_RAW, protocol=socket.IPPROTO_ICMP) as pinging:
        pinging.connect((lab.address(target), 0))
        pinging.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        began: list[float] = []
        due = time.monotonic()
        last = due + count * spacing + 1.0
        while len(times) < count and time.monotonic() < last:
            if len(began) < count and time.monotonic() >= due:
                echo = ECHO.pack(8, 0, 0, 1, len(began))
                began.append(time.time())
                pinging.send(echo[:2] + internet_checksum(echo).to_bytes(2, "big") + echo[4:])
                due += spacing
            until = due if len(began) < count else last
            if select.select([pinging], [], [], max(0.0, until - time.monotonic()))[0]:
                data, ancillary, _, _ = pinging.recvmsg(200, 100)
                kind, _, _, _, number = ECHO.unpack_from(data, 20)
                if kind == 0:
                    seconds, nanoseconds = TIMESPEC.unpack(ancillary[0][2])
                    times.append(seconds + nanoseconds / 1e9 - began[number])
    return sorted(times)


def datagrams(
    lab: Wiring, source: str, target: str, count: int, spacing: float = 0.0002, settle: float = 0.3, size: int = 60
) -> list[int]:
    """Numbers of the datagrams 0..count-1 in the order they arrived; `settle` seconds without any end the wait."""
    numbers: list[int] = []
    with lab.bound(source, socket.SOCK_DGRAM) as near, lab.bound(target, socket.SOCK_DGRAM) as far:
        near.connect(far.getsockname())
        filler = bytes(size - NUMBER.size)
        due = time.monotonic()
        for number in range(count + 1):
            until = due if number < count else time.monotonic() + settle
            while select.select([far], [], [], max(0.0, until - time.monotonic()))[0]:
                numbers.append(NUMBER.unpack_from(far.recv(2000))[0])
                until = until if number < count else time.monotonic() + settle
            if number < count:
                near.send(NUMBER.pack(number) + filler)
                due += spacing
    return numbers


def segments_of_one_call(lab: Wiring, source: str, target: str, count: int, size: int) -> list[float]:
    """Send so many datagrams in one call (UDP_SEGMENT in udp(7)): the times at which datagrams come, by the target's
    kernel."""
    times: list[float] = []
    with lab.bound(source, socket.SOCK_DGRAM) as near, lab.bound(target, socket.SOCK_DGRAM) as far:
        far.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        near.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
        near.sendto(bytes(count * size), far.getsockname())
        while select.select([far], [], [], 0.5)[0]:
            data, ancillary, _, _ = far.recvmsg(70_000, 64)
            assert len(data) == size
            seconds, nanoseconds = TIMESPEC.unpack(ancillary[0][2])
            times.append(seconds + nanoseconds / 1e9)
    return times


def connection(lab: Wiring, source: str, target: str, window: int | None = None) -> tuple[socket.socket, socket.socket]:
    """The two ends of a TCP connection. Reno, which every kernel has, whatever the host's default is.

    `window` bytes at most are in flight, which keeps slow start from overshooting.
    """
    with lab.bound(target, socket.SOCK_STREAM) as listening:
        if window is not None:
            listening.setsockopt(socket.IPPROTO_TCP, TCP_WINDOW_CLAMP, window)
        listening.listen()
        near = lab.bound(source, socket.SOCK_STREAM)
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        near.connect(listening.getsockname())
        far, _ = listening.accept()
        for end in (near, far):
            end.settimeout(20.0)
        return near, far


def goodput(lab: Wiring, source: str, target: str, seconds: float, skip: float, window: int | None = None) -> float:
    """TCP payload in bit/s that arrived from `skip` until `seconds` after the beginning."""
    near, far = connection(lab, source, target, window)
    end = time.monotonic() + seconds
    arrived = [0, 0]  # before and after `skip`

    def sink() -> None:
        buffer = bytearray(1 << 20)
        while (now := time.monotonic()) < end:
            with contextlib.suppress(TimeoutError):  # nothing came: the loop's end decides
                arrived[now >= end - seconds + skip] += far.recv_into(buffer)

    receiver = threading.Thread(target=sink)
    receiver.start()
    block = bytes(1 << 18)
    while time.monotonic() < end:
        near.send(block)
    receiver.join()
    # Resetting the connection drops what is still queued, so that the next measurement finds an empty link.
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    near.close()
    far.close()
    return arrived[1] * 8 / (seconds - skip)


def flows(lab: Wiring, source: str, target: str, number: int, seconds: float) -> float:
    """Aggregate payload in bit/s of so many TCP connections at once."""
    ends = [connection(lab, source, target) for _ in range(number)]
    stop = time.monotonic() + seconds
    arrived = [0] * number

    def feed(near: socket.socket) -> None:
        near.settimeout(1.0)
        while time.monotonic() < stop:
            try:
                near.send(bytes(1 << 18))
            except TimeoutError:
                continue

    def sink(place: int, far: socket.socket) -> None:
        far.settimeout(0.5)
        buffer = bytearray(1 << 20)
        while time.monotonic() < stop:
            try:
                arrived[place] += far.recv_into(buffer)
            except TimeoutError:
                continue

    threads = [threading.Thread(target=feed, args=(near,)) for near, _ in ends]
    threads += [threading.Thread(target=sink, args=(place, far)) for place, (_, far) in enumerate(ends)]
    _run(threads, ends)
    return sum(arrived) * 8 / seconds


def _run(threads: Sequence[threading.Thread], ends: Sequence[tuple[socket.socket, socket.socket]]) -> None:
    """Run threads to their end, then close the connections that they use."""
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for near, far in ends:
        near.close()
        far.close()


def uploads(lab: Wiring, sources: Sequence[str], size: int, target: str = "a") -> list[float]:
    """Seconds until the last of `size` bytes has arrived, for each source, in ascending order; all begin together."""
    ends = [connection(lab, source, target) for source in sources]
    began, took = time.monotonic(), []

    def feed(near: socket.socket) -> None:
        near.settimeout(60.0)
        near.sendall(bytes(size))
        near.shutdown(socket.SHUT_WR)

    def sink(far: socket.socket) -> None:
        far.settimeout(60.0)
        while far.recv(1 << 20):
            pass
        took.append(time.monotonic() - began)

    threads = [threading.Thread(target=feed, args=(near,)) for near, _ in ends]
    threads += [threading.Thread(target=sink, args=(far,)) for _, far in ends]
    _run(threads, ends)
    return sorted(took)


def transfer(lab: Wiring, source: str, target: str, data: bytes) -> bytes:
    """What arrives of `data` over TCP."""
    near, far = connection(lab, source, target)
    near.settimeout(20.0)

    def feed() -> None:
        near.sendall(data)
        near.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=feed)
    sender.start()
    parts = []
    while part := far.recv(1 << 20):
        parts.append(part)
    sender.join()
    near.close()
    far.close()
    return b"".join(parts)
