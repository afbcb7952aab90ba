"""Gaussian noise on embeddings and logits before they are sent: DFFKE's equation 15 and appendix G.

    M(x) = f(x) + N(0, σ² I),  σ = √(2 ln(1.25 / δ)) Δf / ε,  ε ≤ 1     (C. Dwork, A. Roth 2014, Theorem A.1)

is private only if Δf bounds ‖f(x) − f(x′)‖₂ for all x and x′ that differ in one sample. There are two ways to set Δf:
`clip` scales each row to a norm of C at most, so that Δf = 2C is a bound for the replacement of a sample. `empirical`
is the paper's: the largest change by one random pixel in each of these samples, which is no bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from node.algorithms.dffke.parameters import DFFKE
from node.learning.devices import as_array
from node.learning.privacy import standard_deviation


@dataclass(frozen=True, eq=False)
class Release:
    """Rows (n, d) as sent, the Δf, δ and σ of their noise, and the share of the rows that were clipped; zeros without
    noise and clipping. ``bounded``: whether the noise guarantees (ε, δ), which δ = 1 does not."""

    values: NDArray[np.float32]
    sensitivity: float = 0.0
    delta: float = 0.0
    sigma: float = 0.0
    clipped: float = 0.0
    bounded: bool = False


def clip_rows(x: Tensor, norm: float) -> Tensor:
    """Scale rows (n, d) with a larger L2 norm to ``norm``."""
    norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    scale = norm / norms.clamp(min=norm)
    clipped: Tensor = x * scale
    return clipped


def clipped_share(x: Tensor, norm: float) -> float:
    """The share of rows (n, d) that `clip_rows` scales."""
    if not len(x):
        return 0.0
    norms = torch.linalg.vector_norm(x, dim=1)
    larger = (norms > norm).float()
    return float(larger.mean())


def release(
    values: Tensor,
    changed: Callable[[], Tensor],
    params: DFFKE,
    samples: int,
    random: torch.Generator,
) -> Release:
    """Clip ``values`` (n, d) and add noise as ``privacy`` says, before they are sent. ``samples``: number of the
    client's samples. ``changed`` returns the values of the same samples with one pixel changed. δ is 1 / samples unless
    it is given."""
    if params.privacy == "none":
        return Release(as_array(values))
    clipped = 0.0
    if params.privacy == "clip":
        clipped = clipped_share(values, params.clip_norm)
        values = clip_rows(values, params.clip_norm)
        sensitivity = 2 * params.clip_norm
    else:
        changes = values - changed()
        distances = torch.linalg.vector_norm(changes, dim=1)
        sensitivity = float(distances.max())
    if params.delta is not None:
        delta = params.delta
    else:
        delta = 1 / samples
    sigma = standard_deviation(params.epsilon, delta, sensitivity)
    standard_normal = torch.randn(values.shape, generator=random)
    noise = sigma * standard_normal.to(values.device)
    return Release(
        as_array(values + noise),
        sensitivity=sensitivity,
        delta=delta,
        sigma=sigma,
        clipped=clipped,
        bounded=params.privacy == "clip" and delta < 1,
    )
