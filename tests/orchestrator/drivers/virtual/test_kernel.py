"""The build of the kernel, with small folders as its sources and scripts as its tools."""

from __future__ import annotations

import os
import platform
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.drivers.virtual import kernel
from orchestrator.drivers.virtual.kernel import BUILD, TOOLS, build, built_kernel, fingerprint, needed_kernel
from orchestrator.errors import HostError
from tests.texts import containing

NEW = ("6.11", "6.12")
"""Versions with the source that `kernel._FASTER` changes."""

MAKE = """\
#!/bin/sh
# The target is the last word.
for word; do
    case $word in
    --directory=*) source=${word#*=} ;;
    KCONFIG_ALLCONFIG=*) configuration=${word#*=} ;;
    allnoconfig) cp "$configuration" "$source/.config" ;;
    linux) cat "$source/version" >"$source/linux" ;;
    esac
done
"""


def silent(line: str) -> None:
    pass


@dataclass(frozen=True)
class Host:
    sources: Path
    tools: Path
    cache: Path

    def add_source(self, version: str, *, damaged: bool = False) -> None:
        """A source with the texts that the build changes, and a file with its version."""
        folder = self.sources / f"linux-source-{version}"
        changes = list(kernel._CHANGES)
        if version in NEW:
            changes += kernel._FASTER
        for name, text, _ in changes:
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as written:
                written.write("" if damaged else f"{text}\n")
        (folder / "version").write_text(version)
        with tarfile.open(self.sources / f"linux-source-{version}.tar.gz", "w:gz") as archive:
            archive.add(folder, folder.name)

    def set_tool(self, name: str, script: str) -> None:
        file = self.tools / name
        file.write_text(script)
        file.chmod(0o755)

    def add_built(self, version: str, digest: str) -> Path:
        folder = self.cache / "kernel" / f"{version}-{digest}"
        folder.mkdir(parents=True)
        file = folder / "linux"
        file.touch()
        return file

    @property
    def folders(self) -> list[str]:
        """What the build has left."""
        return sorted(path.name for path in (self.cache / "kernel").iterdir())


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(tmp_path / "src", tmp_path / "bin", tmp_path / "cache")
    host.sources.mkdir()
    host.tools.mkdir()
    for name in TOOLS:
        if name != "tar":
            host.set_tool(name, "#!/bin/sh\n")
    host.set_tool("make", MAKE)
    monkeypatch.setenv("PATH", f"{host.tools}:{os.environ['PATH']}")
    monkeypatch.setenv("EDGEBED_CACHE", str(host.cache))
    monkeypatch.setattr(kernel, "SOURCES", host.sources)
    monkeypatch.setattr(kernel, "PACKAGE", "no_such_package_of_a_kernel")
    monkeypatch.setattr(kernel, "ROOM", 0)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return host


def test_the_newest_source_is_built(host: Host) -> None:
    for version in ("6.9", "6.12", "6.1"):
        host.add_source(version)
    (host.sources / "linux-source-7.0").mkdir()  # unpacked by someone
    file = build(silent)
    assert file.read_text() == "6.12"
    assert host.folders == [f"6.12-{fingerprint()}"]  # neither the log nor the unpacked source
    assert needed_kernel() == built_kernel() == file


def test_a_built_kernel_is_used_again(host: Host) -> None:
    host.add_source("6.12")
    first = build(silent)
    host.set_tool("make", "#!/bin/sh\nexit 1\n")
    assert build(silent) == first


def test_the_newest_built_kernel_of_this_version_is_booted(host: Host) -> None:
    host.add_built("6.9", fingerprint())
    newest = host.add_built("6.12", fingerprint())
    host.add_built("7.0", "0123456789ab")  # by another version of edgebed
    assert built_kernel() == newest


