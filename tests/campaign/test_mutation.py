"""The faults that are put into modules on purpose."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.campaign.mutation import FURTHER, PACKAGES, ROOT, Copies, Fault, faults, faults_of, near_tests, sample

SOURCE = '''"""A module: 1 < 2 and 3."""


def within(x: int | None, low: float = 0.5) -> bool:
    """1 < 2."""
    if x is None:
        raise ValueError(f"{x + 1} is none" + str(2))
    return low <= x and not x == 7  # 1 < 2
'''


def test_faults_change_one_token_each_and_no_text() -> None:
    changes = [(fault.line, fault.old, fault.new) for fault in faults("within.py", SOURCE)]
    assert changes == [
        (4, "0.5", "1.0"),
        (6, "is", "is not"),
        (8, "<=", "<"),
        (8, "<=", ">"),
        (8, "and", "or"),
        (8, "not", ""),
        (8, "==", "!="),
        (8, "7", "8"),
    ]
    assert faults("point.py", "@dataclass(frozen=True, order=True)\nclass Point:\n    x: int\n") == [
        Fault("point.py", 1, 30, 34, "True", "False")
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_faults_of_a_package_are_still_python(package: str) -> None:
    every = faults_of([package])
    assert len(every) > 100
    for fault in every[::25]:
        source = (ROOT / fault.file).read_text()
        changed = fault.put_into(source)
        assert changed != source
        ast.parse(changed)


def test_a_sample_depends_on_its_seed() -> None:
    every = faults_of(PACKAGES[:1])
    assert sample(every, 5, seed=1) == sample(every, 5, seed=1) != sample(every, 5, seed=2)
    assert sample(every[:3], 5, seed=1) == every[:3]


def test_a_modules_own_tests_come_first() -> None:
    assert near_tests("netem/measurement/judge.py") == [
        "tests/netem/measurement/test_judge.py",
        "tests/netem/measurement",
    ]


def test_further_tests_of_a_package_are_there() -> None:
    near = near_tests("node/messaging/delivery/stream.py")
    assert near[:2] == ["tests/node/messaging/delivery/test_stream.py", "tests/node/messaging/delivery"]
    assert near[2:] == FURTHER["node/messaging"]
    for tests in FURTHER.values():
        for name in tests:
            file, _, function = name.partition("::")
            assert f"def {function}" in (ROOT / file).read_text()


@pytest.mark.slow
def test_a_fault_is_noticed_in_a_copy_and_the_project_stays_as_it_is() -> None:
    file = "netem/measurement/intervals.py"
    source = (ROOT / file).read_text()
    fault = next(fault for fault in faults(file, source) if fault.old == "-")
    harmless = Fault(file, 1, 0, 0, "", "")
    own = near_tests(file)[:1]
    with Copies(1) as copies:
        assert copies.pass_without(own[0])
        assert copies.noticed(fault, own)
        assert not copies.noticed(harmless, own)
    assert Path(ROOT, file).read_text() == source
