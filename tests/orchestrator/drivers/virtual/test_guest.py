from __future__ import annotations

import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.drivers.virtual import guest
from orchestrator.drivers.virtual.guest import (
    boot_command,
    command,
    environment,
    memory_needed,
    missing_memory,
    write_start,
)
from orchestrator.errors import HostError
from orchestrator.planning.making import make_plan
from orchestrator.planning.plan import Plan
from orchestrator.record.directory import RunDirectory
from orchestrator.scenario.reading import parse
from tests.orchestrator.labels import prepared
from tests.texts import containing

KERNEL = Path("/cache/linux")
PROGRAMS = """\
name: programs
seed: 5
topology: {edges: 0, devices: 2}
programs:
  cloud: {command: sleep 1}
  device: {command: sleep 1}
"""
AWKWARD = 'it\'s "$HOME" `date`; \\\nand a second line'


def of_programs(more: str = "") -> Plan:
    return make_plan(parse(PROGRAMS + more, "programs.yaml"), None)


def of_training(devices: int) -> Plan:
    scenario = f"algorithm: {{name: fedavg, rounds: 1}}\ntopology: {{edges: 0, devices: {devices}}}\n"
    return make_plan(parse(scenario, "training.yaml"), prepared())


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path, "mine")


class TestMemory:
    """900 MB of the guest, 60 MB of each node, 150 MB of each program without a limit."""

    def test_of_programs(self) -> None:
        assert memory_needed(of_programs()) == 900_000_000 + 3 * 60_000_000 + 3 * 150_000_000

    def test_of_programs_with_a_limit(self) -> None:
        limited = of_programs("hardware: {device: {memory: 64mib}}\n")
        assert memory_needed(limited) == 900_000_000 + 3 * 60_000_000 + 150_000_000 + 2 * 64 * 2**20

    def test_of_nodes_that_train(self) -> None:
        """Each has its model, the gradients, the optimizer's state and a message."""
        two = of_training(2)
        assert two.model_bytes > 0
        assert memory_needed(of_training(5)) - memory_needed(two) == 3 * (60_000_000 + 4 * two.model_bytes)

    @pytest.mark.parametrize(("free", "is_missing"), [(1_530_000_000, False), (1_529_999_999, True)])
    def test_a_host_with_less_is_refused(self, free: int, is_missing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(guest, "available_bytes", lambda: free)
        error = missing_memory(of_programs())
        assert isinstance(error, HostError) == is_missing
        if error is not None:
            assert error.what == containing("3 nodes", "1.53 GB")
            assert error.remedy == containing("--driver sim")


def test_the_command_line_is_that_of_the_plan() -> None:
    """The kernel's random numbers follow from it, so it has no name, folder or time of a run."""
    words = command(KERNEL, of_programs())
    assert words == command(KERNEL, of_programs())
    assert "mem=3060M" in words  # twice the estimate
    assert words[-1] == f'"{guest.INIT}"'
    assert "time-travel=inf-cpu" in words


def test_a_guest_in_real_time_has_the_hosts_clock() -> None:
    words = boot_command(KERNEL, 64_000_000, virtual=False)
    assert "mem=64M" in words
    assert not [word for word in words if word.startswith("time-travel")]


def test_the_guest_ends_with_its_orchestrator_if_the_host_can_do_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert command(KERNEL, of_programs())[:4] == ["setpriv", "--pdeathsig", "KILL", str(KERNEL)]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert command(KERNEL, of_programs())[0] == str(KERNEL)


def test_the_guests_process_has_the_labels_of_its_run_and_the_seed(directory: RunDirectory) -> None:
    variables = environment(of_programs(), directory)
    assert variables["EDGEBED_RUN"] == directory.run
    assert variables["EDGEBED_PART"] == guest.PART
    assert variables["EDGEBED_RANDOM_SEED"] == "5"


def started_with(directory: RunDirectory) -> dict[bytes, bytes]:
    """The environment that the script makes of an empty one. Neither is the clock set nor the run executed."""
    script = (directory.path / guest.FOLDER / "start").read_bytes()
    _, _, after_date = script.partition(b"\n")
    exports, _, _ = after_date.rpartition(b"exec ")
    done = subprocess.run(["/bin/sh", "-c", exports + b"exec env -0"], env={}, capture_output=True, check=True)
    variables = {}
    for entry in done.stdout.split(b"\0"):
        name, _, value = entry.partition(b"=")
        variables[name] = value
    return variables


def test_the_guest_gets_the_environment(
    directory: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a folder's name"
    folder.mkdir()
    monkeypatch.chdir(folder)
    given = {
        "PATH": "/usr/bin:/bin",
        "AWKWARD": AWKWARD,
        "BYTES": "\udcff",  # as os.environ has bytes that are no UTF-8
        "EDGEBED_RUN": "another run",
        "TMPDIR": "/tmp/mine",
        "BASH_FUNC_module%%": "() { true; }",  # no name of a variable in a shell
    }
    write_start(of_programs(), directory, given, [])
    variables = started_with(directory)
    assert variables[b"PATH"] == b"/usr/bin:/bin"
    assert variables[b"AWKWARD"] == AWKWARD.encode()
    assert variables[b"BYTES"] == b"\xff"
    assert variables[b"PYTHONHASHSEED"] == b"5"
    assert variables[b"PWD"] == str(folder).encode()
    assert variables.keys().isdisjoint({b"EDGEBED_RUN", b"TMPDIR", b"BASH_FUNC_module%%"})


def test_the_guest_starts_at_the_coming_midnight(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 86_400.0 + 1)
    write_start(of_programs(), directory, {}, ["--ended", "interrupted"])
    lines = (directory.path / guest.FOLDER / "start").read_text().splitlines()
    assert lines[0].split()[:3] == ["date", "--set", f"@{2 * 86_400}"]
    main = ["exec", sys.executable, "-m", "orchestrator.guest", str(directory.path), "--ended", "interrupted"]
    assert lines[-1].split() == main


def test_only_this_user_reads_the_environment(directory: RunDirectory) -> None:
    write_start(of_programs(), directory, {"SECRET": "1"}, [])
    folder = directory.path / guest.FOLDER
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "start").stat().st_mode) == 0o600


def test_nothing_of_a_former_guest_remains(directory: RunDirectory) -> None:
    write_start(of_programs(), directory, {}, [])
    messages = directory.path / guest.FOLDER / guest.MESSAGES
    messages.write_text('["ended", "rounds", null]\n')
    write_start(of_programs(), directory, {}, [])
    assert messages.read_text() == ""
    guest.remove_folder(directory)
    assert not messages.parent.exists()
    guest.remove_folder(directory)  # once more is no error
