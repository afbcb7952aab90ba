"""Faults put in on purpose, which the tests near them must notice: `python -m tests.campaign.mutation`.

A fault changes one token of a module: a comparison, an operator, a number, a condition. It is put into a copy of the
project, the tests that mirror the module's folder run there, and the fault counts as noticed if one of them fails or
does not end. Annotations and texts are left alone.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import hashlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.campaign.dice import Dice

ROOT = Path(__file__).parents[2]
PACKAGES = ("netem/measurement", "orchestrator/results/checks", "node/messaging", "orchestrator/planning")
GOAL = 0.9  # of the faults are noticed
UNMARKED = "not (engine or netns or alone or lab or long or slow or e2e)"
LIMIT = 120.0  # s after which tests that go on have noticed the fault
COMPUTING = 60  # s of a processor, the same; the tests of a folder need 5 to 10
# Quick tests outside of the folders that mirror a package, in virtual time.
FURTHER = {"node/messaging": ["tests/conformance/test_transports.py::test_memory", "tests/node/test_role.py"]}
CHECKED = ("frozen", "kw_only", "slots")  # of dataclasses: mypy notices what they forbid

COMPARISONS: dict[type[ast.cmpop], tuple[str, list[str]]] = {
    ast.Lt: ("<", ["<=", ">="]),
    ast.LtE: ("<=", ["<", ">"]),
    ast.Gt: (">", [">=", "<="]),
    ast.GtE: (">=", [">", "<"]),
    ast.Eq: ("==", ["!="]),
    ast.NotEq: ("!=", ["=="]),
    ast.In: ("in", ["not in"]),
    ast.NotIn: ("not in", ["in"]),
    ast.Is: ("is", ["is not"]),
    ast.IsNot: ("is not", ["is"]),
}
OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
}
CONDITIONS: dict[type[ast.boolop], tuple[str, str]] = {ast.And: ("and", "or"), ast.Or: ("or", "and")}
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Fault:
    """``new`` in the place of the text from ``start`` to ``end``, which are characters of the file."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.old} → {self.new}"

    def put_into(self, source: str) -> str:
        return source[: self.start] + self.new + source[self.end :]


def faults(file: str, source: str) -> list[Fault]:
    """All faults of a module, in the order of the text."""
    tree = ast.parse(source)
    places = _Places(source)
    made = []
    for node in _code(tree):
        for start, end, new in _changes(node, places):
            old = source[start:end]
            made.append(Fault(file, source.count("\n", 0, start) + 1, start, end, old, new))
    return sorted(made, key=lambda fault: (fault.start, fault.new))


class _Places:
    """Where a node stands in the text, in characters: `ast` counts bytes of a line."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: ast.expr) -> int:
        return self._at(node.lineno, node.col_offset)

    def end(self, node: ast.expr) -> int:
        return self._at(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _at(self, line: int, column: int) -> int:
        before = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(before)

    def between(self, left: ast.expr, right: ast.expr, token: str) -> tuple[int, int] | None:
        """Where a token stands between two nodes. None if it cannot be seen, for example behind a comment."""
        start = self.end(left)
        text = self.source[start : self.start(right)]
        if "#" in text or text.count(token) != 1:
            return None
        at = start + text.index(token)
        return at, at + len(token)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below a node, without those that no test can notice: annotations, documentation, texts of errors."""
    if isinstance(node, ast.Raise) or (isinstance(node, ast.keyword) and node.arg in CHECKED):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        children = value if isinstance(value, list) else [value]
        for child in children:
            if isinstance(child, ast.JoinedStr) or not isinstance(child, ast.AST):
                continue
            yield from _code(child)


def _changes(node: ast.AST, places: _Places) -> Iterator[tuple[int, int, str]]:
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        for number, operator in enumerate(node.ops):
            token, others = COMPARISONS[type(operator)]
            place = places.between(operands[number], operands[number + 1], token)
            for other in others if place else []:
                yield *(place or (0, 0)), other
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        token, other = OPERATORS[type(node.op)]
        place = places.between(node.left, node.right, token)
        if place and not _is_text(node.left) and not _is_text(node.right):
            yield *place, other
    elif isinstance(node, ast.BoolOp):
        token, other = CONDITIONS[type(node.op)]
        for left, right in zip(node.values, node.values[1:], strict=False):
            place = places.between(left, right, token)
            if place:
                yield *place, other
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        start = places.start(node)
        yield start, start + len("not"), ""
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield places.start(node), places.end(node), str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield places.start(node), places.end(node), repr(node.value + 1)
    elif isinstance(node, ast.Constant) and isinstance(node.value, float):
        yield places.start(node), places.end(node), repr(node.value * 2 or 1.0)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        yield places.start(node.func), places.end(node.func), FUNCTIONS[node.func.id]
    elif isinstance(node, ast.If | ast.While | ast.IfExp) and isinstance(
        node.test, ast.Name | ast.Call | ast.Attribute
    ):
        yield places.start(node.test), places.start(node.test), "not "


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def modules(packages: Iterable[str]) -> list[str]:
    """The modules of packages, or modules that are named themselves, below the project."""
    names = []
    for package in packages:
        path = ROOT / package
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        names += [file.relative_to(ROOT).as_posix() for file in files]
    return names


