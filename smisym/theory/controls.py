"""Rates of growth where nothing is known, with less noise: quantities of known mean beside them, as control variates.

With z the fields in units of the prior, standard normal, X = z z^T - I and G = E[X | y], the rates

    R_jk = sum_ts tr(U_j G_ts U_k G_ts^T)

have tails as heavy as those of |z|^4.  Much of what they fluctuate by they share with the traces of U_j G and U_k G, of
mean zero because X is, with the same of X in place of G, whose mean is that of a Gaussian, with X in place of one of
the two, which changes nothing on average since X is a sample of its own posterior, and with what a cheap stand-in for G
makes of it and how large the output is (:mod:`smisym.theory.surrogate`).  The third is what lets the second tell: at a
given output X fluctuates, by 2 tr(G (X - G)) to first order, and G does not.  Of the first two alone, measured as the
factor by which samples become fewer: 3 for two layers with sequence output on two tokens, 9 for two untied layers;
where the output leaves finitely many fields the second is taken on average over these
(:mod:`smisym.theory.at_points`).
Where the fields are known up to signs nothing is left to fluctuate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smisym.theory.folded import QUIET

# Numbers that are kept of each rate: itself, two traces of G, what X makes of it, and G and a stand-in for it, and the
# stand-in alone, what X and G make of it beyond G alone, and the size of the output and its square.
NUMBERS = 9
# Share of the largest variance of a control below which it is a combination of the others.
_SAME = 1e-9
# Controls, the rate left out, of exactly known mean; what is known of the others was drawn.
_EXACT = np.array([True, True, True, False, False, True, False, False])


@dataclass(frozen=True)
class StandIn:
    """H (n, P, T, P, T), a function of the output that stands for G, at the points.

    Known of it from draws of their own: the share (C,) of each cell, in which it is ``value`` and X is ``mean`` on
    average, (C, P, T, P, T).  sizes (n, 2): of the outputs and their squares, less what they are on average.
    """

    points: np.ndarray
    share: np.ndarray
    value: np.ndarray
    mean: np.ndarray
    sizes: np.ndarray

    def controls(self, unit: np.ndarray, dg: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(n, k, k) each, of mean zero: what G and H make together of the rates, and what H does alone."""
        both = rates_of(unit, dg, self.points) - np.einsum(
            "c,cjk->jk", self.share, rates_of(unit, self.mean, self.value)
        )
        alone = rates_of(unit, self.points) - np.einsum("c,cjk->jk", self.share, rates_of(unit, self.value))
        return _even(both), alone


def beside(
    unit: np.ndarray,
    dg: np.ndarray,
    star: np.ndarray,
    stand_in: StandIn | None = None,
    squares: np.ndarray | None = None,
    unsure: float = 0.0,
) -> np.ndarray:
    """(k, k, 9, 10): of R_jk and its controls the means, and after these the covariances.

    dg (n, P, T, P, T): G of n points; star (n, P, T): their fields z; along unit matrices (k, P, P).  squares
    (n, k, k): what X makes of the rates on average at each output, where that is known
    (:mod:`smisym.theory.at_points`).  unsure: standard error of means of G that no number of points takes away; traces
    that vary by no more than that, a hundred times, are no controls.
    """
    n, T = len(star), star.shape[2]
    X, known = products(star), known_mean(unit, T)
    shown = np.einsum("kpq,nptqt->nk", unit, dg)
    shown = np.where(shown.std(axis=0) > unsure / QUIET, shown, 0.0)
    rates = rates_of(unit, dg)
    nothing = np.zeros_like(rates)
    of_fields = (rates_of(unit, X) if squares is None else squares) - known
    crossed = _even(rates_of(unit, dg, X)) - rates if squares is None else nothing
    both, alone = (nothing, nothing) if stand_in is None else stand_in.controls(unit, dg)
    sizes = np.zeros((n, 2)) if stand_in is None else stand_in.sizes
    k = len(unit)
    told = np.empty((k, k, NUMBERS, NUMBERS + 1))
    for i, j in np.ndindex(k, k):
        every = (rates, nothing, nothing, of_fields, both, alone, crossed)
        numbers = np.stack([*(one[:, i, j] for one in every), *sizes.T])
        numbers[1], numbers[2] = shown[:, i], shown[:, j]
        mean = numbers.mean(axis=1)
        numbers -= mean[:, None]
        told[i, j] = np.concatenate([mean[:, None], numbers @ numbers.T / n], axis=1)
    return told


