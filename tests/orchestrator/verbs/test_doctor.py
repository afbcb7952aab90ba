from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.drivers.docker import entry as docker
from orchestrator.errors import HostError
from orchestrator.host import commands
from orchestrator.host.trial import Trial
from orchestrator.verbs import doctor
from orchestrator.verbs.doctor import examine, print_findings
from tests.orchestrator.consoles import printed

COMMANDS = ("sysctl kernel.unprivileged_userns_clone=1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0")
FINDINGS = [
    Trial("commands", "the drivers namespaces and docker", True, "/usr/bin/unshare, /usr/sbin/tc"),
    Trial("namespaces", "the driver namespaces", False, "not allowed on this host", "allow it as root", COMMANDS),
    Trial("netem", "the link engine `kernel`", None, "a [refused] kind of queue"),
]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_what_is_to_be_typed_is_a_line_of_its_own_and_whole(width: int) -> None:
    shown = printed(width, lambda console: print_findings(FINDINGS, console))
    lines = [line.strip() for line in shown.splitlines()]
    assert [line for line in lines if line in COMMANDS] == list(COMMANDS)
    words = " ".join(lines)
    for part in ("no namespaces not allowed on this host", "to do: allow it as root", "[refused]"):
        assert " ".join(part.split()) in " ".join(words.split())
    for finding in FINDINGS:
        assert finding.used_by in " ".join(words.split())


@pytest.mark.netns
async def test_without_tc_the_remedy_is_the_package_and_no_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [path for name in ("unshare", "nsenter", "ip", "true") for path in _places(name)]
    for path in there:
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/socket")
    found = {finding.name: finding for finding in await examine()}
    assert (found["commands"].ok, found["commands"].commands) == (False, ("apt-get install iproute2",))
    assert found["commands"].detail == "the command 'tc' is missing"
    assert found["namespaces"].ok is True
    assert "not tried" in found["netem"].detail
    assert (found["ifb"].ok, "not tried" in found["ifb"].detail) == (None, True)
    assert not any("sysctl" in command for name in ("namespaces", "netem") for command in found[name].commands)


@pytest.mark.netns
async def test_an_ordinary_users_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    commands.extend_path()
    found = {finding.name: finding for finding in await examine()}
    assert found["commands"].ok is found["namespaces"].ok is found["veth interfaces"].ok is True
    assert ("unprivileged" in found["namespaces"].detail) == (os.geteuid() != 0)
    assert found["ifb"].ok or found["ifb"].commands == doctor.MODPROBE


async def test_in_a_job_the_remedies_name_who_can_apply_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(*_: object) -> list[Trial]:
        return []

    monkeypatch.setattr(doctor, "LOOK", 0.0)
    monkeypatch.setattr(doctor, "_links", none)
    monkeypatch.setattr(docker, "trials", list)
    monkeypatch.setattr(doctor, "_cgroups", lambda: FINDINGS[1])
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4, 5, 6})
    for name, value in {"JOB_ID": "12", "CPUS_ON_NODE": "2"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    found = {finding.name: finding for finding in await examine()}
    assert found["Slurm job"].detail.startswith("job 12 on n1: 2 of 64 processors, temporary files in ")
    assert found["namespaces"].remedy == "only the administrators of this cluster can change it: allow it as root"


def _places(name: str) -> list[Path]:
    return [path for folder in os.environ["PATH"].split(":") if (path := Path(folder, name)).exists()][:1]


@pytest.mark.netns
def test_nothing_is_left_where_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(examine())
    assert list(tmp_path.iterdir()) == []


async def test_a_signal_interrupts_every_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python gives signals to the main thread."""
    threads = []

    async def links(_possible: bool) -> list[Trial]:
        return []

    def tried(*_: str) -> dict[str, str]:
        threads.append(threading.current_thread())
        return {"problem": "none"}

    def connect() -> None:
        tried()
        raise HostError("no Engine")

    monkeypatch.setattr(doctor, "LOOK", 0.0)
    monkeypatch.setattr(doctor, "_links", links)
    monkeypatch.setattr(doctor, "tried_here", tried)
    monkeypatch.setattr("orchestrator.drivers.docker.engine.Engine.connect", connect)
    await examine()
    assert threads == [threading.main_thread()] * 2


GOOD = """\
import edgebed

def build(shape, classes, params):
    raise AssertionError("doctor makes no model")

PLUGIN = edgebed.Plugin(
    models=[edgebed.ModelEntry("little", build=build), edgebed.ModelEntry("larger", build=build)],
    profiles={"microwave": {"latency": "3ms"}},
)
"""


def install(folder: Path, name: str, code: str) -> None:
    """As pip does it: a module, and what the package says of itself."""
    (folder / f"{name}.py").write_text(code)
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[edgebed]\n{name} = {name}\n")


def test_plug_ins_that_packages_advertise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, "lab", GOOD)
    install(tmp_path, "old", "import edgebed\nPLUGIN = edgebed.Plugin(topologies=[])\n")
    install(tmp_path, "quits", "raise SystemExit('no licence')\n")

    async def examine() -> list[Trial]:
        return doctor._plugins()

    monkeypatch.setattr(doctor, "examine", examine)
    done = CliRunner().invoke(cli, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    lab, old, quits = json.loads(done.stdout)["findings"]
    assert (lab["name"], lab["ok"]) == ("plug-in lab", True)
    assert lab["detail"] == "of lab-package: model little, model larger, link profile microwave"
    assert (old["name"], old["ok"]) == ("plug-in old", None)
    assert old["detail"].startswith("of old-package, cannot be used: old:2: TypeError: ")
    assert old["commands"][0].endswith("-m pip uninstall old-package")
    assert quits["detail"] == "of quits-package, cannot be used: quits:1: SystemExit: no licence"
    shown = CliRunner().invoke(cli, ["doctor"]).stdout
    assert "ok  plug-in lab    of lab-package: model little" in shown