def faults_of(packages: Iterable[str]) -> list[Fault]:
    """All faults of packages."""
    every: list[Fault] = []
    for name in modules(packages):
        every += faults(name, (ROOT / name).read_text())
    return every


def near_tests(file: str) -> list[str]:
    """The tests of a module: first its own, then those that mirror its folder, then those `FURTHER` away."""
    folder = Path("tests", file).parent
    own = folder / f"test_{Path(file).stem}.py"
    near = [own.as_posix()] if (ROOT / own).exists() else []
    if (ROOT / folder).is_dir():
        near.append(folder.as_posix())
    for package, tests in FURTHER.items():
        if file.startswith(f"{package}/"):
            near += tests
    return near


class Copies:
    """Copies of the project, one for each worker, that are removed in the end."""

    def __init__(self, count: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="edgebed-mutation-")
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        for number in range(count):
            copy = Path(self._folder.name, str(number))
            for name in filter(None, listed.stdout.split("\0")):
                target = copy / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target, follow_symlinks=False)
            self._free.put(copy)

    def __enter__(self) -> Copies:
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()

    def pass_without(self, tests: str) -> bool:
        """Whether tests pass as long as there is no fault."""
        copy = self._free.get()
        try:
            return not _fails(copy, tests)
        finally:
            self._free.put(copy)

    def noticed(self, fault: Fault, tests: Iterable[str]) -> bool:
        """Whether one of these tests fails with the fault."""
        copy = self._free.get()
        path = copy / fault.file
        source = path.read_text()
        try:
            path.write_text(fault.put_into(source))
            return any(_fails(copy, path) for path in tests)
        finally:
            path.write_text(source)
            self._free.put(copy)


def _fails(copy: Path, tests: str) -> bool:
    limited = ["sh", "-c", f'ulimit -t {COMPUTING}; exec "$@"', "sh"]
    testing = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", UNMARKED, tests]
    command = [*limited, *testing]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTEST_ADDOPTS": ""}
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(LIMIT) not in (0, 5)  # 5: nothing was selected
    except subprocess.TimeoutExpired:
        return True
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def sample(every: Sequence[Fault], count: int, seed: int) -> list[Fault]:
    """So many of the faults, drawn by a seed; all if there are fewer."""
    if len(every) <= count:
        return list(every)
    return Dice(seed, "mutation").some(every, count)


def seed_of(package: str) -> int:
    """A seed that follows from the text of a package: it stays the same until a module changes."""
    digest = hashlib.sha256()
    for name in modules([package]):
        digest.update((ROOT / name).read_bytes())
    return int.from_bytes(digest.digest()[:4])


def run(chosen: Sequence[Fault], workers: int, *, passing: bool = False) -> list[Fault]:
    """Put each fault in, and return those that no test notices. RuntimeError if the tests fail without a fault.
    ``passing``: they are known to pass."""
    missed = []
    near: set[str] = set()
    if not passing:
        for fault in chosen:
            near.update(near_tests(fault.file))
    with Copies(workers) as copies, concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for tests, passed in zip(near, pool.map(copies.pass_without, near), strict=True):
            if not passed:
                raise RuntimeError(f"{tests} fails without any fault")
        near_each = [near_tests(fault.file) for fault in chosen]
        for fault, noticed in zip(chosen, pool.map(copies.noticed, chosen, near_each), strict=True):
            if not noticed:
                missed.append(fault)
                print(f"not noticed: {fault}", flush=True)
    return missed


def main() -> int:
    arguments = _arguments()
    failed = False
    for package in arguments.packages:
        began = time.monotonic()
        every = faults_of([package])
        chosen = sample(every, arguments.faults, arguments.seed)
        missed = run(chosen, arguments.workers)
        share = 1 - len(missed) / max(1, len(chosen))
        seconds = time.monotonic() - began
        print(f"{package}: {share:.0%} of {len(chosen)} faults noticed, of {len(every)}; {seconds:.0f} s", flush=True)
        if share < GOAL:
            failed = True
    return int(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign.mutation", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("packages", nargs="*", default=PACKAGES, help="folders or modules (default: %(default)s)")
    parser.add_argument("--faults", type=int, default=50, help="of each package (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="at a time (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
