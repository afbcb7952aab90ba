from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebed.baselines.compressed import Memory, added, largest, quantised, restored, spread, vector
from edgebed.testing import Federation, federation, hierarchy, star
from node.algorithms.registry import ALGORITHMS
from node.parameters import read_parameters

LOCAL: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 16}


def floats(values: Any) -> Any:
    return np.array(values, np.float32)


def run(folder: Path, algorithm: str, tree: Any, **more: Any) -> Federation:
    folder.mkdir(exist_ok=True)
    params = {**LOCAL, **more.pop("params", {})}
    return federation(folder, "edgebed.baselines.compressed", algorithm, tree, params=params, **more)


def plain(of: Federation, algorithm: str, folder: Path) -> Federation:
    """The wrapped algorithm on the same data."""
    params = read_parameters(ALGORITHMS[algorithm].params, LOCAL)
    return Federation(of.data, of.tree, algorithm, params, folder, rounds=of.rounds, partition=of.partition)


def test_the_largest_worked_example() -> None:
    """u = [1, -5, 2, 0] + [0, 1, 2, 3] = [1, -4, 4, 3]; half of it are places 1 and 2, and [1, 0, 0, 3] is left."""
    update, memory = floats([1, -5, 2, 0]), floats([0, 1, 2, 3])
    sent, left = largest(update, memory, 0.5)
    assert (sent["places"].tolist(), sent["values"].tolist(), left.tolist()) == ([1, 2], [-4, 4], [1, 0, 0, 3])
    assert spread(sent, 4).tolist() == [0, -4, 4, 0]


def answered(memory: Memory, t: int, counted: int, update: Any) -> tuple[list[float], list[float]]:
    """Half of u in round t, and the memory that went into it."""
    before = memory.of_round(t, counted)
    part, left = largest(floats(update), before, 0.5)
    memory.answer(t, part, left)
    return spread(part, len(update)).tolist(), np.broadcast_to(before, len(update)).tolist()


def test_what_was_not_counted_returns_to_the_memory() -> None:
    """Round 1 sends [3, 0] of [3, 1] and is counted. Round 2 sends [5, 0] of [5, 1] + [0, 1] and is lost, so round 3
    starts from all of [5, 2]."""
    memory = Memory()
    assert answered(memory, 1, 0, [3, 1]) == ([3, 0], [0, 0])
    assert answered(memory, 2, 1, [5, 1]) == ([5, 0], [0, 1])
    assert answered(memory, 3, 1, [0, 9]) == ([0, 11], [5, 2])
    assert memory.of_round(4, 3).tolist() == [5, 0]


def test_what_counts_late_leaves_the_memory() -> None:
    """Round 1 sends [3, 0] of [3, 1], which returns before round 2, and counts after that. So round 3 starts with the
    1 that round 1 left and what round 2 sent in vain: [3, 1] + [1, 9] − [3, 0]."""
    memory = Memory()
    answered(memory, 1, 0, [3, 1])
    assert answered(memory, 2, 0, [1, 9]) == ([0, 10], [3, 1])
    assert memory.of_round(3, 1).tolist() == [1, 10]


def test_a_round_that_comes_again_has_the_memory_from_before_it() -> None:
    memory = Memory()
    answered(memory, 1, 0, [3, 1])
    first = answered(memory, 2, 1, [5, 1])
    memory = Memory.kept(memory.tensors(), memory.facts())
    assert answered(memory, 2, 1, [5, 1]) == first
    assert memory.of_round(3, 2).tolist() == [0, 2]


def test_levels_worked_example() -> None:
    """v = [3, -4] has the norm 5. Of five levels the values are 3 and -4 exactly; of one, each is 0 or ±5."""
    sent = quantised(floats([3, -4]), 5, 2, seed=1)
    assert (sent["norms"].tolist(), sent["levels"].tolist(), sent["levels"].dtype) == ([5.0], [3, -4], np.dtype("i1"))
    assert restored(sent, 2, 5, 2).tolist() == [3.0, -4.0]
    for seed in range(5):
        assert set(np.abs(restored(quantised(floats([3, -4]), 1, 2, seed), 2, 1, 2)).tolist()) <= {0.0, 5.0}


def test_quantisation_is_unbiased() -> None:
    """The mean of n draws of ±‖v‖ ξ at one level has a standard deviation of at most ‖v‖ / (2 √n)."""
    v = np.random.default_rng(0).normal(size=50).astype(np.float32)
    draws = [restored(quantised(v, 1, 25, seed), 50, 1, 25) for seed in range(2000)]
    np.testing.assert_allclose(np.mean(draws, axis=0), v, atol=5 * np.linalg.norm(v) / (2 * np.sqrt(2000)))


@pytest.mark.parametrize(("levels", "width"), [(127, 1), (128, 2), (32768, 4)])
def test_levels_travel_as_narrow_as_they_can(levels: int, width: int) -> None:
    assert quantised(floats([1, 0, 0]), levels, 2, seed=1)["levels"].dtype.itemsize == width
    sent = quantised(floats([0, 0, -7]), levels, 2, seed=1)
    assert restored(sent, 3, levels, 2).tolist() == [0, 0, -7]


