"""Record the packets of Linux TCP over netem in virtual time: `python -m tests.netem.tcp.captures.record KERNEL`.

KERNEL is Linux for user mode, built with CONFIG_UML_TIME_TRAVEL_SUPPORT (also HOSTFS, PACKET, NET_NS, VETH, BRIDGE,
NET_SCH_NETEM, TCP_CONG_CUBIC). Debian's user-mode kernel lacks that option; its linux-source-7.2 builds with it. The
kernel is booted with ``time-travel=inf-cpu``: computing takes no time and the clock jumps from timer to timer. So times
are exact on a busy host too, and a recording differs from the last one by microseconds. It takes half a minute.

One namespace sends to another one over a bridge. Raw sockets see the packets: one where the sender hands them to its
interface, one at the receiver, to learn which were lost. The files that are written here are read by
`tests.netem.tcp.test_captures`.
"""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
SIZE = 1_000_000  # bytes of each transfer


class Case(NamedTuple):
    """A transfer over a link with ``latency`` (s, each way) and ``rate`` (bit/s). At each time of ``losing``, seconds
    from the first packet on, the link loses everything for LOSING seconds."""

    latency: float
    rate: float
    losing: Sequence[float] = ()

    @property
    def netem(self) -> str:
        return f"delay {1000 * self.latency:g}ms rate {self.rate / 1e6:g}mbit limit 10000"


CASES = {
    "full": Case(0.02, 20e6),
    "far": Case(0.05, 100e6),
    "losses": Case(0.02, 20e6, losing=[0.25, 0.42]),
}
LOSING = 0.002  # s
SEGMENTS = 1  # no segmentation offload: each packet is one of the link
SETTINGS = {
    "tcp_congestion_control": "cubic",
    "tcp_no_metrics_save": "1",
    "tcp_rmem": "4096 131072 6291456",
    "tcp_wmem": "4096 16384 4194304",
}
ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2"}
PORT = 5000
POWER_OFF = 0x4321FEDC  # reboot(2), LINUX_REBOOT_CMD_POWER_OFF
SO_RCVBUFFORCE = 33
CAPTURE_BUFFER = 64 << 20
SO_TIMESTAMPNS = 35
ETH_P_ALL = 3
PACKET_OUTGOING = 4
SYN = 2
FLAGS = {1: "F", SYN: "S", 4: "R", 8: "P", 16: "."}


class Packet(NamedTuple):
    """``at`` in ns; ``id`` is that of IP, which Linux counts up with each packet of a connection."""

    at: int
    outgoing: bool
    id: int
    first: int
    acknowledged: int
    size: int
    flags: int


def main(kernel: str) -> None:
    with tempfile.TemporaryDirectory(prefix="edgebed-capture-") as results:
        command = [kernel, "mem=512M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"]
        command += ["time-travel=inf-cpu", f"uml_dir={results}/", "con=null", "con0=fd:0,fd:1"]
        command += [f"init={sys.executable}", "--", __file__, "guest", results]
        console = Path(results, "console")
        with console.open("w") as output:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False, timeout=600)
        for name in CASES:
            capture = Path(results, name)
            if not capture.exists():
                sys.exit(console.read_text())
            (HERE / f"{name}.txt").write_text(capture.read_text())


def guest(results: str) -> None:
    """The first process of the guest."""
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    for kind, place in (("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/run")):
        run(f"mount -t {kind} {kind} {place}")
    Path("/run/results").mkdir()
    run(f"mount -t hostfs -o {results} hostfs /run/results")
    commands = list(set_up())
    for command in commands:
        run(command)
    time.sleep(3.0)  # until the bridge forwards
    for port, (name, case) in enumerate(CASES.items(), PORT):
        shaping = [f"tc qdisc replace dev h{side} root netem {case.netem}" for side in ADDRESSES]
        for command in shaping:
            run(command)
        packets_seen = transfer(port, case)
        header = describe([*commands, *shaping], case)
        lines = [f"# {line}" for line in header] + packets_seen
        Path("/run/results", name).write_text("\n".join(lines) + "\n")
        time.sleep(1.0)


def set_up() -> Iterator[str]:
    yield "ip link set lo up"
    yield "ip link add br0 type bridge"
    yield "ip link set br0 up"
    for name in ADDRESSES:
        yield f"ip netns add {name}"
        yield f"ip link add h{name} type veth peer name data0 netns {name}"
        yield f"ip -n {name} link set data0 gso_max_segs {SEGMENTS}"
        yield f"ip link set h{name} gso_max_segs {SEGMENTS}"
        yield f"ip link set h{name} master br0 up"
        yield f"ip -n {name} link set data0 up"
        yield f"ip -n {name} addr add {ADDRESSES[name]}/24 dev data0"
        for key, value in SETTINGS.items():
            yield f"ip netns exec {name} sysctl -qw 'net.ipv4.{key}={value}'"


