"""One posterior of a deep network as rows against columns, at points that whoever integrates chooses.

Rows are the whitened first fields x, columns the free mixed fields U behind the cut (:mod:`smisym.posterior.chain`):
the exponent is bilinear in what a row gives and in what a column gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smisym.kernels.pairs import compiled_scouts
from smisym.posterior.chain import Chained, Mixed
from smisym.posterior.columns import Columns

# Pairs held at once where numpy sums them.
_PAIRS = 2**18


@dataclass(frozen=True)
class Rows:
    """First fields x (R, d): what columns see of them, and the rest of their exponents (R,), with that of the Gaussian
    and of their weights."""

    x: np.ndarray
    mixed: Mixed
    rest: np.ndarray

    @property
    def coefficients(self) -> np.ndarray:
        """(R, F)."""
        return np.ascontiguousarray(self.mixed.coefficients)


@dataclass(frozen=True)
class Points:
    """Columns: what the exponent is linear in (F, N), log-weights (N,), late fields (n T, N), and of which point of
    the level set each is (N,): there is one of every point on every sheet."""

    features: np.ndarray
    log_weight: np.ndarray
    fields: np.ndarray
    owner: np.ndarray


class Paired:
    """One posterior.

    rows, columns: numbers of dimensions.
    """

    def __init__(self, chained: Chained) -> None:
        if chained.samples != 1:
            raise TypeError("rows are paired with columns one posterior at a time")
        self.chained, self.chain = chained, chained.chain
        self.dim, self.summed = chained.dim, chained.chain.summed
        self.early, self.late, self.tokens = chained.early, chained.late, chained.chain.tokens
        self.sheeted = chained.sheeted()

    def rows(self, x: np.ndarray, log_weight: np.ndarray | float = 0.0) -> Rows:
        """At whitened first fields x (R, d)."""
        one, (E, T), R = self.chained, (self.early, self.tokens), len(x)
        z = x.reshape(R, E, T)
        first = one.omega_early + one.L_early[0] @ z
        mean = np.moveaxis(one.omega_late + one.L_cross[0] @ z, 0, -1)
        C = self.chain.reduction.mixing(first.reshape(R, E * T))
        mixed = one.behind(np.zeros(R, dtype=int), C, np.ascontiguousarray(mean))
        return Rows(x, mixed, mixed.constant - 0.5 * (x**2).sum(axis=1) + log_weight)

    def columns(self, points: np.ndarray, log_weight: np.ndarray | float = 0.0) -> Points:
        """At points (N, c) of the level set behind the cut, log-weights (N,) beside its own."""
        N = len(points)
        fields, weight = self.sheeted.of_one(0, np.ascontiguousarray(points.T))
        sheets = len(weight) // N
        features = self.chained.features(np.zeros(1, dtype=int), fields[None])[0]
        own = np.tile(np.broadcast_to(log_weight, N), sheets)
        return Points(features, weight + own, fields, np.tile(np.arange(N), sheets))

    def summed_up(self, rows: Rows, points: Points, sets: np.ndarray, cov: bool) -> Summed:
        """Sums over the columns for every row; sets (points,): which of the 2^c sublattices each point is on."""
        one, m, R = self.chained, self.chained.residuals, len(rows.x)
        parity = sets[points.owner]
        order = np.argsort(parity, kind="stable")
        order = order[np.isfinite(points.log_weight[order])]
        starts = np.r_[0, np.cumsum(np.bincount(parity[order], minlength=2**self.summed))]
        given = points.features[:, order], points.log_weight[order]
        columns = Columns(points.fields[:, order], *given, starts, given[1])
        block = one.ready(columns, np.arange(len(order)), np.zeros(len(order), dtype=bool))
        top, found, second = block.sums(rows.coefficients, m, cov)
        top = top + rows.rest
        most = float(top.max(initial=-np.inf))
        found = found[:, :-1] * np.exp(top - most)
        mass = found[:, 0]
        late = found[:, 1:].reshape(len(found), self.late, self.tokens, R)
        mean = np.moveaxis(rows.mixed.mean, 0, -1)
        own = np.einsum("rtv,apvr->aptr", rows.mixed.inverse, late) - mass[:, None, None] * mean
        r = np.einsum("pq,aqtr->aptr", one.L_inverse[0], own).reshape(len(found), m, R)
        sums = np.concatenate([mass[:, None], mass[:, None] * rows.x.T, r], axis=1)
        products = self._products(rows, second * np.exp(top - most)[:, None, None], found, sums) if cov else None
        return Summed(most, sums, products, R * len(order))

    def _products(self, rows: Rows, second: np.ndarray, found: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Sums (D, D) of products of all whitened fields, from those of late mixed ones for every row (R, m, m)."""
        d, m, R = self.dim, self.chained.residuals, len(rows.x)
        each = sums.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(each[0] > 0, 1 / each[0], 0.0)
        U = found.sum(axis=0)[1:].T
        change = np.einsum("pq,rtu->rptqu", self.chained.L_inverse[0], rows.mixed.inverse).reshape(R, m, m)
        spread = change @ (second - U[:, :, None] * U[:, None, :] * share[:, None, None]) @ np.swapaxes(change, 1, 2)
        out = np.einsum("ir,jr,r->ij", each[1:], each[1:], share)
        out[d:, d:] += spread.sum(axis=0)
        return out

    def column_mass(self, rows: Rows, points: Points) -> np.ndarray:
        """(points,) sums over the rows, relative to that over all."""
        N, R = len(points.log_weight), len(rows.x)
        alive = np.where(np.isfinite(points.log_weight), points.log_weight, -np.inf)
        top, mass = np.empty(N), np.empty((N, 1))
        run = compiled_scouts(len(points.features))
        if run is not None:
            across, along = np.ascontiguousarray(points.features.T), np.ascontiguousarray(rows.coefficients.T)
            run(across, alive, along, rows.rest, np.array([0, R]), top, mass, np.empty(R))
        else:
            step = max(1, _PAIRS // R)
            for i in range(0, N, step):
                exponent = points.features[:, i : i + step].T @ rows.coefficients.T + rows.rest
                exponent += alive[i : i + step, None]
                top[i : i + step] = exponent.max(axis=1)
                exponent -= np.where(np.isfinite(top[i : i + step]), top[i : i + step], 0.0)[:, None]
                mass[i : i + step, 0] = np.exp(exponent).sum(axis=1)
        weight = np.exp(top - top.max()) * mass[:, 0]
        return np.bincount(points.owner, weight / weight.sum())


@dataclass(frozen=True)
class Summed:
    """Sums over the columns: relative to exp(top), (sets, 1 + D, R) of 1 and of all whitened fields, x first; of their
    products over all rows and columns (D, D), where asked for; and pairs met."""

    top: float
    sums: np.ndarray
    products: np.ndarray | None
    pairs: int

    def by_row(self) -> np.ndarray:
        """(1 + D, R)."""
        return np.asarray(self.sums.sum(axis=0))