def test_only_trained_values_take_an_update() -> None:
    state = {"seen": np.array(4), "a": floats([[1, 2]]), "variance": floats([7]), "b": floats([3])}
    assert vector(state, ("a", "b")).tolist() == [1, 2, 3]
    found = added(state, floats([10, 20, 30]), ("a", "b"))
    assert [found[name].tolist() for name in state] == [4, [[11, 22]], [7], [33]]


def test_what_does_not_fit_is_refused() -> None:
    sparse = {"places": np.array([0, 4], np.int32), "values": floats([1, 1])}
    with pytest.raises(ValueError, match="not in the model"):
        spread(sparse, 4)
    with pytest.raises(ValueError, match="do not fit"):
        spread(sparse | {"values": floats([1])}, 9)
    with pytest.raises(ValueError, match="do not fit"):
        restored(quantised(floats([1, 2]), 1, 2, 1), 3, 1, 2)


@pytest.mark.parametrize("base", ["fedavg", "hierfavg"])
@pytest.mark.parametrize(("kind", "params"), [("top-k", {"kept": 1.0}), ("qsgd", {"levels": 2**31 - 1})])
def test_everything_kept_is_the_wrapped_algorithm(tmp_path: Path, base: str, kind: str, params: Any) -> None:
    tree = hierarchy([2, 1]) if base == "hierfavg" else star(3)
    found = run(tmp_path / "wrapped", f"{kind}-{base}", tree, params=params, rounds=1, model="cnn").run()
    expected = plain(found, base, tmp_path / "plain")
    expected.model = "cnn"
    state = expected.run().state("cloud")
    assert state.keys() == found.state("cloud").keys()
    for name, values in state.items():
        np.testing.assert_allclose(found.state("cloud")[name], values, atol=3e-6)


@pytest.mark.parametrize(("kind", "params"), [("top-k", {"kept": 0.05}), ("qsgd", {"levels": 3, "bucket": 64})])
def test_it_learns_in_a_hierarchy(tmp_path: Path, kind: str, params: Any) -> None:
    journal = run(tmp_path, f"{kind}-hierfavg", hierarchy([2, 2]), params=params, rounds=6).run().journals["cloud"]
    assert journal.series("global")[6] > 0.6
    assert "bad_message" not in {name for name, _, _ in journal.events}


@pytest.mark.parametrize("kind", ["top-k", "qsgd"])
def test_an_update_that_is_not_finite_is_refused_and_forgotten(tmp_path: Path, kind: str) -> None:
    found = run(tmp_path, f"{kind}-fedavg", star(2), params={"learning_rate": 1e30}, rounds=2).run()
    assert found.journals["cloud"].rounds("not_finite") == [1, 1, 2, 2]
    if kind == "top-k":
        assert all(np.isfinite(found.roles[f"device-{k}"].memory.left).all() for k in range(2))  # type: ignore[attr-defined]


OWN = """\
import edgebed
from edgebed.baselines.compressed import wrapped

ALGORITHM, ROLES = wrapped("top-k", edgebed.algorithm("edgecloud"))
PLUGIN = edgebed.Plugin(algorithms=[ALGORITHM])
"""


def test_a_plug_in_of_ones_own_wraps_another_algorithm(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    params = {**LOCAL, "kept": 0.5}
    found = federation(tmp_path, tmp_path / "mine.py", "top-k-edgecloud", hierarchy([2, 2]), params=params).run()
    assert set(found.journals["cloud"].series("global")) == {1, 2, 3}


def test_what_compression_leaves_out_is_reported(tmp_path: Path) -> None:
    """Half of u, the larger one, has at least half of its square. 127 levels of a bucket of 512 values round by at most
    1/127 of the bucket's norm each, so all of them by at most √512 / 127 of the norm of all, and less than half of it
    on average."""
    sparse = run(tmp_path / "top-k", "top-k-hierfavg", hierarchy([2]), params={"kept": 0.5, "kappa2": 2}).run()
    for node, rounds in (("device-0-0", [1, 2, 3]), ("edge-0", [1, 2, 3])):
        unsent = sparse.journals[node].series("train", "unsent") if node == "edge-0" else last(sparse, node, "unsent")
        assert list(unsent) == rounds
        assert all(0 < value < np.sqrt(0.5) for value in unsent.values())
    rounded = run(tmp_path / "qsgd", "qsgd-fedavg", star(1)).run()
    assert all(0 < value < np.sqrt(512) / 127 / 2 for value in last(rounded, "device-0", "rounding").values())


def last(found: Federation, node: str, name: str) -> dict[int, float]:
    """The last value of a metric that a node reported in each round."""
    return {round: values[name] for round, values in found.journals[node].metrics if name in values}
