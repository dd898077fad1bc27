"""Derivatives of a link by complex steps, and their rank: how many independent coordinates an output has."""

from __future__ import annotations

import numpy as np

from smisym.base import patience
from smisym.base.complex_step import Function, jacobian
from smisym.base.errors import InputError
from smisym.link.linking import LinkFunction
from smisym.link.program import is_analytic

# Singular values below this share of the largest one count as zero.
_ZERO = 1e-9
# Derivatives along a direction that are below this share of the largest one say that it is never seen.
_UNSEEN = 1e-12
# Random fields at which ranks are taken: of links that have one rank at almost all, and of others.
_ANALYTIC, _PIECEWISE = 16, 4096
# What is left to learn near Q = I: fields that it is followed at, steps, the share of the largest eigenvalue below
# which the flag is plain, and the change at which there is none.
_FLAG_FIELDS, _FLAG_STEPS, _FLAG_SHOWN, _FLAG_RESTS = 256, 1000, 1e-13, 1e-12
# Nearer to zero by these factors an activation that has saturated is itself again.
_NEARER = (1.0, 0.5, 0.25, 0.125)


def jacobians(function: Function, Z: np.ndarray, *, analytic: bool) -> list[np.ndarray]:
    """df/dZ (N, M, n) at entries Z (N, n); for an analytic function also nearer to zero, by some factors.

    An analytic function has one rank at almost all fields.  Where activations saturate rounding hides some of it, so
    that nearer fields are asked as well.
    """
    every = np.arange(Z.shape[1])
    return [jacobian(function, near * Z, every)[1] for near in (_NEARER if analytic else (1.0,))]


def ranks(found: list[np.ndarray], span: np.ndarray) -> np.ndarray:
    """Rank (N,) of each of the :func:`jacobians` on the columns of span (n, K), -1 where the derivative overflows.

    Several jacobians are those of an analytic function: the largest rank holds for all.
    """
    if len(found) == 1:
        return _ranks(found[0] @ span)
    return np.full(len(found[0]), max(int(_ranks(J @ span).max()) for J in found))


def _ranks(J: np.ndarray) -> np.ndarray:
    finite = np.isfinite(J).all(axis=(1, 2))
    values = np.linalg.svd(np.where(finite[:, None, None], J, 0.0), compute_uv=False)
    found = (values > _ZERO * np.maximum(values[:, :1], 1e-300)).sum(axis=1)
    return np.where(finite, found, -1)


class JacobianRanks:
    """Mean ranks of df/dZ on subspaces S of R^P (times all tokens), at one set of random standard normal fields.

    scale (P, P): what these fields are multiplied by.

    f is given by its log-ratios (or by the output where it is not a softmax).  Used by the counting bound of perfect
    recovery.  Raises :class:`~smisym.base.errors.InputError` where the derivative overflows at all fields.
    """

    def __init__(self, link: LinkFunction, rng: np.random.Generator, scale: np.ndarray | None = None) -> None:
        self.fields, self.tokens = link.fields, link.tokens
        self.analytic = analytic = is_analytic(link.program)
        Z = rng.standard_normal((_ANALYTIC if analytic else _PIECEWISE, link.fields * link.tokens))
        if scale is not None:
            Z = (scale @ Z.reshape(-1, link.fields, link.tokens)).reshape(Z.shape)
        self._found = jacobians(link.of_entries, Z, analytic=analytic)
        if not any(np.isfinite(J).all(axis=(1, 2)).any() for J in self._found):
            raise InputError(
                "link", "derivatives that overflow at all random fields", "finite ones", "rescale the link"
            )

    def __call__(self, directions: np.ndarray) -> tuple[float, float]:
        """(mean, its standard error) of the rank on the span of directions (d, P); no error for analytic links."""
        span = np.kron(np.asarray(directions, dtype=float).T, np.eye(self.tokens))
        found = ranks(self._found, span)
        found = found[found >= 0]
        return float(found.mean()), float(found.std() / np.sqrt(len(found)))

    def unseen(self) -> np.ndarray:
        """(d, P), orthonormal: the directions along which the output never changes.

        Of links that are not analytic those along which its derivative vanishes, jumps aside.
        """
        J = np.concatenate([J[np.isfinite(J).all(axis=(1, 2))] for J in self._found])
        moved = J.reshape(-1, self.fields, self.tokens).transpose(0, 2, 1).reshape(-1, self.fields)
        # Of a tall matrix the triangle has all that matters here.
        _, values, directions = np.linalg.svd(np.linalg.qr(moved, mode="r"), full_matrices=True)
        return np.asarray(directions[(values > _UNSEEN * values[0]).sum() :])

    def flag(self) -> list[np.ndarray]:
        """Subspaces (d, P), nested, of which one has the largest dim S / K_S of all subspaces whatever.

        Near Q = I what is left to learn follows V -> E(V)^{-1}, with E(V) = E[J^T (J V J^T)^{-1} J] summed over tokens.
        It grows fastest, by max dim S / K_S a step, on the largest S that attains this, and then on the rest of a flag
        (of Harder and Narasimhan): its eigenvectors turn into that flag, however it lies in R^P.
        """
        rows = self._row_spaces()
        P, V = self.fields, np.eye(self.fields)
        vectors = V
        for _ in range(_FLAG_STEPS if len(rows) else 0):
            patience.check()
            whole = np.kron(V, np.eye(self.tokens))
            inner = np.linalg.pinv(rows @ whole @ rows.transpose(0, 2, 1), rcond=1e-15, hermitian=True)
            seen = np.einsum("nki,nkl,nlj->ij", rows, inner, rows, optimize=True) / len(rows)
            E = np.einsum("ptqt->pq", seen.reshape(P, self.tokens, P, self.tokens))
            values, vectors = np.linalg.eigh(0.5 * (E + E.T))
            if not np.isfinite(values).all() or values[0] <= 0:
                break
            last, V = V, (vectors / values) @ vectors.T
            V /= np.linalg.norm(V, 2)
            if values[0] < _FLAG_SHOWN * values[-1] or np.abs(V - last).max() < _FLAG_RESTS:
                break
        # The smallest of E come first: the largest of V.
        return [vectors[:, :d].T for d in range(1, P)]

    def _row_spaces(self) -> np.ndarray:
        """(N, K, n): bases of what the output shows at some of the fields, padded with zeros."""
        for J in self._found:
            J = J[np.isfinite(J).all(axis=(1, 2))][:_FLAG_FIELDS]
            if len(J):
                _, values, right = np.linalg.svd(J, full_matrices=False)
                kept = values > _ZERO * np.maximum(values[:, :1], 1e-300)
                return np.asarray(right * kept[:, :, None])[:, : max(int(kept.sum(axis=1).max()), 1)]
        return np.empty((0, 0, 0))


def jacobian_rank(link: LinkFunction, rows: tuple[int, ...], rng: np.random.Generator) -> float:
    """Mean rank of df/dZ restricted to the given rows of Z: :class:`JacobianRanks`."""
    return JacobianRanks(link, rng)(np.eye(link.fields)[list(rows)])[0]
