from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from node.algorithms.common import parted
from node.algorithms.parameters import PHEFL, EdgeCloud, HierFAVG, OnlyEdge
from node.algorithms.phefl import cloud_model, personal_model, personal_weight
from node.assignment import Gathering
from node.catalogue.partitions import LabelsPerEdge
from node.learning.aggregation import State, weighted_mean
from node.learning.data.datasets import Prepared
from node.messaging.wire import Message
from node.testing import Federation, hierarchy, same

OPTIONS: dict[str, Any] = {"learning_rate": 0.1, "batch_size": 16, "epochs": 1}
D2 = LabelsPerEdge(pattern="D2", samples_per_client=60)


def phefl(data: Prepared, folder: Path, alpha: float | str = "accuracy", **options: Any) -> Federation:
    tree = options.pop("tree", hierarchy([2, 2, 2]))
    return Federation(data, tree, "phe-fl", PHEFL(alpha=alpha, **OPTIONS), folder, personal=0.2, **options)


def update(edge: str, value: float, samples: int) -> Message:
    return Message("update", edge, 1, {"samples": samples}, {"w": np.array([value], np.float32)})


def models_of(run: Federation) -> dict[str, State]:
    """CAM of each edge, as the cloud keeps them."""
    return {node: parted(run.state("cloud"), node) for node in run.tree if node.startswith("edge")}


def test_equations_6_and_7() -> None:
    """|D_k| 10, 30, 60 and EAM_k 1, 2, 4. CAM of edge-0: (30 * 2 + 60 * 4) / 90; of edge-2: (10 * 1 + 30 * 2) / 40."""
    updates = [update("edge-0", 1, 10), update("edge-1", 2, 30), update("edge-2", 4, 60)]
    assert cloud_model("edge-0", updates)["w"] == pytest.approx([300 / 90])
    assert cloud_model("edge-1", updates)["w"] == pytest.approx([250 / 70])
    assert cloud_model("edge-2", updates)["w"] == pytest.approx([70 / 40])


def test_an_edge_that_did_not_answer_gets_the_mean_of_all_who_did() -> None:
    updates = [update("edge-0", 1, 10), update("edge-1", 2, 30)]
    assert cloud_model("edge-2", updates)["w"] == pytest.approx([70 / 40])
    assert cloud_model("edge-0", updates[:1]) == {}


def test_equations_8_and_9() -> None:
    """Accuracies 0.9 and 0.3: α = 0.75, PEAM = 0.75 * 2 + 0.25 * 10 = 4."""
    assert personal_weight(0.9, 0.3) == pytest.approx(0.75)
    assert (personal_weight(0.0, 0.4), personal_weight(0.4, 0.0), personal_weight(0.0, 0.0)) == (0.0, 1.0, 0.5)
    eam, cam = ({"w": np.array([value], np.float32)} for value in (2, 10))
    assert personal_model(0.75, eam, cam)["w"] == pytest.approx([4.0])


def test_alpha_1_is_onlyedge(digits: Prepared, tmp_path: Path) -> None:
    personal = phefl(digits, tmp_path / "phefl", alpha=1.0, partition=D2).run()
    alone = Federation(
        digits, hierarchy([2, 2, 2]), "onlyedge", OnlyEdge(**OPTIONS), tmp_path / "onlyedge", partition=D2
    ).run()
    for edge in ("edge-0", "edge-1", "edge-2"):
        assert same(personal.state(edge), alone.state(edge))


def test_alpha_1_is_onlyedge_with_the_same_local_training_alone(digits: Prepared, tmp_path: Path) -> None:
    """The defaults of the two differ in learning rate and epochs."""
    assert (PHEFL().learning_rate, PHEFL().epochs) != (OnlyEdge().learning_rate, OnlyEdge().epochs)
    tree = hierarchy([1, 1])
    personal = Federation(digits, tree, "phe-fl", PHEFL(alpha=1.0), tmp_path / "phefl", rounds=1, personal=0.2).run()
    alone = Federation(digits, tree, "onlyedge", OnlyEdge(), tmp_path / "onlyedge", rounds=1).run()
    assert not same(personal.state("edge-0"), alone.state("edge-0"))


