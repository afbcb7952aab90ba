"""What `unshare` says and what sysctl shows lead to the remedy that belongs to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.host.kernel.namespaces import refusal, refused

FORBIDDEN = "unshare: unshare failed: Operation not permitted"
FULL = "unshare: unshare failed: No space left on device"  # what unshare(2) says of a limit


def settings(folder: Path, **values: str) -> Path:
    for name, value in values.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{value}\n")
    return folder


@pytest.mark.parametrize(
    ("said", "values", "commands"),
    [
        (
            FORBIDDEN,
            {"kernel__unprivileged_userns_clone": "0", "kernel__apparmor_restrict_unprivileged_userns": "0"},
            ("sysctl kernel.unprivileged_userns_clone=1",),
        ),
        (
            FORBIDDEN,
            {"kernel__unprivileged_userns_clone": "1", "kernel__apparmor_restrict_unprivileged_userns": "1"},
            ("sysctl kernel.apparmor_restrict_unprivileged_userns=0",),
        ),
        (
            FULL,
            {"user__max_user_namespaces": "9000", "user__max_net_namespaces": "0"},
            ("sysctl user.max_net_namespaces=65536",),
        ),
        (FULL, {}, ("sysctl user.max_user_namespaces=65536", "sysctl user.max_net_namespaces=65536")),
    ],
)
def test_the_remedy_is_the_causes_own(
    tmp_path: Path, said: str, values: dict[str, str], commands: tuple[str, ...]
) -> None:
    error = refused(said, root=False, settings=settings(tmp_path, **values))
    assert error.commands == commands
    assert "as root" in error.remedy


def test_root_in_a_container_and_a_user_whom_no_setting_forbids(tmp_path: Path) -> None:
    assert "--privileged" in refused(FORBIDDEN, root=True, settings=tmp_path).remedy
    other = refused(FORBIDDEN, root=False, settings=tmp_path)
    assert FORBIDDEN in other.what
    assert "run as root" in other.remedy


@pytest.mark.netns
def test_this_host_lets_namespaces_be_made() -> None:
    assert refusal() is None
