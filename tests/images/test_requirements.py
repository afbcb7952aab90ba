"""What the images install: everything that a node or an agent imports, nothing else, in the versions that the tests ran
with.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
MACHINES = ("x86_64", "aarch64")
OF_ITS_OWN = {"x86_64": {}, "aarch64": {"torch": "2.6.0", "torchvision": "0.21.0", "sympy": "1.13.1"}}
NOT_TO_RUN = {"setuptools"}  # torch's, to compile extensions
FOR_GPUS = re.compile("nvidia-|cuda-|triton$")  # required by the torch that pip takes for PCs
BY_NAME = {"torchvision"}  # node.learning.networks.vision imports it so, for the models that need it
OURS = {"edgebed"}
TO_PREPARE_DATA = {"PIL", "pyarrow", "datasets", "flwr_datasets"}  # by the host; nodes find them prepared


def pins(path: Path) -> dict[str, str]:
    """Versions by name. A requirements file of this project has nothing but comments and exact versions."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    pairs = [line.split("==") for line in lines]
    assert all(len(pair) == 2 for pair in pairs), lines
    return {canonicalize_name(name): version for name, version in pairs}


def of_agents() -> dict[str, str]:
    return pins(ROOT / "images" / "agent" / "requirements.txt")


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


def absent(installed: Iterable[str]) -> set[str]:
    """The modules here that come from other distributions."""
    distributions = packages_distributions()
    return {
        module
        for module, names in distributions.items()
        if not {canonicalize_name(name) for name in names} <= {*installed, *OURS}
    }


@pytest.mark.slow
def test_a_node_imports_four_packages_and_others_only_to_prepare_data() -> None:
    assert imports(wherever=False) == {"msgpack", "numpy", "torch", "zmq"}
    assert imports(wherever=True) == imports(wherever=False) | TO_PREPARE_DATA


@pytest.mark.slow
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


def test_the_oldest_python_of_the_project_can_install_every_version() -> None:
    """Debian 12 has Python 3.11.2. Its pip searches for minutes if a version needs a later one."""
    oldest = "3.11.0"
    for name in pins(ROOT / "constraints.txt"):
        required = str(distribution(name).metadata.json.get("requires_python", ""))
        assert SpecifierSet(required).contains(oldest), f"{name} requires Python {required}"


OF_AN_AGENT = """
import sys

sys.modules.update(dict.fromkeys(sys.argv[1:]))
import netem.measurement.endpoints, netem.userspace.switch, orchestrator.fabric.tc.netem_support
import orchestrator.agent.__main__, orchestrator.agent.host_run
print(*{name.partition(".")[0] for name, module in sys.modules.items() if module is not None})
"""
"""An agent and the processes that it starts in the hub and in nodes."""


@pytest.mark.slow
def test_an_agent_has_what_it_imports_and_what_that_requires_and_needs_nothing_else() -> None:
    command = [sys.executable, "-c", OF_AN_AGENT, *absent(of_agents())]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    distributions = packages_distributions()
    imported = {distributions[module][0] for module in set(said.split()) & distributions.keys()} - OURS
    assert set(of_agents()) == {name for each in imported for name in needed(each)}
    assert "torch" not in of_agents()


def test_the_versions_of_an_agent_are_those_of_the_project() -> None:
    project = pins(ROOT / "constraints.txt")
    assert of_agents() == {name: project[name] for name in of_agents()}


A_TASK = """
import sys

sys.modules.update(dict.fromkeys(sys.argv[1:]))
import orchestrator.cli.main, orchestrator.drivers.sim.driver, orchestrator.sweep.running
import orchestrator.agent.in_namespaces, orchestrator.drivers.kubernetes.entry, orchestrator.drivers.hosts.environment
print("loaded")
"""


@pytest.mark.slow
def test_a_task_of_a_sweep_and_an_agent_in_a_pod_need_what_a_node_has_and_their_own_packages() -> None:
    own, project = pins(ROOT / "images" / "edgebed" / "requirements.txt"), pins(ROOT / "constraints.txt")
    assert own == {name: project[name] for name in own}
    shared = set.intersection(*(set(of(machine)) for machine in MACHINES))
    assert not own.keys() & set.union(*(set(of(machine)) for machine in MACHINES))
    command = [sys.executable, "-c", A_TASK, *absent({*shared, *own})]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    assert said == "loaded\n"


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
    left_out = absent(of("x86_64")) | {"orchestrator"}
    assert {"pandas", "pydantic", "click", "docker", "setuptools"} <= left_out
    subprocess.run([sys.executable, "-c", NOTHING_ELSE, *left_out], cwd=ROOT, check=True, timeout=120)