def test_alpha_1_over_k_is_edgecloud_where_edges_are_equal(digits: Prepared, tmp_path: Path) -> None:
    """EAM / 3 + 2 / 3 CAM is the mean of three; PHE-FL's cloud keeps CAMs, of which the mean is that of the EAMs."""
    personal = phefl(digits, tmp_path / "phefl", alpha=1 / 3).run()
    tree = hierarchy([2, 2, 2])
    together = Federation(digits, tree, "edgecloud", EdgeCloud(**OPTIONS), tmp_path / "edgecloud").run()
    mean, gm = (list(models_of(run).values()) for run in (personal, together))
    for name, values in weighted_mean(mean, [1, 1, 1]).items():
        np.testing.assert_allclose(values, gm[0][name], rtol=1e-4, atol=1e-6)
    assert all(same(gm[0], other) for other in gm[1:])


def test_edgecloud_learns_what_hierfavg_does(digits: Prepared, tmp_path: Path) -> None:
    tree = hierarchy([1, 2])
    ours = Federation(digits, tree, "edgecloud", EdgeCloud(**OPTIONS), tmp_path / "edgecloud").run()
    theirs = Federation(digits, tree, "hierfavg", HierFAVG(kappa2=1, **OPTIONS), tmp_path / "hierfavg").run()
    assert same(models_of(ours)["edge-0"], theirs.state("cloud"))
    assert ours.journals["cloud"].series("global") == theirs.journals["cloud"].series("global")


def test_every_round_is_scored_on_what_was_not_personalised_by(digits: Prepared, tmp_path: Path) -> None:
    run = phefl(digits, tmp_path, partition=D2).run()
    for edge in ("edge-0", "edge-1", "edge-2"):
        assert sorted(run.journals[edge].series("own")) == [1, 2, 3]
        assert sorted(run.journals[edge].series("personal", "alpha")) == [1, 2, 3]
        learner = run.roles[edge].learner
        total = learner.test_samples("own") + learner.test_samples("personal")
        assert learner.test_samples("personal") == round(0.2 * total)
    assert sorted(run.journals["cloud"].series("global")) == [1, 2, 3]


def test_alpha_is_the_share_of_the_own_accuracy(digits: Prepared, tmp_path: Path) -> None:
    run = phefl(digits, tmp_path, partition=LabelsPerEdge(pattern="D1", samples_per_client=60)).run()
    metrics = [values for journal in run.journals.values() for _, values in journal.metrics]
    rows = [values for values in metrics if values["scope"] == "personal"]
    assert len(rows) == 9
    for row in rows:
        assert row["alpha"] == personal_weight(row["edge_accuracy"], row["cloud_accuracy"])
    # An edge of one label knows it and the others do not: the cloud's model is worth little to it.
    assert min(row["alpha"] for row in rows) > 0.5
    assert min(run.journals["edge-0"].series("own").values()) == 1.0


def test_an_edge_without_devices_has_no_say_and_is_scored(digits: Prepared, tmp_path: Path) -> None:
    """edge-2's only device never answers: the others are averaged without it, and it gets their mean."""
    rule = Gathering(quorum=0.5, deadline=2)
    run = phefl(digits, tmp_path, rounds=4, gathering=rule, tree=hierarchy([1, 1, 1]), slow={"device-2-0": 1e5}).run()
    assert run.journals["edge-2"].rounds("round_abandoned")
    kept = models_of(run)
    others = [run.state("edge-0"), run.state("edge-1")]
    assert same(kept["edge-2"], weighted_mean(others, [60, 60]))
    assert same(kept["edge-0"], others[1])
    assert 4 in run.journals["edge-2"].series("own")


@pytest.mark.slow
def test_an_edge_that_crashes_continues_from_its_checkpoint(digits: Prepared, tmp_path: Path) -> None:
    """Rounds take 0.06 s of training and little else: edge-1 dies in one of the first ten and misses none or some."""
    rule = Gathering(quorum=0.3, deadline=5)
    run = phefl(
        digits, tmp_path, rounds=40, gathering=rule, tree=hierarchy([1, 1, 1]), crash={"edge-1": (0.5, 1.5)}
    ).run()
    assert run.journals["edge-1"].rounds("resumed")
    assert max(run.journals["edge-1"].series("own")) == 40


def test_kappa2_edge_rounds(digits: Prepared, tmp_path: Path) -> None:
    """With α = 1, two edge rounds twice are OnlyEdge's four."""
    twice = Federation(
        digits,
        hierarchy([2, 1]),
        "phe-fl",
        replace(PHEFL(alpha=1.0, **OPTIONS), kappa2=2),
        tmp_path / "twice",
        rounds=2,
        personal=0.2,
    ).run()
    alone = Federation(digits, hierarchy([2, 1]), "onlyedge", OnlyEdge(**OPTIONS), tmp_path / "alone", rounds=4).run()
    assert same(twice.state("edge-0"), alone.state("edge-0"))
