"""The guest of a run: a process of user-mode Linux that boots into `init.sh`, and from there into `orchestrator.guest`.

All of it is an ordinary process of the run's user. The guest sees the host's files, read-only, under a writable layer
in its own memory. Of the run's folder it sees a copy, except for the folders that it writes to on the host: logs,
checkpoints and `FOLDER` (`init.sh`). They remain after the guest was killed.

The two sides speak JSON lines. The guest writes to a file in the run's folder, which the host reads: writing takes no
virtual time and causes no interrupt, so it changes nothing in the guest. The host writes to the guest's serial line.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from node.resources import available_bytes
from orchestrator import text
from orchestrator.errors import HostError
from orchestrator.host.process.processes import labels
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory

INIT = Path(__file__).with_name("init.sh")
PART = "guest"
FOLDER = "guest"
"""The folder, in that of the run, by which guest and host speak: the guest's messages, and how it starts."""

MESSAGES = "messages"
NOT_PASSED = ("EDGEBED_", "TMPDIR")
"""Prefixes of the environment variables that the guest does not get: the labels of processes, and a folder that its own
file tree may not have."""

DAY = 86_400  # s
"""The guest's clock starts at the coming midnight (UTC), so that programs that draw numbers by the time of day draw the
same in all runs of a day, and what was issued today is valid."""

OPEN_FILES = 20_000
"""The guest has each of the host's files that it knows open, see hostfs in the kernel's source. With PyTorch these are
some thousands."""

UNFIT = "set fp regs failed"
"""What the guest's kernel prints if it cannot hand back all registers of a process (ptrace(2), NT_X86_XSTATE)."""

BASE = 900_000_000  # bytes: the guest's kernel, its orchestrator and a fork server that has loaded PyTorch, measured
OF_NODE = 60_000_000  # bytes of a node's process that it does not share with others, measured
OF_PROGRAM = 150_000_000  # bytes that a program is expected to take


def memory_needed(plan: Plan) -> int:
    """The bytes of memory that a guest needs for a plan, estimated."""
    models = 4 * plan.model_bytes * len(plan.nodes)  # weights, gradients, the optimizer's state, and a message
    programs = 0
    for program in plan.programs:
        limit = plan.node(program.node).hardware.memory
        programs += OF_PROGRAM if limit is None else limit
    return BASE + OF_NODE * len(plan.nodes) + models + programs


def missing_memory(plan: Plan) -> HostError | None:
    """An error if this host has too little free memory for the guest of a plan."""
    needed = memory_needed(plan)
    free = available_bytes()
    if needed <= free:
        return None
    return HostError(
        f"the guest of {len(plan.nodes)} nodes takes about {text.size(needed)} of memory, and this host has"
        f" {text.size(free)} free",
        "take fewer nodes, end other programs, or use `--driver sim`",
    )


def command(kernel: Path, plan: Plan) -> list[str]:
    """The command line that boots a guest in the folder `FOLDER` of its run. It is the same for all runs of a plan: the
    kernel's random numbers depend on it."""
    memory = 2 * memory_needed(plan)  # the guest takes from the host only what it uses
    return boot_command(kernel, memory)


def boot_command(kernel: Path, memory: int, *, virtual: bool = True) -> list[str]:
    """The command line that boots a guest with ``memory`` bytes. Its working directory is the folder `FOLDER` of
    another one, which the guest sees as `init.sh` describes. Without ``virtual``, time passes as on the host."""
    clock = []
    if virtual:
        clock = ["time-travel=inf-cpu", "time-travel-start=0"]  # random numbers depend on it; the guest sets it later
    parameters = [
        f"mem={memory // 1_000_000}M",
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        "quiet",
        "panic=-1",
        "norandmaps",
        *clock,
        "uml_dir=./",
        "umid=kernel",
        "console=tty0",
        "con=null",
        "con0=null,fd:1",
        "ssl=null",
        "ssl0=fd:0,null",
        "init=/bin/sh",
        "--",
        f'"{INIT}"',  # the kernel splits its command line at spaces
    ]
    prefix = []
    if shutil.which("setpriv") is not None:
        prefix = ["setpriv", "--pdeathsig", "KILL"]  # the guest ends with the orchestrator, whatever ends that
    return [*prefix, str(kernel), *parameters]


def environment(plan: Plan, directory: RunDirectory) -> dict[str, str]:
    """The environment of the guest's process on the host."""
    of_run = labels(directory.run, directory.path, PART)
    return {**os.environ, **of_run, "EDGEBED_RANDOM_SEED": str(plan.seed)}


def write_start(
    plan: Plan,
    directory: RunDirectory,
    variables: Mapping[str, str],
    words: Sequence[str],
) -> None:
    """Write what the guest of a run starts with: `write_script`, and an empty file for its messages. ``words``:
    arguments of `orchestrator.guest`."""
    remove_folder(directory)
    folder = directory.path / FOLDER
    folder.mkdir(mode=0o700)
    (folder / MESSAGES).touch()
    main = [sys.executable, "-m", "orchestrator.guest", str(directory.path), *words]
    write_script(folder, variables, plan.seed, main)


def write_script(
    folder: Path,
    variables: Mapping[str, str],
    seed: int,
    argv: Sequence[str],
) -> None:
    """Write the script that a guest starts with: the environment, which may hold secrets, the working directory, and
    the command, which must switch the guest off at its end. Only this user can read it, and the guest removes it."""
    date = DAY * math.ceil(time.time() / DAY)
    lines = [f"date --set @{date} >/dev/null\n"]
    for name, value in variables.items():
        if name.isidentifier() and not name.startswith(NOT_PASSED):
            lines.append(f"export {name}={shlex.quote(value)}\n")
    lines.append(f"export PYTHONHASHSEED={seed % 2**32}\n")
    lines.append(f"cd {shlex.quote(os.getcwd())}\n")
    lines.append(f"exec {shlex.join(argv)}\n")
    file = folder / "start"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", errors="surrogateescape") as written:
        written.writelines(lines)


def unfit(log: Path) -> HostError | None:
    """An error if the guest has ended because of this processor, by its log."""
    if UNFIT not in log.read_text(errors="replace"):
        return None
    return HostError(
        "the guest's kernel cannot run on this processor, which has more registers than it hands back",
        "use another host, or `--driver sim`",
    )


def remove_folder(directory: RunDirectory) -> None:
    """Remove the folder by which guest and host spoke."""
    shutil.rmtree(directory.path / FOLDER, ignore_errors=True)
