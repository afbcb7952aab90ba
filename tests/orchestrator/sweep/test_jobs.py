"""A sweep as a job, with commands that play the scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import HostError, RunError
from orchestrator.sweep import jobs
from orchestrator.sweep.jobs import execute_job, write_job
from orchestrator.sweep.reading import Sweep, load
from tests.texts import containing

SCENARIO = """\
driver: sim
algorithm: {name: hierfavg, rounds: 2, kappa1: 4, kappa2: 1, learning_rate: 0.2}
data: {dataset: digits, partition: iid}
model: mlp
topology: {edges: 2, devices_per_edge: 1}
"""
SQUEUE = """\
#!/bin/sh
echo >> listed
cat states-$(wc -l < listed) 2>/dev/null || true
"""


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """A sweep of two runs in the working directory. No other commands are found than those that a test makes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "PAUSE", 0.0)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    Path("small.yaml").write_text(SCENARIO)
    Path("mine.yaml").write_text("scenario: small.yaml\nseeds: [1, 2]\n")
    return load(Path("mine.yaml"))


def make_command(name: str, text: str) -> None:
    Path("bin", name).write_text(text)
    Path("bin", name).chmod(0o755)


def test_a_job_is_followed_until_no_task_waits_or_runs(sweep: Sweep) -> None:
    make_command("sbatch", '#!/bin/sh\ncp "$1" submitted\n')
    make_command("squeue", SQUEUE)
    states = ["0|PENDING|None|\n", "0|RUNNING|None|n1\n1|PENDING|Resources|\n", "", "0|RUNNING|None|n1\n", "", ""]
    for number, printed in enumerate(states, start=1):
        Path(f"states-{number}").write_text(printed)
    lines = list[str]()
    job, file = write_job("slurm", sweep, Path("runs/mine"), ["--runs", "runs"], workers=None, image="")
    execute_job("slurm", sweep, job, file, lines.append)
    assert Path("submitted").read_text() == file.read_text()
    assert lines == [
        f"submitted runs/mine/sweep.sbatch as {job.name}; `scancel --name={job.name}` ends it",
        "[1/2] small, seed 1: pending",
        "[1/2] small, seed 1: running on n1",
        "[2/2] small, seed 2: pending (Resources)",
    ]
    assert len(Path("listed").read_text().splitlines()) == 6


def test_a_scheduler_that_does_not_answer_is_asked_again(sweep: Sweep) -> None:
    make_command("sbatch", "#!/bin/sh\n")
    make_command("squeue", "#!/bin/sh\necho >> listed\n[ -e fine ] && exit\necho 'no controller' >&2\nexit 1\n")
    job, file = write_job("slurm", sweep, Path("runs"), [], workers=None, image="")
    lines = list[str]()

    def repair(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            Path("fine").touch()

    execute_job("slurm", sweep, job, file, repair)
    assert lines[1:] == ["`squeue --noheader` failed: no controller; trying again"] * 2
    Path("fine").unlink()
    Path("listed").unlink()
    with pytest.raises(HostError, match="no controller"):
        execute_job("slurm", sweep, job, file, lines.append)
    assert len(Path("listed").read_text().splitlines()) == jobs.FAILURES + 1
    assert lines[-1].startswith(f"{job.name} continues; ")


def test_an_interrupted_command_leaves_the_job(sweep: Sweep) -> None:
    make_command("sbatch", "#!/bin/sh\n")
    job, file = write_job("slurm", sweep, Path("runs"), [], workers=None, image="")
    lines = list[str]()

    def interrupt(line: str) -> None:
        lines.append(line)
        if "pending" in line:
            raise KeyboardInterrupt

    make_command("squeue", "#!/bin/sh\necho '0|PENDING|None|'\n")
    with pytest.raises(KeyboardInterrupt):
        execute_job("slurm", sweep, job, file, interrupt)
    assert lines[-1] == containing(f"{job.name} continues; `scancel --name={job.name}`", "`--collect`")


def test_what_the_scheduler_refuses_is_one_error(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path("bin").absolute()))
    job, file = write_job("slurm", sweep, Path("runs"), [], workers=None, image="")
    with pytest.raises(HostError, match="no command sbatch: install the scheduler's"):
        execute_job("slurm", sweep, job, file, print)
    make_command("sbatch", "#!/bin/sh\necho 'Invalid partition' >&2\nexit 1\n")
    with pytest.raises(HostError, match=r"`sbatch runs/sweep\.sbatch` failed: Invalid partition"):
        execute_job("slurm", sweep, job, file, print)


def test_tasks_in_containers_see_only_the_working_directory(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match="/elsewhere is not below the working"):
        write_job("swarm", sweep, Path("/elsewhere"), [], workers=None, image="edgebed")
    real = load(Path("mine.yaml"), ["driver=namespaces"])
    with pytest.raises(RunError, match="containers run the driver sim only; use --on slurm"):
        write_job("kubernetes", real, Path("runs"), [], workers=None, image="edgebed")
    _, file = write_job("slurm", real, Path("runs"), [], workers=None, image="")
    assert "--workers" not in file.read_text()
