from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebed.baselines.sdfeel import adjacency, mixed, mixing, shares
from edgebed.testing import Federation, federation, hierarchy
from node.testing import same

LOCAL: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 16, "steps": 2, "evaluate_samples": 60}


def run(folder: Path, groups: list[int], name: str = "sdfeel", *, cloud: bool = False, **more: Any) -> Federation:
    folder.mkdir(exist_ok=True)
    params = LOCAL | more.pop("params", {})
    tree = hierarchy(groups, cloud=cloud)
    return federation(folder, "edgebed.baselines.sdfeel", name, tree, params=params, **more).run()


def test_a_ring_of_four_equal_clusters() -> None:
    """L has the eigenvalues 4, 2, 2, 0 and Ω⁻¹ = 4: P = I - 2 / (16 + 8) · 4 L = I - L / 3."""
    expected = np.array([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]) / 3
    np.testing.assert_allclose(mixing(adjacency(4, "ring"), [50, 50, 50, 50]), expected, atol=1e-12)


def test_two_clusters_of_unequal_size_have_their_mean_after_one_exchange() -> None:
    """m̃ = (¼, ¾): L̃ = [[4, -4/3], [-4, 4/3]] with the eigenvalues 16/3 and 0, so P = I - 3/16 L̃."""
    for graph in ("ring", "complete"):
        found = mixing(adjacency(2, graph), [10, 30])
        np.testing.assert_allclose(found, [[0.25, 0.25], [0.75, 0.75]], atol=1e-12)


@pytest.mark.parametrize("graph", ["ring", "complete"])
@pytest.mark.parametrize("sizes", [[3], [1, 1, 1], [5, 10, 20, 40, 80]])
def test_columns_sum_to_one_and_the_mean_of_all_stays(graph: str, sizes: list[int]) -> None:
    found, share = mixing(adjacency(len(sizes), graph), sizes), np.array(sizes) / sum(sizes)
    np.testing.assert_allclose(found.sum(axis=0), 1, atol=1e-12)
    np.testing.assert_allclose(found @ share, share, atol=1e-12)
    np.testing.assert_allclose(np.linalg.matrix_power(found, 500), np.outer(share, np.ones(len(sizes))), atol=1e-9)


def test_the_shares_of_a_cluster_are_those_of_its_neighbours_that_have_samples() -> None:
    """Of five clusters one has no samples: a ring of four, in which edge-4 is next to edge-0 and edge-3."""
    sizes = {"edge-0": 50, "edge-1": 0, "edge-2": 50, "edge-3": 50, "edge-4": 50}
    assert shares("edge-4", sizes, "ring") == pytest.approx({"edge-0": 1 / 3, "edge-3": 1 / 3})
    assert shares("edge-1", sizes, "ring") == {}
    assert shares("edge-2", {"edge-2": 7}, "ring") == {}


def test_mixing_worked_example() -> None:
    """2 + ½ (4 - 2) - ¼ (6 - 2) = 2; of the counters 3 + ½ (6 - 3) - ¼ (3 - 3) = 4.5, rounded to even."""
    y, *others = ({"w": np.array([a], np.float32), "n": np.array(b)} for a, b in ((2, 3), (4, 6), (6, 3)))
    found = mixed(y, others, [0.5, -0.25])
    assert (found["w"].tolist(), int(found["n"]), found["n"].dtype.kind) == ([2.0], 4, "i")
    assert all(isinstance(each, np.ndarray) for each in found.values())  # a scalar would travel as a Python number
    assert same(mixed(y, [], []), y)


def test_equal_clusters_in_a_complete_graph_are_hierfavg(tmp_path: Path) -> None:
    """Of three clusters a ring is a complete graph. HierFAVG's κ₂ is τ₂."""
    semi = run(tmp_path / "semi", [2, 2, 2], params={"intra": 2})
    tree = run(tmp_path / "tree", [2, 2, 2], "hierfavg", cloud=True, params={"kappa2": 2})
    for name, values in tree.state("cloud").items():
        for edge in ("edge-0", "edge-1", "edge-2"):
            np.testing.assert_allclose(semi.state(edge)[name], values, atol=2e-6)


def test_two_clusters_of_other_sizes_are_hierfavg(tmp_path: Path) -> None:
    semi = run(tmp_path / "semi", [3, 1], params={"intra": 2})
    tree = run(tmp_path / "tree", [3, 1], "hierfavg", cloud=True, params={"kappa2": 2})
    for name, values in tree.state("cloud").items():
        for edge in ("edge-0", "edge-1"):
            np.testing.assert_allclose(semi.state(edge)[name], values, atol=5e-6)


@pytest.mark.parametrize("intra", [1, 2])
def test_one_cluster_is_fedavg(tmp_path: Path, intra: int) -> None:
    """FedAvg's clients have names of their own, and draw other mini-batches: HierFAVG's κ₂ = 1 stands for it."""
    semi = run(tmp_path / "semi", [3], params={"intra": intra}, rounds=2)
    tree = run(tmp_path / "tree", [3], "hierfavg", cloud=True, params={"kappa2": 1}, rounds=2 * intra)
    assert same(semi.state("edge-0"), tree.state("cloud"))


def test_more_exchanges_move_the_clusters_of_a_ring_closer(tmp_path: Path) -> None:
    def spread(inter: int) -> float:
        done = run(tmp_path / str(inter), [1] * 5, rounds=1, params={"inter": inter})
        models = [np.concatenate([v.ravel() for v in done.state(f"edge-{k}").values()]) for k in range(5)]
        return float(np.std(models, axis=0).mean())

    one, three = spread(1), spread(3)
    assert 0 < three < one / 2


def test_a_cluster_that_is_away_for_a_while(tmp_path: Path) -> None:
    """The others go on without it, and it goes on from its checkpoint; all learn."""
    done = run(tmp_path, [2, 2, 2, 2], rounds=8, crash={"edge-1": (1.0, 2.5)})
    for edge in ("edge-0", "edge-1", "edge-2", "edge-3"):
        assert done.journals[edge].series("global")[8] > 0.5
    assert done.roles["edge-1"].restored is not None
