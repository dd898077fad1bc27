"""The image of a noiseless link near one of its points: K coordinates of it, and fields that give the point back.

An output that has K independent coordinates shows a surface g(Z) in R^M (its log-ratios, or the output itself).  Near a
point g(Z_0) the surface is a graph over its tangent space, of orthonormal basis U (M, K): v = U^T (g(Z) - g(Z_0)) are
coordinates of the image.  The point at v is found by Newton's method in the fields, from Z_0; its Jacobian is a complex
step, exact to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smisym.base.axes import canonical
from smisym.base.complex_step import jacobian
from smisym.base.errors import InputError
from smisym.base.levenberg import Refined, Rule, Tried, descend
from smisym.link.linking import LinkFunction
from smisym.posterior.surface import Surface

# Largest misfit of a point of the image, relative to its size, and from which misfit on one more step reaches it.
_MET, _LAST = 1e-10, 1e-6
_ITERATIONS = 50
# A search ends where steps have failed, or have lowered the square of the misfit by no more than this share, several
# times running: mostly where the image ends.
_FAILED, _SLOW, _STALLED = 11, 0.1, 4
# How far ahead curvature is looked for, the most that it bends a step, and the longest step.
_AHEAD, _BEND, _LONGEST = 0.1, 1.5, 2.0
_RULE = Rule(first=0.0, eased=0.3, tightened=10.0, least=1e-9, least_norm=True)


@dataclass(frozen=True)
class Anchors:
    """Points of the image about which others are sought, one a sample.

    Z (S, n): fields that give them.  value (S, M): g there.  frame (S, M, K): U.  slope (S, K, n): U^T dg/dZ.
    back (S, n, K): the fields that move v by one, of least norm.
    """

    Z: np.ndarray
    value: np.ndarray
    frame: np.ndarray
    slope: np.ndarray
    back: np.ndarray


class Image:
    """The image of one link."""

    def __init__(self, link: LinkFunction) -> None:
        self.link = link
        self.entries = link.fields * link.tokens
        surface = Surface(link)
        self.rank = surface.rank() if surface.seen_outputs.size else 0
        self._centre = _centring(link) if link.output_is_softmax else None

    def surface(self, Z: np.ndarray) -> np.ndarray:
        """g (N, M) at fields (N, n), real or complex: the output; of a softmax the log-ratios, their rows of mean zero.

        About their mean the log-ratios of a row are as the scores are: of the same rank, so that the surface is a graph
        over its tangent space far around each of its points.
        """
        raw = self.link.of_entries(Z)
        return raw if self._centre is None else np.asarray(raw @ self._centre)

    def jet(self, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """g (N, M) and dg/dZ (N, M, n) at Z (N, n)."""
        return jacobian(self.surface, Z, np.arange(Z.shape[1]))

    def anchored(self, Z: np.ndarray) -> Anchors:
        """The tangent frame at the points of fields Z (S, n); NaN where there is none."""
        value, J = self.jet(Z)
        good = np.isfinite(J).all(axis=(1, 2))
        left, size, _ = np.linalg.svd(np.where(good[:, None, None], J, 0.0), full_matrices=False)
        frame = canonical(left[:, :, : self.rank])
        slope = np.swapaxes(frame, 1, 2) @ J
        good &= size[:, self.rank - 1] > 1e-12 * size[:, 0]
        back = np.full((len(Z), Z.shape[1], self.rank), np.nan)
        back[good] = _least_norm(slope[good])
        return Anchors(Z, value, frame, slope, back)

    def lift(self, anchors: Anchors, owner: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fields (N, n) of the points at v (N, K) about the anchors ``owner`` (N,), and which were found.

        Those that are not found at once are sought again from half-way.
        """
        frame, start = anchors.frame[owner], anchors.Z[owner]
        base = np.einsum("nmk,nm->nk", frame, anchors.value[owner])
        first = start + _short(np.einsum("nik,nk->ni", anchors.back[owner], v))
        Z, found = self._search(frame, base + v, first)
        rest = np.flatnonzero(~found)
        if rest.size:
            half = start[rest] + _short(0.5 * np.einsum("nik,nk->ni", anchors.back[owner[rest]], v[rest]))
            half, there = self._search(frame[rest], (base + 0.5 * v)[rest], half)
            rest = rest[there]
        if rest.size:
            Z[rest], found[rest] = self._search(frame[rest], (base + v)[rest], half[there])
        return Z, found

    def _search(self, frame: np.ndarray, target: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Least squares for U^T g(Z) = target (N, K) from Z (N, n), with steps of least norm."""
        scale = 1 + np.abs(target).max(axis=1)
        found, slow = np.zeros(len(Z), dtype=bool), np.zeros(len(Z), dtype=int)
        misfit = np.full(len(Z), np.inf)

        def values(which: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            with np.errstate(all="ignore"):
                value, J = self.jet(x)
                miss = np.einsum("nmk,nm->nk", frame[which], value) - target[which]
                return miss, np.swapaxes(frame[which], 1, 2) @ J

        def refine(point: Refined) -> np.ndarray:
            misfit[point.which] = np.abs(point.residuals).max(axis=1)
            return self._bent(point, frame[point.which], target[point.which])

        def ends(tried: Tried) -> np.ndarray:
            own = tried.which
            shrunk = tried.after < (1 - _SLOW) * tried.before
            slow[own] = np.where(shrunk, 0, slow[own] + tried.better)
            met = np.abs(tried.residuals).max(axis=1) <= _MET * scale[own]
            found[own[met]] = True
            # From so near, the step that met it took it to rounding.
            last = misfit[own] <= _LAST * scale[own]
            over = (met & (last | ~tried.better)) | (tried.failed >= _FAILED) | (slow[own] >= _STALLED)
            return np.asarray(over | ~np.isfinite(tried.residuals).all(axis=1))

        return descend(values, Z, ends, steps=_ITERATIONS, rule=_RULE, refine=refine)[0], found

    def _bent(self, point: Refined, frame: np.ndarray, target: np.ndarray) -> np.ndarray:
        """A step with what the curvature along it adds (geodesic acceleration), which follows narrow valleys.

        Transtrum & Sethna, arXiv 1201.5885: -1/2 G^+ v''(step, step), v'' by a difference along the step.
        """
        step = _short(-point.solve(point.residuals))
        with np.errstate(all="ignore"):
            ahead = np.einsum("nmk,nm->nk", frame, self.surface(point.x + _AHEAD * step)) - target
            along = np.einsum("nki,ni->nk", point.slopes, step)
            bend = -0.5 * point.solve(2 / _AHEAD * ((ahead - point.residuals) / _AHEAD - along))
            good = (bend**2).sum(axis=1) <= _BEND**2 * (step**2).sum(axis=1)
        return step + np.where(good[:, None], bend, 0.0)


def _centring(link: LinkFunction) -> np.ndarray:
    """(M, M): takes the mean over its attended entries off every row of an output, flattened."""
    width = link.attended.shape[-1]
    rows = link.attended.reshape(-1, width)
    out = np.zeros((rows.size, rows.size))
    for i, attended in enumerate(rows):
        own = i * width + np.flatnonzero(attended)
        out[np.ix_(own, own)] = np.eye(len(own)) - 1 / len(own)
    return out


def image_of(link: LinkFunction) -> Image | str:
    """The image, or why it has no coordinates."""
    try:
        image = Image(link)
    except InputError as error:
        return f"the output has no fixed number of independent coordinates ({error.given})"
    return image if image.rank else "the noiseless output is discrete"


def _least_norm(G: np.ndarray) -> np.ndarray:
    """G^T (G G^T)^{-1} of (N, K, n)."""
    turned = np.swapaxes(G, 1, 2)
    return np.asarray(turned @ np.linalg.inv(G @ turned))


def _short(step: np.ndarray) -> np.ndarray:
    """Steps (N, n) of the fields, no longer than _LONGEST: far out an output saturates, and no slope leads back."""
    with np.errstate(all="ignore"):
        length = np.sqrt((step**2).sum(axis=1, keepdims=True))
        return np.asarray(step * np.minimum(1.0, _LONGEST / np.where(length > 0, length, 1.0)))
