"""What the images install: everything that a node imports, nothing else, in the versions that the tests ran with."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
MACHINES = ("x86_64", "aarch64")
OF_ITS_OWN = {"x86_64": {}, "aarch64": {"torch": "2.6.0", "torchvision": "0.21.0", "sympy": "1.13.1"}}
NOT_TO_RUN = {"setuptools"}  # torch's, to compile extensions
FOR_GPUS = re.compile("nvidia-|cuda-|triton$")  # required by the torch that pip takes for PCs
BY_NAME = {"torchvision"}  # node.learning.vision imports it so, for the models that need it
TO_PREPARE_DATA = {"PIL", "sklearn"}  # which is done on the host: nodes find data sets prepared


def pins(path: Path) -> dict[str, str]:
    """Versions by name. A requirements file of this project has nothing but comments and exact versions."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    pairs = [line.split("==") for line in lines]
    assert all(len(pair) == 2 for pair in pairs), lines
    return {canonicalize_name(name): version for name, version in pairs}


def of(machine: str) -> dict[str, str]:
    return pins(ROOT / "images" / f"requirements-{machine}.txt")


def imports(wherever: bool) -> set[str]:
    """Top-level names that the files of node/ import from outside, as they are loaded or `wherever` in them."""
    found = set()
    for path in (ROOT / "node").rglob("*.py"):
        tree = ast.parse(path.read_text())
        for statement in ast.walk(tree) if wherever else tree.body:
            match statement:
                case ast.Import(names=names):
                    found |= {each.name.partition(".")[0] for each in names}
                case ast.ImportFrom(module=str() as module, level=0):
                    found.add(module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"node"}


def needed(name: str) -> Iterator[str]:
    """A distribution and all that it requires, as installed here."""
    yield canonicalize_name(name)
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        found = canonicalize_name(requirement.name)
        if wanted and found not in NOT_TO_RUN and not FOR_GPUS.match(found):
            yield from needed(requirement.name)


def test_a_node_imports_four_packages_and_two_more_only_to_prepare_data() -> None:
    assert imports(wherever=False) == {"msgpack", "numpy", "torch", "zmq"}
    assert imports(wherever=True) == imports(wherever=False) | TO_PREPARE_DATA


def test_the_image_has_what_a_node_imports_and_what_that_requires() -> None:
    distributions = packages_distributions()
    wanted = {name for module in imports(wherever=False) | BY_NAME for name in needed(distributions[module][0])}
    for machine in MACHINES:
        assert set(of(machine)) == wanted


@pytest.mark.parametrize("machine", MACHINES)
def test_versions_are_those_of_the_project_but_where_a_machine_has_its_own(machine: str) -> None:
    project = pins(ROOT / "constraints.txt")
    versions = {name: re.sub(r"\+cpu$", "", version) for name, version in of(machine).items()}
    assert versions == {name: project[name] for name in versions} | OF_ITS_OWN[machine]


def test_torch_is_without_cuda() -> None:
    """On PCs that is a build of its own, told by its version; for Arm, 2.6.0 is the last without on the usual index."""
    assert of("x86_64")["torch"].endswith("+cpu")
    assert of("aarch64")["torch"] == "2.6.0"


NOTHING_ELSE = """
import sys

sys.modules.update(dict.fromkeys(sys.argv[1:]))  # an import of a module that is None fails
import node.process.main
node.process.main.preload()
import torch
from node.learning.models import build
build("cnn", (1, 28, 28), 10, seed=1)(torch.zeros(2, 1, 28, 28)).sum().backward()
"""


@pytest.mark.slow
def test_a_node_trains_with_nothing_else() -> None:
    present = {
        module
        for module, names in packages_distributions().items()
        if {canonicalize_name(name) for name in names} <= set(of("x86_64"))
    }
    absent = set(packages_distributions()) - present - {"edgebed", "node", "netem"}
    assert {"sklearn", "scipy", "pydantic", "click", "docker", "setuptools"} <= absent
    subprocess.run([sys.executable, "-c", NOTHING_ELSE, *absent], cwd=ROOT, check=True, timeout=120)
