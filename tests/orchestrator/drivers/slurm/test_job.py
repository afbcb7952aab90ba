"""The hosts of a Slurm job, from what Slurm 22.05 says; and the step with the agents, with a fake of srun."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from node.assignment import Keypair
from orchestrator.drivers.hosts.agents.listener import Agents
from orchestrator.drivers.hosts.agents.settings import Settings
from orchestrator.drivers.hosts.environment import wait_for
from orchestrator.drivers.slurm import job
from orchestrator.drivers.slurm.job import of_each, read_hosts, refusal, start_agents
from orchestrator.errors import HostError
from orchestrator.host.commands import extend_path
from orchestrator.planning.hosts.inventory import HostFacts
from orchestrator.planning.keys import keypair
from orchestrator.record.directory import RunDirectory

TOLD = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=1 CPUTot=8 CPULoad=8.24 Gres=(null) NodeAddr=127.0.0.1 \
NodeHostName=localhost Port=54681 Version=22.05.8 OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=1 AllocMem=0
NodeName=n2 Arch=aarch64 CPUTot=4 NodeAddr=127.0.0.2 NodeHostName=localhost RealMemory=2000 AllocMem=0
"""
SECRET = "Tn0tOnAnyC0mmandL1ne"
FAKE = """\
#!/bin/sh
printf '%s\\n' "$@" > "$FAKE_FOLDER/words"
IFS= read -r line; printf '%s' "$line" > "$FAKE_FOLDER/line"
cat > /dev/null; touch "$FAKE_FOLDER/ended"
"""


def test_the_hosts_of_a_job_have_what_it_was_given() -> None:
    variables = {"SLURM_JOB_CPUS_PER_NODE": "2(x2)", "SLURMD_NODENAME": "n1"}
    assert read_hosts(TOLD, variables, memory=1 << 33) == [
        HostFacts("n1", "127.0.0.1", "amd64", 2, 1 << 33, {}, manager=True),  # Slurm does not know its memory
        HostFacts("n2", "127.0.0.2", "arm64", 2, 2000 << 20, {}),
    ]
    assert [each.memory for each in read_hosts(TOLD, {"SLURM_MEM_PER_NODE": "500"}, 1)] == [500 << 20] * 2
    assert [each.memory for each in read_hosts(TOLD, {"SLURM_MEM_PER_CPU": "100"}, 1)] == [800 << 20, 400 << 20]


def test_numbers_of_processors() -> None:
    assert of_each("4(x2),1") == [4, 4, 1]  # the example of sbatch(1), shortened
    assert of_each("72") == [72]


def test_outside_a_job_the_remedy_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "salloc --nodes=2" in str(refusal({}))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "command 'srun' of Slurm is missing" in str(refusal({job.JOB: "n[1-2]"}))


def test_an_address_without_ipv4_is_named() -> None:
    with pytest.raises(HostError, match="fd00::1 of a host"):
        read_hosts(TOLD.replace("127.0.0.2", "fd00::1"), {}, 1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a fake of srun, which keeps its words and the first line of its input until its input ends."""
    (tmp_path / "bin").mkdir()
    srun = tmp_path / "bin/srun"
    srun.write_text(FAKE)
    srun.chmod(0o755)
    extend_path()
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_FOLDER", str(tmp_path))
    return tmp_path


async def started(folder: Path, stack: AsyncExitStack) -> asyncio.Future[str]:
    settings = Settings(run="r", address="tcp://a:1", server="s", keys=Keypair(public="p", secret=SECRET), lease=15.0)
    (folder / "logs").mkdir()
    hosts = read_hosts(TOLD, {}, 1 << 33)
    return asyncio.ensure_future(await start_agents(RunDirectory(folder), hosts, settings, stack))


async def test_the_secret_is_given_by_the_input_whose_end_ends_the_step(folder: Path) -> None:
    async with AsyncExitStack() as stack:
        end = await started(folder, stack)
    assert "ended (exit code 0)" in await end
    words = (folder / "words").read_text()
    assert SECRET not in words
    assert {"--nodes=2", "--ntasks-per-node=1", "--nodelist=n1,n2", "--cpus-per-task=4"} <= set(words.splitlines())
    assert json.loads((folder / "line").read_text())["keys"]["secret"] == SECRET
    assert (folder / "ended").exists()


async def test_a_step_that_ends_before_the_agents_are_online_is_reported(folder: Path) -> None:
    (folder / "bin/srun").write_text("#!/bin/sh\nexit 4\n")
    agents = Agents(keypair(), keypair().public, 15.0)
    async with AsyncExitStack() as stack:
        end = await started(folder, stack)
        with pytest.raises(HostError, match=r"ended.*4\): see `logs slurm`"):
            await wait_for(agents, ["n1", "n2"], end, patience=90.0, remedy="what to do")
    await agents.close()
