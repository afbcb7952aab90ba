"""Hardware classes: how fast a node trains, how many cores it may use and how much memory it may hold.

``speed`` is relative to one core of the host for single-threaded float32 training: a step that takes c CPU-seconds on
the host lasts c / speed on the node. ``host`` has no speed: its steps are not stretched.

The speeds are estimates to start from, not measurements of your boards. They are High-Performance Linpack results per
core from one collection (github.com/geerlingguy/top500-benchmark, README), divided by 18.1 Gflop/s: an Intel core at
2.4 GHz with AVX2 in that collection (i5-7400T, 72.47 Gflop/s on 4 cores), which is about a laptop's or a CI runner's
core. Linpack counts double precision; single precision is twice as fast on all of these cores, so the ratios hold.
Boards that are not in the collection are scaled by clock from a listed core with vector units of the same width. For
another host, or with a measured board, give ``{class: raspberry-pi-4, speed: 0.2}``.
"""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1024**3
CUSTOM = "custom"
LEAST_QUOTA = 0.01  # of a core: 1 ms in a period of 100 ms, the least that a control group takes


@dataclass(frozen=True)
class HardwareClass:
    """``speed`` relative to a host core (None: not stretched); ``cores``, ``memory`` in bytes (None: not limited)."""

    name: str
    speed: float | None = None
    cores: float | None = None
    memory: int | None = None

    @property
    def quota(self) -> float | None:
        """The processor time that a node may use, in seconds of a host core for each second; None: without a limit."""
        if self.speed is None or self.speed >= 1:
            return self.cores
        return self.speed * (self.cores or 1)

    @property
    def expected_speed(self) -> float:
        """How fast a node is, relative to a host core, also a real board, which is not stretched to its speed."""
        return self.speed or HARDWARE.get(self.name, self).speed or 1.0


HARDWARE: dict[str, HardwareClass] = {
    hardware.name: hardware
    for hardware in (
        HardwareClass("host"),
        HardwareClass("raspberry-pi-3", speed=0.05, cores=4, memory=1 * GIB),
        HardwareClass("raspberry-pi-4", speed=0.16, cores=4, memory=4 * GIB),
        HardwareClass("raspberry-pi-5", speed=0.42, cores=4, memory=8 * GIB),
        HardwareClass("jetson-nano", speed=0.13, cores=4, memory=4 * GIB),
        HardwareClass("jetson-orin-nano", speed=0.26, cores=6, memory=8 * GIB),
        HardwareClass("edge-server", speed=0.57, cores=16, memory=32 * GIB),
        HardwareClass("phone", speed=0.28, cores=4, memory=6 * GIB),
    )
}

SOURCES: dict[str, str] = {
    "host": "One core of this host, and its steps are not stretched. A core of a laptop or a CI runner has about 18.1 "
    "Gflop/s in the collection of Linpack results github.com/geerlingguy/top500-benchmark; a speed is the share of it.",
    "raspberry-pi-3": "Cortex-A53, 4 cores at 1.2 GHz, 1 GB. Listed: 4 Cortex-A55, its successor with equally wide "
    "vector units, at 1.8 GHz (Orange Pi CM4): 5.604 Gflop/s, so 5.604 / 4 / 1.8 * 1.2 = 0.93 a core.",
    "raspberry-pi-4": "Cortex-A72, 4 cores at 1.8 GHz, 1 to 8 GB: 11.889 Gflop/s, 2.97 a core.",
    "raspberry-pi-5": "Cortex-A76, 4 cores at 2.4 GHz, 2 to 16 GB: 30.249 Gflop/s, 7.56 a core. Flower also measured "
    "training to be at least twice as fast as on a Pi 4, over 50 vision models (flower.ai/blog, 2023-12-07).",
    "jetson-nano": "Cortex-A57, 4 cores at 1.43 GHz, 4 GB (data sheet DA-09366), vector units as wide as the Pi 4's "
    "Cortex-A72: 2.97 / 1.8 * 1.43 = 2.36 a core. The processor alone; its GPU is not modelled.",
    "jetson-orin-nano": "Cortex-A78AE, 6 cores at 1.5 GHz, 8 GB (data sheet DS-11105), vector units as wide as the Pi "
    "5's Cortex-A76: 7.56 / 2.4 * 1.5 = 4.7 a core. whisper.cpp's float32 matrix product gives 7 Gflop/s a core in "
    "single precision (github.com/ggml-org/whisper.cpp/issues/89), which is consistent. The processor alone.",
    "edge-server": "Neoverse N1 (Ampere Altra Q64-22): 655.9 Gflop/s on 64 cores at 2.2 GHz, 10.2 a core. Cores and "
    "memory are an assumption: a small server at a base station.",
    "phone": "A mid-range phone, big Cortex-A78 cores at 2.4 GHz: the Pi 5's width and clock, 7.56 a core, less a "
    "third. The third is an assumption: a phone without a fan cannot hold its clock during minutes of training.",
}
"""The source of each class's values, and what is assumed."""

BOARDS = tuple(name for name in HARDWARE if name != "host")  # the classes that a real board can be of
