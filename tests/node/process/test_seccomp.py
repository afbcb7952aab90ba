"""What the filter answers, by carrying out its program as the kernel does (seccomp(2), bpf(4) of BSD)."""

from __future__ import annotations

import errno
import struct

import pytest

from node.process.seccomp import DENIED, NEWEST, filter_for

X86_64, AARCH64, I386 = 0xC000003E, 0xC00000B7, 0x40000003  # AUDIT_ARCH_* of linux/audit.h
ALLOWED = 0
CLONE_VM, CLONE_NEWUSER = 0x100, 0x10000000


def answer(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """The error that a call gets, `ALLOWED` for none."""
    made = filter_for(machine)
    assert made is not None
    lines = list(struct.iter_unpack("=HBBI", made.program))
    kind = architecture or {"x86_64": X86_64, "aarch64": AARCH64}[machine]
    data = struct.pack("<iIQ6Q", number, kind, 0, *arguments, *[0] * (6 - len(arguments)))
    value = place = 0
    while True:
        code, yes, no, k = lines[place]
        place += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, k)
            case 0x15:
                place += yes if value == k else no
            case 0x25:
                place += yes if value > k else no
            case 0x45:
                place += yes if value & k else no
            case 0x06:
                assert k >> 16 in (0x7FFF, 0x5)  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO
                return ALLOWED if k >> 16 == 0x7FFF else k & 0xFFFF
            case other:
                raise AssertionError(f"not an instruction of this program: {other:#x}")


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_what_is_denied_is_not_permitted(machine: str, column: int) -> None:
    numbers = [numbers[column] for numbers in DENIED.values() if numbers[column] is not None]
    assert len(numbers) > 45
    assert {answer(machine, number) for number in numbers if number is not None} == {errno.EPERM}


@pytest.mark.parametrize(("machine", "read", "futex"), [("x86_64", 0, 202), ("aarch64", 63, 98)])
def test_what_is_not_denied_passes(machine: str, read: int, futex: int) -> None:
    assert answer(machine, read) == answer(machine, futex) == answer(machine, NEWEST) == ALLOWED


@pytest.mark.parametrize(("machine", "clone", "socket"), [("x86_64", 56, 41), ("aarch64", 220, 198)])
def test_threads_and_networks_pass_and_namespaces_and_odd_families_do_not(
    machine: str, clone: int, socket: int
) -> None:
    assert answer(machine, clone, CLONE_VM) == ALLOWED
    assert answer(machine, clone, CLONE_VM | CLONE_NEWUSER) == errno.EPERM
    assert answer(machine, 435) == errno.ENOSYS  # clone3: the C library then uses clone
    assert [answer(machine, socket, family) for family in (1, 2, 10, 16)] == [ALLOWED] * 4
    assert answer(machine, socket, 16, 3, 12) == errno.EAFNOSUPPORT  # NETLINK_NETFILTER
    assert [answer(machine, socket, family) for family in (17, 38, 40)] == [
        errno.EAFNOSUPPORT
    ] * 3  # packet, alg, vsock


def test_calls_that_no_one_knew_do_not_exist() -> None:
    assert answer("x86_64", NEWEST + 1) == errno.ENOSYS
    assert answer("x86_64", 0x40000000) == errno.ENOSYS  # read of x32
    assert answer("x86_64", 21, architecture=I386) == errno.ENOSYS  # mount of 32 bits


def test_there_is_none_for_a_processor_whose_calls_are_not_listed() -> None:
    assert filter_for("riscv64") is None
