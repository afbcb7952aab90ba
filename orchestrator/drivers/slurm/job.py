"""The Slurm job that this process is in: its hosts, and the step with the agents of a run as tasks, one on each host.

Agents need no address of this host, and no secret on a disk: srun passes both through their input. Its end ends them,
also after SIGKILL of srun or of this process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from orchestrator.drivers.docker.node_image import ARCHITECTURES
from orchestrator.drivers.hosts.agents.settings import Settings
from orchestrator.errors import HostError
from orchestrator.host.process import python
from orchestrator.planning.hosts.inventory import HostFacts
from orchestrator.record.directory import RunDirectory
from orchestrator.text import how_ended
from orchestrator.together import within

logger = logging.getLogger(__name__)

HOSTS = "hosts"  # among the files of nodes in the directory of a run: the folders of the agents
JOB = "SLURM_JOB_NODELIST"  # the variable of a job's hosts (sbatch(1))
HOST = "SLURMD_NODENAME"  # the variable of this host
MIB = 1 << 20
UNKNOWN = 1  # MiB that Slurm has for a host without a configured memory (slurm.conf(5), RealMemory)
ENDING = 20.0  # s for the agents to end when their input has


def refusal(environment: Mapping[str, str] = os.environ) -> HostError | None:
    """Why this process has no hosts of a job, or None."""
    if JOB not in environment:
        return HostError(
            "this is not a job of Slurm, so there are no hosts for the nodes",
            "run `edgebed up` in a job of several hosts (`edgebed docs slurm`)",
            ["salloc --nodes=2 edgebed up SCENARIO --driver slurm"],
        )
    for command in ("srun", "scontrol"):
        if shutil.which(command) is None:
            return HostError(f"the command '{command}' of Slurm is missing", "load it, or add its folder to PATH")
    return None


def hosts(memory: int) -> list[HostFacts]:
    """The hosts of the job. ``memory``: bytes of a host if Slurm does not know them. HostError outside a job."""
    error = refusal()
    if error is not None:
        raise error
    command = ["scontrol", "--oneliner", "show", "node", os.environ[JOB]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        line = " ".join(command)
        reason = done.stderr.strip()
        raise HostError(f"`{line}` failed ({reason})")
    return read_hosts(done.stdout, os.environ, memory)


def read_hosts(nodes: str, environment: Mapping[str, str], memory: int) -> list[HostFacts]:
    """The hosts from the output of `scontrol`, one a line, and the variables of the job."""
    cores = of_each(environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    this_host = environment.get(HOST)
    hosts = []
    for number, line in enumerate(nodes.splitlines()):
        fields: dict[str, str] = dict(re.findall(r"(?:^| )(\w+)=(\S+)", line))
        machine = fields.get("Arch", "")
        if number < len(cores):
            cores_of_job = cores[number]
        else:
            cores_of_job = int(fields["CPUTot"])
        host = HostFacts(
            name=fields["NodeName"],
            address=_address_of(fields["NodeAddr"]),
            architecture=ARCHITECTURES.get(machine, machine),
            cores=cores_of_job,
            memory=_memory_of(fields, environment, cores_of_job, memory),
            manager=fields["NodeName"] == this_host,
        )
        hosts.append(host)
    return hosts


def _memory_of(
    fields: Mapping[str, str],
    environment: Mapping[str, str],
    cores: int,
    unknown: int,
) -> int:
    """The bytes of a host: those that the job has, otherwise those of the host, ``unknown`` if it has no number."""
    of_job = int(environment.get("SLURM_MEM_PER_NODE", 0))
    if not of_job:
        of_job = cores * int(environment.get("SLURM_MEM_PER_CPU", 0))
    if of_job:
        return of_job * MIB
    of_host = int(fields.get("RealMemory", UNKNOWN))
    if of_host > UNKNOWN:
        return of_host * MIB
    return unknown


def of_each(counts: str) -> list[int]:
    """The number for each host: "4(x2),1" is 4, 4 and 1 (sbatch(1), SLURM_JOB_CPUS_PER_NODE)."""
    numbers = []
    for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", counts):
        numbers += [int(number)] * int(times or 1)
    return numbers


def _address_of(name: str) -> str:
    try:
        rows = socket.getaddrinfo(name, None, socket.AF_INET)
    except OSError as error:
        raise HostError(f"the address {name} of a host of the job has no IPv4 address ({error})") from None
    _, _, _, _, address = rows[0]
    return str(address[0])


async def start_agents(
    directory: RunDirectory,
    hosts: Sequence[HostFacts],
    settings: Settings,
    stack: AsyncExitStack,
) -> Coroutine[Any, Any, str]:
    """Start the step of the job with the agents as tasks, each in its folder in the directory of the run. Its output is
    the run's log ``slurm``. See `orchestrator.drivers.hosts.environment.Start`."""
    labels = {
        "EDGEBED_RUN": directory.run,
        "EDGEBED_DIRECTORY": str(directory.path),
        "EDGEBED_PART": "agent",
    }
    names = ",".join(host.name for host in hosts)
    cores = min(int(host.cores) for host in hosts)
    options = [
        *("--overlap", "--mpi=none", "--export=ALL", "--wait=0", "--kill-on-bad-exit=0"),
        f"--nodes={len(hosts)}",
        f"--ntasks={len(hosts)}",
        "--ntasks-per-node=1",
        f"--nodelist={names}",
        f"--cpus-per-task={cores}",
    ]
    log = directory.logs / "slurm.log"
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            "srun",
            *options,
            *python.module("orchestrator.agent", "serve", "orchestrator.drivers.slurm.agent", str(directory.path)),
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, **labels},
            start_new_session=True,
        )
    assert process.stdin is not None
    process.stdin.write(settings.to_json() + b"\n")
    stack.push_async_callback(_end, process, process.stdin)
    return _ended(process)


async def _ended(step: asyncio.subprocess.Process) -> str:
    code = await step.wait()
    return f"the step of the job with the agents ended ({how_ended(code)}): see `logs slurm`"


async def _end(step: asyncio.subprocess.Process, stdin: asyncio.StreamWriter) -> None:
    """End the input of the agents, and wait for their end."""
    stdin.close()
    ended = await within(ENDING, step.wait())
    if not ended:
        logger.warning("the agents of the run did not end with it: they end with the job")
        step.kill()
        await step.wait()
