from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from node import algorithms
from node.algorithms.parameters import FedProx, HierFAVG
from node.algorithms.registry import ALGORITHMS, Algorithm, algorithm
from node.catalogue.datasets import DATASETS, is_dataset
from node.catalogue.models import MODELS
from node.catalogue.partitions import PARTITIONS, Dirichlet, LabelShards
from node.catalogue.sizes import Size
from node.errors import PluginError
from node.learning.local_training import ClientWork, LocalTraining
from node.parameters import read_parameters
from node.role import Role


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learning_rate": 0}, "learning_rate: 0 is not a number"),
        ({"learning_rate": "0.1"}, "learning_rate: '0.1' is not a number"),
        ({"learning_rate": True}, "learning_rate: true is not a number"),
        ({"learning_rate": float("nan")}, "learning_rate: nan is not a number"),
        ({"momentum": 1}, "momentum: 1 is not a number"),
        ({"batch_size": 3.5}, "batch_size: 3.5 is not a whole"),
        ({"epochs": None}, "epochs: nothing is not a whole"),
        ({"steps": 0}, "steps: 0 is not a whole"),
        ({"learning-rate": 1}, "unknown parameter 'learning-rate'; did you mean 'learning_rate'?"),
        ({"x": 1}, "unknown parameter 'x' (allowed: optimizer, learning_rate, learning_rate_decay"),
    ],
)
def test_wrong_parameters_are_refused_with_the_reason(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared below
        read_parameters(LocalTraining, values)
    assert message in str(error.value)


def test_parameters_of_a_scenario() -> None:
    params = read_parameters(FedProx, {"mu": 1, "steps": 20})
    assert (params.mu, params.steps, params.learning_rate) == (1, 20, 0.01)


def test_hierfavg_takes_steps_once() -> None:
    with pytest.raises(ValueError, match="give one of them"):
        HierFAVG(kappa1=60, steps=60)


def test_an_algorithm_with_its_own_loop_refuses_the_parameters_of_gradients() -> None:
    own = [name for name, each in ALGORITHMS.items() if each.params.own_loop]
    assert own == ["fededs", "dffke", "fedfeat"]
    for name in own:
        for key, value in {"clipping": 1.0, "accumulation": 2, "checkpointing": True}.items():
            with pytest.raises(ValueError, match=rf"gradient_{key}: .* train.*own way"):
                read_parameters(ALGORITHMS[name].params, {f"gradient_{key}": value})


def test_the_longest_training_counts_whole_steps_and_the_second_forward_pass() -> None:
    work = ClientWork(100, 1, (1, 8, 8), 10, Size(1))
    assert LocalTraining(epochs=2, gradient_accumulation=4).longest_training(work) == 200
    assert LocalTraining(steps=5, batch_size=8, gradient_accumulation=4).longest_training(work) == 160
    assert HierFAVG(kappa1=5, batch_size=8, gradient_checkpointing=True).longest_training(work) == pytest.approx(
        40 * 4 / 3
    )


def test_partition_parameters() -> None:
    assert LabelShards(shard_size=300).shard_size == 300
    assert LabelShards().shard_size == "auto"
    with pytest.raises(ValueError, match="shard_size: 'all' is not auto"):
        LabelShards(shard_size="all")
    with pytest.raises(ValueError, match="variant"):
        Dirichlet(variant="clients")
    with pytest.raises(ValueError, match="below min_samples 10"):
        Dirichlet(samples_per_client=5)
    for scheme in PARTITIONS.values():
        assert scheme.short is None or hasattr(scheme.params(), scheme.short)


def test_topologies() -> None:
    fedavg, hierfavg, onlyedge = (ALGORITHMS[name] for name in ("fedavg", "hierfavg", "onlyedge"))
    assert fedavg.problem(cloud=True, edges=0, devices=10) is None
    assert fedavg.problem(cloud=True, edges=5, devices=0) is None
    assert "not both" in str(fedavg.problem(cloud=True, edges=5, devices=10))
    assert "hold data" in str(fedavg.problem(cloud=True, edges=0, devices=0))
    assert "needs cloud" in str(hierfavg.problem(cloud=False, edges=5, devices=10))
    assert "needs devices" in str(hierfavg.problem(cloud=True, edges=5, devices=0))
    assert onlyedge.problem(cloud=False, edges=5, devices=10) is None


def test_every_algorithm_has_its_module_and_roles() -> None:
    for each in ALGORITHMS.values():
        roles = import_module(each.module).ROLES
        needs = {"cloud": each.cloud, "edge": each.edges, "device": each.devices}
        assert set(roles) == {tier for tier, need in needs.items() if need != "none"}


def test_no_algorithm_reaches_into_a_role() -> None:
    private = {each for each in (*vars(Role), *Role.__init__.__code__.co_names) if re.match("_[a-z]", each)}
    assert "_assignment" in private
    files = sorted(Path(algorithms.__path__[0]).rglob("*.py"))
    assert len(files) > len(ALGORITHMS)
    for file in files:
        assert not private & set(re.findall(r"\.(_\w+)", file.read_text())), file


def test_models_refuse_shapes_they_cannot_take() -> None:
    with pytest.raises(ValueError, match=r"phefl-cnn.*4x4, not .* \(3, 128\)"):
        MODELS["phefl-cnn"].size((3, 128), 6)
    with pytest.raises(ValueError, match="model cnn: takes images or sequences"):
        MODELS["cnn"].size((20,), 2)
    with pytest.raises(ValueError, match="model mlp: hidden: 0 is not"):
        MODELS["mlp"].size((20,), 2, {"hidden": 0})


def test_bytes_on_the_wire() -> None:
    # 26,434 parameters and 2 x (6 + 16) running statistics of 4 bytes, 2 counters of 8.
    assert MODELS["cnn"].size((1, 28, 28), 10).bytes == 4 * (26_434 + 44) + 16


def test_names_of_data_sets() -> None:
    assert all(is_dataset(name) for name in (*DATASETS, "npz:data/x.npz", "images:/pictures"))
    assert not any(is_dataset(name) for name in ("npz:", "imagenet", "npz"))


def test_the_vocabulary_needs_no_torch() -> None:
    modules = (
        "node.algorithms.registry, node.catalogue.models, node.learning.data.datasets, node.learning.data.partition"
    )
    code = f"import sys, {modules}; print([m for m in ('torch', 'PIL', 'torchvision') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_an_algorithm_to_build_on() -> None:
    assert algorithm("fedprox").params is FedProx
    assert issubclass(algorithm("fedprox").roles["device"], Role)
    with pytest.raises(PluginError, match="'fedsgd' is no algorithm"):
        algorithm("fedsgd")


def test_a_module_may_hold_the_roles_of_several_algorithms() -> None:
    mine, other = ({"cloud": Role}, {"cloud": Role, "device": Role})
    assert Algorithm("mine", table={"mine": mine, "other": other}).roles is mine
    assert Algorithm("mine", table=other).roles is other
