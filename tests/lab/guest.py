"""The first process of a guest: make it a usable Linux, run pytest in it, switch it off.

    python guest.py RESULTS SECONDS

RESULTS is a directory of the host, with a file `arguments` for pytest, one to a line. It is all that the guest can
write to; the rest of the host's files are there to be read only. SECONDS is how long pytest may take. The end of
standard input, which comes when whoever booted the guest is gone, ends it at once. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    *("sch_netem", "sch_htb", "sch_ingress", "cls_u32", "act_gact", "act_mirred", "act_skbedit", "act_police"),
    *("veth", "bridge", "vxlan", "ifb"),
)
POWER_OFF = 0x4321FEDC  # reboot(2), LINUX_REBOOT_CMD_POWER_OFF


def main(results: str, seconds: str) -> None:
    os.environ.update(
        PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        HOME="/run",
        TMPDIR="/run",
        EDGEBED_LAB="/run/results",
        PYTHONDONTWRITEBYTECODE="1",
    )
    for kind, place in (("proc", "/proc"), ("sysfs", "/sys"), ("cgroup2", "/sys/fs/cgroup"), ("tmpfs", "/run")):
        run("mount", "-t", kind, kind, place)
    Path("/run/results").mkdir()
    run("mount", "-t", "hostfs", "-o", results, "hostfs", "/run/results")
    # modprobe looks below lib/modules of the directory it is given; the host's /lib/modules knows another kernel.
    release = os.uname().release
    Path("/run/lib/modules").mkdir(parents=True)
    Path("/run/lib/modules", release).symlink_to(Path("/usr/lib/uml/modules", release))
    run("modprobe", "--dirname", "/run", "--all", *MODULES)
    run("ip", "link", "set", "lo", "up")
    options = ["-p", "no:cacheprovider", "--color=no", "--basetemp=/run/pytest", "@/run/results/arguments"]
    run(sys.executable, "-m", "pytest", *options, seconds=float(seconds))


def run(*command: str, seconds: float | None = None) -> None:
    """Run a command to its end, whatever that is; what went wrong is on the console."""
    try:
        status = subprocess.run(command, cwd=ROOT, timeout=seconds, check=False).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        print(error, flush=True)
    else:
        if status:
            print(f"{command[0]}: exit status {status}", flush=True)


def switch_off() -> None:
    os.sync()
    ctypes.CDLL(None).reboot(POWER_OFF)


def watch() -> None:
    """End with those who booted the guest."""
    while os.read(0, 1):
        pass
    switch_off()


if __name__ == "__main__":
    threading.Thread(target=watch, daemon=True).start()
    try:
        main(*sys.argv[1:3])  # the kernel adds words of its own
    finally:
        switch_off()