def describe(commands: Sequence[str], case: Case) -> list[str]:
    release = os.uname().release
    tc = subprocess.run(["tc", "-V"], capture_output=True, text=True, check=True).stdout.strip()
    losing = "; ".join(f"from {at} s on, for {LOSING} s: loss 100%" for at in case.losing)
    facts = {"bytes": SIZE, "latency": case.latency, "rate": case.rate}
    return [
        "made by tests/netem/tcp/captures/record.py",
        f"Linux {release} for user mode, time-travel=inf-cpu; {tc}",
        *commands,
        losing or "no losses",
        "packets at the sender: microseconds since the first data, > sent or < received, first byte, bytes of data,",
        "acknowledged bytes, flags; for data, the microseconds at the receiver, or - if the link lost it",
        json.dumps(facts),
    ]


def transfer(port: int, case: Case) -> list[str]:
    """Send SIZE bytes; the packets that the sender saw, as rows."""
    outside = os.open("/proc/self/ns/net", os.O_RDONLY)
    seen_at_sender = capture("a")
    seen_at_receiver = capture("b")
    listening = socket.create_server((ADDRESSES["b"], port))
    if os.fork() == 0:
        receive(listening)
    listening.close()
    enter("a")
    sending = socket.create_connection((ADDRESSES["b"], port))
    for at in case.losing:
        if os.fork() == 0:
            enter_namespace(outside)
            lose(at, case)
    sending.sendall(bytes(SIZE))
    sending.shutdown(socket.SHUT_WR)
    sending.recv(1)  # the receiver has closed
    sending.close()
    time.sleep(1.0)
    enter_namespace(outside)
    arrived = {packet.id: packet.at for packet in packets(seen_at_receiver, port) if not packet.outgoing}
    return list(rows(packets(seen_at_sender, port), arrived))


def receive(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    while connection.recv(1 << 20):
        pass
    os._exit(0)


def lose(after: float, case: Case) -> None:
    """Lose every packet for LOSING seconds, ``after`` seconds from now."""
    time.sleep(after)
    run(f"tc qdisc change dev hb root netem {case.netem} loss 100%")
    time.sleep(LOSING)
    run(f"tc qdisc change dev hb root netem {case.netem} loss 0%")
    os._exit(0)


def capture(namespace: str) -> socket.socket:
    """A socket that receives a copy of each packet of data0 with the time at which the kernel saw it."""
    enter(namespace)
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    raw.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, CAPTURE_BUFFER)
    raw.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    raw.bind(("data0", ETH_P_ALL))
    raw.setblocking(False)
    return raw


def enter(namespace: str) -> None:
    descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    enter_namespace(descriptor)
    os.close(descriptor)


def enter_namespace(descriptor: int) -> None:
    if ctypes.CDLL(None).setns(descriptor, 0):
        raise OSError("setns failed")


def packets(raw: socket.socket, port: int) -> list[Packet]:
    """The packets of a connection that a socket has received."""
    read: list[Packet] = []
    while True:
        try:
            frame, ancillary, _, address = raw.recvmsg(2048, 128)
        except BlockingIOError:
            return read
        if frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_TCP:
            continue
        seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
        length, number = struct.unpack("!HH", frame[16:20])
        source, target, first, acknowledged, offset, flags = struct.unpack("!HHIIBB", frame[34:48])
        size = length - 20 - 4 * (offset >> 4)
        outgoing = address[2] == PACKET_OUTGOING
        if port in (source, target):
            at = seconds * 10**9 + nanoseconds
            read.append(Packet(at, outgoing, number, first, acknowledged, size, flags))


def rows(seen: Sequence[Packet], arrived: Mapping[int, int]) -> Iterator[str]:
    """Packets as lines, with numbers of bytes that count from the first data."""
    start = next(packet.at for packet in seen if packet.size)
    first = {packet.outgoing: packet.first + 1 for packet in reversed(seen) if packet.flags & SYN}
    for packet in seen:
        sent = (packet.first - first[packet.outgoing]) % 2**32
        acknowledged = (packet.acknowledged - first[not packet.outgoing]) % 2**32
        letters = "".join(letter for bit, letter in FLAGS.items() if packet.flags & bit)
        direction = ">" if packet.outgoing else "<"
        fields = [microseconds(packet.at, start), direction, sent, packet.size, acknowledged, letters]
        if packet.size:
            arrival = arrived.get(packet.id)
            fields.append("-" if arrival is None else microseconds(arrival, start))
        is_answer = not packet.outgoing and not packet.flags & SYN
        if packet.size or is_answer:
            yield " ".join(map(str, fields))


def microseconds(at: int, start: int) -> int:
    return round((at - start) / 1000)


def run(command: str) -> None:
    subprocess.run(shlex.split(command), check=True)


def switch_off() -> None:
    os.sync()
    ctypes.CDLL(None).reboot(POWER_OFF)


if __name__ == "__main__":
    if sys.argv[1] == "guest":
        try:
            guest(sys.argv[2])
        except BaseException:
            traceback.print_exc()
        finally:
            switch_off()
    else:
        main(sys.argv[1])