def test_a_package_with_a_kernel_comes_first(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host.add_built("6.12", fingerprint())
    package = tmp_path / "packages" / "kernel_of_a_package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(kernel, "PACKAGE", package.name)
    assert built_kernel() == package / "linux"


@pytest.mark.parametrize(("version", "built_in"), [("6.9", "no"), ("6.12", "yes")])
def test_only_a_newer_kernel_runs_its_processes_faster(host: Host, version: str, built_in: str) -> None:
    host.add_source(version)
    look = 'test -f "$source/arch/um/os-Linux/skas/stub.c" && echo yes >"$source/linux" || echo no >"$source/linux"'
    host.set_tool("make", MAKE.replace('cat "$source/version" >"$source/linux"', look))
    assert build(silent).read_text().strip() == built_in


def test_another_configuration_needs_another_kernel(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.add_source("6.12")
    before = fingerprint()
    build(silent)
    other = tmp_path / "config"
    other.write_text(kernel.CONFIGURATION.read_text() + "CONFIG_MORE=y\n")
    monkeypatch.setattr(kernel, "CONFIGURATION", other)
    assert fingerprint() != before
    assert built_kernel() is None


def test_other_changes_of_the_source_need_another_kernel(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.add_built("6.12", fingerprint())
    monkeypatch.setattr(kernel, "_CHANGES", kernel._CHANGES[:-1])
    assert built_kernel() is None


def test_another_stub_needs_another_kernel(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host.add_built("6.12", fingerprint())
    other = tmp_path / "stub.c"
    other.write_text(kernel.STUB.read_text() + "/* more */\n")
    monkeypatch.setattr(kernel, "STUB", other)
    assert built_kernel() is None


def test_without_a_kernel_the_command_that_builds_one_is_the_remedy(host: Host) -> None:
    with pytest.raises(HostError) as refusal:
        needed_kernel()
    assert refusal.value.commands == (BUILD,)


def test_without_a_source_the_packages_are_the_remedy(host: Host) -> None:
    with pytest.raises(HostError, match=str(host.sources)) as refusal:
        build(silent)
    (command,) = refusal.value.commands
    words = command.split()
    assert words[:2] == ["apt-get", "install"]
    assert {"linux-source", "libc6-dev", *TOOLS.values()} <= set(words)


@pytest.mark.parametrize("name", TOOLS)
def test_a_missing_tool_is_named_with_its_package(host: Host, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host.add_source("6.12")
    host.set_tool("tar", "#!/bin/sh\n")
    (host.tools / name).unlink()
    monkeypatch.setenv("PATH", str(host.tools))
    with pytest.raises(HostError, match=TOOLS[name]) as refusal:
        build(silent)
    assert refusal.value.commands == (f"apt-get install {TOOLS[name]}",)


def test_missing_tools_are_in_one_command(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.add_source("6.12")
    monkeypatch.setenv("PATH", str(host.sources))
    with pytest.raises(HostError) as refusal:
        build(silent)
    assert refusal.value.commands == ("apt-get install " + " ".join(TOOLS.values()),)


def test_a_failed_build_keeps_its_log_and_leaves_no_folder(host: Host) -> None:
    host.add_source("6.12")
    host.set_tool("make", "#!/bin/sh\necho compiling\necho no such header >&2\nexit 2\n")
    with pytest.raises(HostError, match=r"`make`.*no such header.*build\.log"):
        build(silent)
    assert host.folders == ["build.log"]
    assert (host.cache / "kernel" / "build.log").read_text().splitlines() == ["compiling", "no such header"]
    assert built_kernel() is None


def test_a_source_without_a_changed_text_is_refused(host: Host) -> None:
    host.add_source("6.12", damaged=True)
    with pytest.raises(HostError, match=kernel._CHANGES[0][0]):
        build(silent)
    assert built_kernel() is None


def test_a_kernel_that_lacks_an_option_is_refused(host: Host) -> None:
    """The configuration switches virtual time on, and this source does not know it."""
    host.add_source("6.12")
    without = MAKE.replace('cp "$configuration"', 'grep -v TIME_TRAVEL "$configuration" >')
    host.set_tool("make", without)
    with pytest.raises(HostError, match="CONFIG_UML_TIME_TRAVEL_SUPPORT"):
        build(silent)
    assert built_kernel() is None


def test_too_little_room_is_refused(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.add_source("6.12")
    monkeypatch.setattr(kernel, "ROOM", 2**62)
    with pytest.raises(HostError, match="room"):
        build(silent)
    assert host.folders == []


def test_linux_has_no_user_mode_for_other_processors(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(HostError, match="aarch64") as refusal:
        build(silent)
    assert refusal.value.remedy == containing("--driver sim")
