"""Ports without interfaces."""

from __future__ import annotations


class Held:
    """A port whose packets are a list, and which keeps what is sent out of it."""

    def __init__(self, name: str, mac: bytes, packets: list[bytes]) -> None:
        self.name, self.mac, self.packets = name, mac, packets
        self.sent: list[bytes] = []
        self.send = self.sent.append

    def receive(self, _: int) -> bytes:
        if not self.packets:
            raise BlockingIOError
        return self.packets.pop(0)

    def drops(self) -> int:
        return 0

    def waited(self) -> float:
        return 0.0
