from __future__ import annotations

from orchestrator.drivers.user import mapped, own_user


def test_nodes_are_users_of_their_own_in_their_runs_group() -> None:
    one, other = own_user("small-1", "device-0"), own_user("small-1", "device-1")
    assert one.uid != other.uid
    assert one.gid == other.gid != own_user("small-2", "device-0").gid
    assert own_user("small-1", "device-0") == one  # a run that is continued finds its files
    assert all(0x70000000 <= number < 0x7FFFFFFE for number in (one.uid, one.gid))


def test_not_every_root_has_users_to_give() -> None:
    assert mapped("         0          0 4294967295\n")
    assert not mapped("0 100000 65536\n")  # root of a container with remapped users
    assert not mapped("0 1000 1\n")
