"""A few principal components of a matrix under differential privacy, and the projection of the matrix on them.

C. Dwork, K. Talwar, A. Thakurta, L. Zhang, "Analyze Gauss: Optimal Bounds for Privacy-Preserving Principal Component
Analysis", STOC 2014, Algorithm 1; FEELPGen's equation 18. M (n, d) rows, A = MᵀM, E symmetric Gaussian noise, B (d, d′)
the first d′ eigenvectors of A + E.

B is private for the addition or removal of one row: rows are scaled to norm 1 at most, so A changes by at most 1 in
Frobenius norm. M B is not private: it shows each row. The way in which M was made does not matter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from node.learning.privacy import standard_deviation

Matrix = NDArray[np.floating]


def clip_rows(m: Matrix) -> NDArray[np.float64]:
    """Scale rows with a norm above 1 to norm 1."""
    rows = np.asarray(m, np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    divisors = np.maximum(norms, 1.0)
    clipped: NDArray[np.float64] = rows / divisors
    return clipped


def clipped_share(m: Matrix) -> float:
    """The share of rows that `clip_rows` scales."""
    rows = np.asarray(m, np.float64)
    norms = np.linalg.norm(rows, axis=1)
    return float(np.mean(norms > 1.0))


def symmetric_noise(
    size: int,
    scale: float,
    random: np.random.Generator,
) -> NDArray[np.float64]:
    """E (size, size): the upper triangle and the diagonal independent N(0, scale²), the lower triangle its mirror."""
    values = random.normal(0.0, scale, (size, size))
    upper = np.triu(values)
    above_diagonal = np.triu(upper, 1)
    return upper + above_diagonal.T


def private_basis(
    m: Matrix,
    components: int,
    epsilon: float,
    delta: float,
    random: np.random.Generator,
) -> NDArray[np.float64]:
    """B (d, components) of `m` (n, d), with its rows clipped first. The sign of an eigenvector is arbitrary, so each
    column gets the sign that makes its entry of largest absolute value positive."""
    clipped = clip_rows(m)
    a = clipped.T @ clipped
    sigma = standard_deviation(epsilon, delta)
    e = symmetric_noise(m.shape[1], sigma, random)
    _, vectors = np.linalg.eigh(a + e)  # eigenvalues ascend
    descending = vectors[:, ::-1]
    basis: NDArray[np.float64] = descending[:, :components]
    rows_of_largest = np.abs(basis).argmax(axis=0)
    largest = np.take_along_axis(basis, rows_of_largest[None], axis=0)
    signs = np.where(largest < 0, -1.0, 1.0)
    return basis * signs


def common_basis(
    size: int,
    components: int,
    random: np.random.Generator,
) -> NDArray[np.float64]:
    """B (size, components): random orthonormal columns; the same seed gives the same columns. It depends on no
    data, so it needs no noise."""
    directions = random.normal(size=(size, components))
    q, _ = np.linalg.qr(directions)
    return q


def project(m: Matrix, basis: Matrix) -> NDArray[np.float32]:
    """M B (n, components) of the clipped rows."""
    projection = clip_rows(m) @ basis
    return projection.astype(np.float32)
