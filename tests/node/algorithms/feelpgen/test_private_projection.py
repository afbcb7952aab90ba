from __future__ import annotations

import numpy as np
import pytest

from node.algorithms.feelpgen.private_projection import (
    clip_rows,
    clipped_share,
    common_basis,
    private_basis,
    project,
    symmetric_noise,
)
from node.algorithms.feelpgen.roles import divergence
from node.learning.privacy import standard_deviation

ALMOST_NONE = 1e9  # an ε at which the noise vanishes; the parameters of a scenario allow 1 at most


def test_noise_of_the_papers_budget() -> None:
    """√(2 ln 1250) = √14.2618 at (1, 0.001); half the ε needs twice the noise."""
    assert standard_deviation(1.0, 0.001) == pytest.approx(3.7765, abs=1e-4)
    assert standard_deviation(0.5, 0.001) == pytest.approx(2 * standard_deviation(1.0, 0.001))


def test_rows_are_clipped_and_short_ones_left_alone() -> None:
    """(3, 4) has norm 5."""
    np.testing.assert_allclose(
        clip_rows(np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])), [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]
    )


def test_clipped_rows_are_counted() -> None:
    """Norms 5, 1 and 0.5: one is above 1."""
    assert clipped_share(np.array([[3.0, 4.0], [0.0, 1.0], [0.3, 0.4]])) == pytest.approx(1 / 3)


def test_a_row_changes_the_covariance_by_one_at_most() -> None:
    """What the noise is made for: the sensitivity of MᵀM, for the removal of any row, however long."""
    m = clip_rows(np.random.default_rng(1).normal(size=(50, 6)) * 100)
    changes = [np.linalg.norm(m.T @ m - np.delete(m, row, 0).T @ np.delete(m, row, 0)) for row in range(50)]
    assert max(changes) <= 1 + 1e-9


def test_noise_is_symmetric_with_independent_entries_of_one_scale() -> None:
    noise = symmetric_noise(400, 2.0, np.random.default_rng(1))
    assert np.array_equal(noise, noise.T)
    assert noise[np.triu_indices(400)].std() == pytest.approx(2.0, rel=0.02)
    assert np.diag(noise).std() == pytest.approx(2.0, rel=0.1)  # not the sum of two triangles


def test_without_noise_it_is_principal_component_analysis() -> None:
    """Rows ±(0.6, 0.8) and ±0.1 (0.8, -0.6): the first component is (0.6, 0.8), the second (0.8, -0.6), both positive
    in their largest entry."""
    m = np.array([[0.6, 0.8], [-0.6, -0.8], [0.08, -0.06], [-0.08, 0.06]])
    basis = private_basis(m, 2, ALMOST_NONE, 0.001, np.random.default_rng(1))
    np.testing.assert_allclose(basis, [[0.6, 0.8], [0.8, -0.6]], atol=1e-6)
    np.testing.assert_allclose(project(m, basis), [[1.0, 0.0], [-1.0, 0.0], [0.0, 0.1], [0.0, -0.1]], atol=1e-6)


def test_signs_are_fixed_whatever_the_data_say() -> None:
    m = np.random.default_rng(2).normal(size=(40, 8))
    basis = private_basis(m, 3, 1.0, 0.001, np.random.default_rng(1))
    assert basis.shape == (8, 3)
    assert all(column[np.abs(column).argmax()] > 0 for column in basis.T)
    np.testing.assert_allclose(basis.T @ basis, np.eye(3), atol=1e-9)


def test_one_generator_gives_one_basis() -> None:
    m = np.random.default_rng(2).normal(size=(40, 8))
    first, again, other = (private_basis(m, 2, 1.0, 0.001, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


def test_the_projection_is_sixteen_times_smaller() -> None:
    z = np.ones((320, 32), np.float32)
    assert project(z, np.ones((32, 2))).nbytes * 16 == z.nbytes


def test_a_common_basis_keeps_the_order_of_edges_and_own_bases_do_not() -> None:
    """Ten classes in 32 dimensions: edge B is almost edge A, edge C has nothing in common with it."""
    draws = 60
    wrong = {"own": 0, "common": 0}
    for seed in range(draws):
        random = np.random.default_rng(seed)
        labels, a, c = random.integers(10, size=320), random.normal(0, 2, (10, 32)), random.normal(0, 2, (10, 32))
        means = [a, a + random.normal(0, 0.3, (10, 32)), c]
        z = [mean[labels] + random.normal(0, 0.3, (320, 32)) for mean in means]
        own = [private_basis(each, 2, 1.0, 0.001, random) for each in z]
        common = [common_basis(32, 2, np.random.default_rng(seed))] * 3
        for name, bases in (("own", own), ("common", common)):
            sent = [project(each, basis) for each, basis in zip(z, bases, strict=True)]
            wrong[name] += divergence(sent[0], sent[1]) >= divergence(sent[0], sent[2])
    assert wrong["common"] == 0
    assert wrong["own"] > draws / 5
