"""The limit of many layers that each do little: dB/ds = o E_h[sigma(B h^T h B^T)] B, B(0) = I, s from 0 to 1.

Here ``o`` is the sum of the readouts of all layers before the last and h a standard normal field (arXiv 2502.00901,
appendix A.4, whose expansion in 1/c is the first order in o of this).  Layers are independent, so that what they do
adds up like a law of large numbers: B is not random, and the signal of each layer in the output vanishes with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sympy as sp

from smisym.base.sobol import Normals
from smisym.base.symbols import SCORE
from smisym.declare.architecture import Attention
from smisym.declare.expressions import parse

# Sobol points for the average over the fields of a layer; symmetrised over signs by the scores themselves.
_POINTS = 2**14
# Far more than are known, and fewer than processors disagree about, whose exponentials differ in the last bit.
_DIGITS = 12


def limiting_mixing(tokens: int, layers: tuple[Attention, ...]) -> sp.ImmutableDenseMatrix:
    """B (tokens, tokens) before the last layer, for equal layers; about 1e-5 from quasi-random averages."""
    layer = layers[0]
    rate = sum(sum(one.readouts) for one in layers)
    fields = _normals(tokens, layer)

    def slope(_: float, flat: np.ndarray) -> np.ndarray:
        B = flat.reshape(tokens, tokens)
        mixed = [np.einsum("ij,nrj->nir", B, h) for h in fields]
        scores = layer.beta * layer.scale * np.einsum("nir,njr->nij", mixed[0], mixed[-1])
        return np.asarray(rate * _average(layer, scores, tokens) @ B).ravel()

    from scipy.integrate import solve_ivp  # slow to import

    # The average of what jumps moves in steps of 1/_POINTS, which no step size would resolve.
    jumps = layer.activation == "hardmax" or "sign(" in layer.activation
    tolerance = 1e-5 if jumps else 1e-9
    solved = solve_ivp(slope, (0.0, 1.0), np.eye(tokens).ravel(), rtol=tolerance, atol=1e-2 * tolerance)
    B = solved.y[:, -1].reshape(tokens, tokens)
    return sp.ImmutableDenseMatrix(tokens, tokens, [sp.Float(f"{x:.{_DIGITS}g}", 17) for x in B.ravel()])


def _normals(tokens: int, layer: Attention) -> list[np.ndarray]:
    """Standard normal fields (n, rank, tokens), one array for tied weights, two for untied ones."""
    count = 1 if layer.tied else 2
    normals = Normals(count * layer.rank * tokens, 0).draw(_POINTS)
    return list(normals.reshape(_POINTS, count, layer.rank, tokens).swapaxes(0, 1))


def _average(layer: Attention, scores: np.ndarray, tokens: int) -> np.ndarray:
    """Mean attention matrix, averaged over exchanges of tokens where mask and position allow them."""
    attended = np.array(layer.attended(tokens))
    if layer.position is not None:
        scores = scores + np.array(layer.position)
    mean = _attention(layer, scores, attended).mean(axis=0)
    if layer.position is None and attended.all():
        off = (mean.sum() - np.trace(mean)) / (tokens * (tokens - 1))
        mean = np.full((tokens, tokens), off) + (np.trace(mean) / tokens - off) * np.eye(tokens)
    return np.asarray(mean)


def _attention(layer: Attention, scores: np.ndarray, attended: np.ndarray) -> np.ndarray:
    if layer.activation in ("softmax", "hardmax"):
        scores = np.where(attended, scores, -np.inf)
        if layer.activation == "hardmax":
            return np.asarray(scores.argmax(axis=2)[..., None] == np.arange(scores.shape[2]), dtype=float)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        return np.asarray(weights / weights.sum(axis=2, keepdims=True))
    if layer.activation == "linear":
        return np.where(attended, scores, 0.0)
    function: Any = sp.lambdify(SCORE, parse(layer.activation, {"s": SCORE}, what="activation"), ["scipy", "numpy"])
    return np.where(attended, function(scores), 0.0)
