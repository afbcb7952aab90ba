"""Tests of the algorithm without a run: `pytest` needs no root, no links and about a second."""

import numpy as np
from edgebed.testing import federation, star
from fedavgm import moved

PARAMS = {"learning_rate": 0.1, "server_momentum": 0.5}


def test_the_velocity_is_kept():
    w, v = moved({"w": np.float32([4])}, {"w": np.float32([2])}, {"w": np.float32([3])}, 0.5)
    assert (v["w"], w["w"]) == (2, 2)  # v = 0.5 * 2 + (4 - 3), w = 4 - v


def test_it_learns(tmp_path):
    run = federation(tmp_path, "fedavgm.py", "fedavgm", star(3), rounds=4, params=PARAMS).run()
    accuracy = run.journals["cloud"].series("global")
    assert accuracy[4] > max(accuracy[1], 0.5)


def test_it_goes_on_without_a_device(tmp_path):
    run = federation(tmp_path, "fedavgm.py", "fedavgm", star(3), params=PARAMS, crash={"device-0": (0.1, 60)}).run()
    assert set(run.journals["cloud"].series("global")) == {1, 2, 3}


def test_a_cloud_that_restarts_keeps_its_velocity(tmp_path):
    states = []
    for name, crash in (("calm", {}), ("crashed", {"cloud": (1.1, 1.3)})):
        (tmp_path / name).mkdir()
        run = federation(tmp_path / name, "fedavgm.py", "fedavgm", star(3), rounds=4, params=PARAMS, crash=crash).run()
        states.append(run.state("cloud"))
    assert run.journals["cloud"].rounds("resumed")
    assert all(np.array_equal(values, states[1][name]) for name, values in states[0].items())
