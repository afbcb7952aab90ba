"""The faults that are put into modules on purpose."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.campaign.mutation import (
    FURTHER,
    PACKAGES,
    ROOT,
    Copies,
    Fault,
    faults,
    faults_of,
    near_tests,
    run,
    sample,
    seed_of,
)

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


def test_the_seed_of_a_package_follows_from_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = {seed_of(package) for package in PACKAGES}
    assert len(seeds) == len(PACKAGES)
    first = PACKAGES[0]
    before = seed_of(first)
    assert seed_of(first) == before
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"#")
    assert seed_of(first) != before


@pytest.mark.slow
def test_most_of_a_small_sample_of_faults_is_noticed() -> None:
    """Two faults of each package, drawn anew when the package changes. A failure need not concern that change: see
    `make campaign-mutation` for more faults.

    If 90 % of all faults are noticed, fewer than 5 of 8 are by chance in one of 200 samples (binomial distribution).
    If 60 % are, in two of five samples.
    """
    chosen = []
    for package in PACKAGES:
        every = faults_of([package])
        chosen += sample(every, 2, seed_of(package))
    missed = run(chosen, workers=2, passing=True)
    assert len(chosen) == 8
    assert len(chosen) - len(missed) >= 5, [str(fault) for fault in missed]


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