def products(z: np.ndarray) -> np.ndarray:
    """X = z z^T - I, (n, P, T, P, T), of fields (n, P, T)."""
    P, T = z.shape[1:]
    return np.asarray(np.einsum("npt,nqs->nptqs", z, z) - np.eye(P * T).reshape(P, T, P, T))


def known_mean(unit: np.ndarray, tokens: int) -> np.ndarray:
    """(k, k): what X makes of the rates on average over standard normal fields."""
    trace = np.einsum("kpp->k", unit)
    return np.asarray(tokens**2 * np.outer(trace, trace) + tokens * np.einsum("jpq,kqp->jk", unit, unit))


def _even(rates: np.ndarray) -> np.ndarray:
    return 0.5 * (rates + np.swapaxes(rates, 1, 2))


def rates_of(unit: np.ndarray, G: np.ndarray, H: np.ndarray | None = None) -> np.ndarray:
    """(n, k, k) from G and H (n, P, T, P, T), one and the same where there is no other."""
    if not any(np.count_nonzero(one - np.diag(np.diag(one))) for one in unit):
        # Classes of whole rows, as nearly always: only what G and H have at the same pair of rows counts.
        each = np.einsum("kpp->kp", unit)
        return np.asarray(each @ np.einsum("nptqs,nptqs->npq", G, G if H is None else H) @ each.T)
    fed = np.einsum("nptas,kab,nqtbs->nkpq", G, unit, G if H is None else H, optimize=True)
    return np.asarray(np.einsum("jpq,nkpq->njk", unit, fed, optimize=True))


def controlled(found: Sequence[np.ndarray]) -> np.ndarray:
    """(R, k, k): the mean rates of R scrambles (k, k, 9, 10) less what they share with their controls.

    Each takes its coefficients from the others, which are independent: from its own points, or from parts of one set of
    Sobol points, which balance each other, they would bias the mean.
    """
    every = np.array(found)
    mean, spread = every[..., 0], every[..., 1:]
    out = np.empty(mean.shape[:3])
    for r in range(len(every)):
        others = np.delete(spread, r, axis=0).mean(axis=0)
        for j, k in np.ndindex(*out.shape[1:]):
            least = QUIET * abs(mean[:, j, k, 0].mean())
            out[r, j, k] = mean[r, j, k, 0] - mean[r, j, k, 1:] @ _coefficients(others[j, k], least)
    return out


def _coefficients(spread: np.ndarray, least: float) -> np.ndarray:
    """Of the controls, from the covariances (9, 9) of the rate and them; controls that say the same share theirs.

    Those whose means are known exactly come first, and the others tell of what is left: both together are the same, but
    where a stand-in that says nothing new would bring in what its own mean is off by.  z tanh(3 z), which has fields
    known up to a sign and no noise left: first thresholds at 1024 samples were off by 2e-5 where 2e-6 was stated.
    Those that vary by less than ``least`` tell nothing: how well their means are known is more than that.
    """
    of_rate, among = spread[1:, 0], spread[1:, 1:]
    heard = np.sqrt(np.maximum(np.diag(among), 0.0)) > least
    first = heard & _EXACT
    exact = _regressed(among, of_rate, first)
    shared = _regressed(among, among, first)
    left = among - among @ shared
    # What is left of the others beside these; of one that is a combination of them, nothing.
    rest = heard & ~_EXACT & (np.diag(left) > _SAME * np.diag(among))
    others = _regressed(left, of_rate - among @ exact, rest)
    return np.asarray(exact + others - shared @ others)


def _regressed(among: np.ndarray, on: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Coefficients (c,) or (c, m) of the chosen of c controls with the covariances ``among`` (c, c), for what has the
    covariances ``on`` (c,) or (c, m) with them; zero of the others."""
    out = np.zeros(on.shape)
    size = np.sqrt(np.diag(among)[chosen])
    alike = among[np.ix_(chosen, chosen)] / np.outer(size, size)
    inverse = np.linalg.pinv(alike, rcond=_SAME, hermitian=True) / np.outer(size, size)
    out[chosen] = inverse @ on[chosen]
    return out
