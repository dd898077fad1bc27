"""Overlaps of an estimate with the truth, modulo what the data cannot see.

The output is unchanged under a group of maps of the rows of Z, so that the data cannot tell the weights W from their
images g W: an overlap means something only after the estimate is turned to the truth by the best g.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from smisym.finite.samples import LinkSymmetry

Rotations = tuple[tuple[tuple[int, ...], ...], ...]


class GaugedSymmetry(LinkSymmetry, Protocol):
    """Symmetries with the gauges of untied heads: (query rows, key rows)."""

    @property
    def gauges(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]: ...


TIE = 1e-12  # traces that differ by less, relative to their terms, are equal to rounding


def align(
    symmetry: LinkSymmetry, W_hat: np.ndarray, W: np.ndarray, row_slices: Sequence[int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Overlap (P, P) ``g W_hat W^T / D`` and cosines (P,) of matching rows, at the g of the group that fits best.

    The group: signed exchanges of rows, ``symmetry.elements``, times rotations (and reflections) common to the tuples
    of rows of each of ``symmetry.rotations``.  Of its elements the one that makes the trace of the overlap largest; of
    several equal to rounding, the one with the largest cosines.  The cosine with a zero row is 0.  For each exchange
    the best rotation is the polar factor of the sum over the tuples of the (r, r) blocks of the overlap (Procrustes).

    row_slices
        The slice of the embedding that each row lives on (None: all on one).  Rows on different slices hold different
        coordinates: they have no overlap (it is reported as 0), and are not exchanged, for that would need the
        slices of the tokens exchanged as well.

    Where the finite group was too large to be listed, its listed part is applied until it gains nothing: the best
    flips of signs, but of exchanges perhaps only a local optimum.

    Untied heads have moreover a gauge that is not orthogonal, q -> q M and k -> k M^{-T} with M in GL(r).  It leaves
    the output unchanged, but not the prior of W, so that the posterior fixes it on average, and state evolution with
    it: no best M is sought here.  For heads of rank one M is a scale, to which cosines are blind.  Estimates of other
    kinds, which no prior holds, are compared by :func:`gauge_cosines`.
    """
    turn, products = _best_turn(symmetry, W_hat, W, row_slices)
    turned = turn @ products.overlap
    return turned, _ratio(np.diag(turned), np.sqrt(np.mean((turn @ W_hat) ** 2, axis=1) * products.lengths))


def gauge_cosines(
    symmetry: GaugedSymmetry, W_hat: np.ndarray, W: np.ndarray, row_slices: Sequence[int] | None = None
) -> np.ndarray:
    """Cosines (heads,) of the products W_q^T W_k (D, D) of untied heads, in the order of ``symmetry.gauges``.

    All that an untied head shows of its weights: products are blind to q -> q M, k -> k M^{-T}, for any M.  Heads are
    matched as :func:`align` matches them.  W_hat and W (P, D), row_slices (P,) as there.  A head of zeros has cosine 0.
    """
    turn, _ = _best_turn(symmetry, W_hat, W, row_slices)
    own = turn @ W_hat
    found = np.empty((3, len(symmetry.gauges)))
    for h, (queries, keys) in enumerate((list(q), list(k)) for q, k in symmetry.gauges):
        for i, (a, b) in enumerate(((own, W), (own, own), (W, W))):
            # <A_q^T A_k, B_q^T B_k> = tr[(A_q B_q^T)(B_k A_k^T)]
            found[i, h] = np.sum((a[queries] @ b[queries].T) * (a[keys] @ b[keys].T))
    return _ratio(found[0], np.sqrt(found[1] * found[2]))


def _best_turn(
    symmetry: LinkSymmetry, W_hat: np.ndarray, W: np.ndarray, row_slices: Sequence[int] | None
) -> tuple[np.ndarray, _Products]:
    """The map of the rows that turns the estimate to the truth, and the products that it was chosen by."""
    same = same_slice([0] * len(W) if row_slices is None else row_slices)
    products = _Products.of(W_hat, W, same)
    # A product of elements within slices is within slices: what is left is again a group.
    elements = symmetry.elements[(symmetry.elements * (1 - same) == 0).all(axis=(1, 2))]
    overlap = products.overlap
    turn = products.best(_turns(elements, symmetry.rotations, overlap))
    while True:
        further = products.best(_turns(elements, symmetry.rotations, turn @ overlap) @ turn)
        if np.sum((further - turn) * overlap.T) <= TIE * np.abs(overlap).sum():
            break
        turn = further
    return turn, products


def same_slice(row_slices: Sequence[int]) -> np.ndarray:
    """(P, P): 1 between rows on the same slice of the embedding, 0 between others."""
    return np.equal.outer(row_slices, row_slices).astype(float)


def _turns(elements: np.ndarray, rotations: Rotations, overlap: np.ndarray) -> np.ndarray:
    """(G, P, P): each element (G, P, P) followed by the rotations that then make the trace of the overlap largest."""
    turns = elements.copy()
    for group in rotations:
        blocks = sum(turns[:, rows] @ overlap[:, rows] for rows in map(list, group))
        # tr(R U S V^T) is largest at R = V U^T, where it is tr S.
        U, _, Vt = np.linalg.svd(blocks)
        turn = (U @ Vt).swapaxes(1, 2)
        for rows in map(list, group):
            turns[:, rows] = turn @ turns[:, rows]
    return turns


@dataclass(frozen=True)
class _Products:
    """Overlaps (P, P) of W_hat with W and with itself, 0 between slices, and squared lengths (P,) of W, all over D."""

    overlap: np.ndarray
    own: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, W_hat: np.ndarray, W: np.ndarray, same: np.ndarray) -> _Products:
        D = W.shape[1]
        return cls(same * (W_hat @ W.T / D), same * (W_hat @ W_hat.T / D), np.mean(W**2, axis=1))

    def best(self, turns: np.ndarray) -> np.ndarray:
        """Of the turns (G, P, P) the one with the largest trace of the overlap, then with the largest cosines."""
        diagonals = np.einsum("gpq,qp->gp", turns, self.overlap)
        traces = diagonals.sum(axis=1)
        scale = np.abs(diagonals).sum(axis=1).max()
        equal = np.flatnonzero(traces >= traces.max() - TIE * scale)
        squares = np.einsum("gpq,gpq->gp", turns[equal] @ self.own, turns[equal])
        cosines = _ratio(diagonals[equal], np.sqrt(np.maximum(squares, 0) * self.lengths))
        return np.asarray(turns[equal[np.argmax(cosines.sum(axis=1))]])


def _ratio(values: np.ndarray, norms: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(values, norms, out=np.zeros_like(norms), where=norms > 0))
