"""The Slurm job that this process is in: its hosts, and the step whose tasks are the agents of a run, one on each host.

Agents need no address of this host, and no secret on a disk: srun brings them both through their input. Its end ends
them, also after SIGKILL of srun or of this process.
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
JOB, HOST = "SLURM_JOB_NODELIST", "SLURMD_NODENAME"  # the variables of a job's hosts, and of this one (sbatch(1))
MIB = 1 << 20
UNKNOWN = 1  # MiB that Slurm has for a host whose memory is not configured (slurm.conf(5), RealMemory)
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
    """The hosts of the job. ``memory``: bytes of a host of which Slurm does not know it. HostError outside a job."""
    error = refusal()
    if error is not None:
        raise error
    command = ["scontrol", "--oneliner", "show", "node", os.environ[JOB]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HostError(f"`{' '.join(command)}` failed ({done.stderr.strip()})")
    return read_hosts(done.stdout, os.environ, memory)


def read_hosts(nodes: str, environment: Mapping[str, str], memory: int) -> list[HostFacts]:
    """The hosts from the output of `scontrol`, one a line, and the variables of the job."""
    cores = of_each(environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    found = []
    for number, line in enumerate(nodes.splitlines()):
        fields: dict[str, str] = dict(re.findall(r"(?:^| )(\w+)=(\S+)", line))
        machine = fields.get("Arch", "")
        own = int(fields.get("RealMemory", UNKNOWN))
        if number < len(cores):
            of_job = cores[number]
        else:
            of_job = int(fields["CPUTot"])
        given = int(environment.get("SLURM_MEM_PER_NODE", 0)) or int(environment.get("SLURM_MEM_PER_CPU", 0)) * of_job
        found.append(
            HostFacts(
                name=fields["NodeName"],
                address=_address_of(fields["NodeAddr"]),
                architecture=ARCHITECTURES.get(machine, machine),
                cores=of_job,
                memory=given * MIB or (own * MIB if own > UNKNOWN else memory),
                manager=fields["NodeName"] == environment.get(HOST),
            )
        )
    return found


def of_each(counts: str) -> list[int]:
    """The number for each host: "4(x2),1" is 4, 4 and 1 (sbatch(1), SLURM_JOB_CPUS_PER_NODE)."""
    return [int(each) for each, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", counts) for _ in range(int(times or 1))]


def _address_of(name: str) -> str:
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0])
    except OSError as error:
        raise HostError(f"the address {name} of a host of the job has no IPv4 address ({error})") from None


async def start_agents(
    directory: RunDirectory,
    hosts: Sequence[HostFacts],
    settings: Settings,
    stack: AsyncExitStack,
) -> Coroutine[Any, Any, str]:
    """Start the step of the job whose tasks are the agents, each in its folder in the directory of the run. Its output
    is the run's log ``slurm``. See `orchestrator.drivers.hosts.environment.Start`."""
    label = {"EDGEBED_RUN": directory.run, "EDGEBED_DIRECTORY": str(directory.path), "EDGEBED_PART": "agent"}
    one_each = [f"--nodes={len(hosts)}", f"--ntasks={len(hosts)}", "--ntasks-per-node=1"]
    with (directory.logs / "slurm.log").open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *("srun", "--overlap", "--mpi=none", "--export=ALL", "--wait=0", "--kill-on-bad-exit=0", *one_each),
            f"--nodelist={','.join(each.name for each in hosts)}",
            f"--cpus-per-task={min(int(each.cores) for each in hosts)}",
            *python.module("orchestrator.agent", "job", str(directory.path)),
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, **label},
            start_new_session=True,
        )
    assert process.stdin is not None
    process.stdin.write(settings.to_json() + b"\n")
    stack.push_async_callback(_end, process, process.stdin)
    return _ended(process)


async def _ended(step: asyncio.subprocess.Process) -> str:
    return f"the step of the job with the agents ended ({how_ended(await step.wait())}): see `logs slurm`"


async def _end(step: asyncio.subprocess.Process, held: asyncio.StreamWriter) -> None:
    """End the input of the agents, and wait for their end."""
    held.close()
    if not await within(ENDING, step.wait()):
        logger.warning("the agents of the run did not end with it: they end with the job")
        step.kill()
        await step.wait()
