"""Cells of lattices, and what is kept of runs of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from smisym.integrate.accuracy import FEW, RESOLVED, STILL
from smisym.integrate.left_out import DISTANCE
from smisym.integrate.modes import Integrand, Summed

# Radius of what may hold mass, relative to that of a standard normal, from which on no probe was near the mass.
FAR = 1.3
# Error of a lattice over what its sublattices miss, at kinks and where sheets end: it falls like a power of the step,
# down to 1/2.
_AT_EDGES = 3.0
# Of what sublattices miss, in the error of a lattice.
ALIASING_POWER = 1.75
# Standard deviations from where a model has a cavity, from which on nothing is taken for granted of how spectra fall,
# at a loose tolerance; how many fewer for each digit below it, and the fewest.
_FAR_OUT, _LOOSELY, _NEARER, _LEAST = 4.0, 1e-3, 0.4, 2.0
# Distance in standard deviations of what lies beyond the border of a sum.
_BEYOND = 3.0


@dataclass
class Cells:
    """Cells of the lattices of a batch: owner (C,), corner (C, d) in units of the owner's cell width."""

    owner: np.ndarray
    corner: np.ndarray


@dataclass
class Sums:
    """Facts of C cells, and sums over the nodes of O runs of cells of one owner, relative to exp(top).

    Sums are kept for runs of cells, not for each cell: in four dimensions a posterior may have 10^5 cells.
    """

    bound: np.ndarray  # (C,) upper bound of log f in the cell
    change: np.ndarray  # (C,) largest change of a residual between neighbouring nodes, in standard deviations
    peak: np.ndarray  # (C, branches) largest log f of each branch, -inf where it has no field in the cell
    cut: np.ndarray  # (C,) whether a branch that matters has fields at some nodes of the cell and none at others
    owner: np.ndarray  # (O,) increasing, not strictly
    top: np.ndarray  # (O,)
    first: np.ndarray  # (O, 1+D) sums of 1, zeta
    alias: np.ndarray  # (O, A, 1+D) the same with the sign of each of the A = 2^d - 1 sublattices
    inner: np.ndarray  # (O, 2, 2+D) sums of 1, zeta, |zeta|^2 over what the integrand's own sums lose and miss
    coarse: np.ndarray  # (O,) sums of 1 over cells, as much of each as is not resolved (:func:`blurred`)
    second: np.ndarray | None  # (O, D, D)


def neighbours(cells: Cells, chosen: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs (chosen cell, another of the same posterior that touches it), direction by direction."""
    d = cells.corner.shape[1]
    low = cells.corner.min(axis=0) - 1
    sides = [*(int(n) for n in cells.corner.max(axis=0) - low + 2)]
    strides = np.array([math.prod(sides[i + 1 :]) for i in range(d)])
    own = math.prod(sides)
    if own * (int(cells.owner.max()) + 1) >= 2**62:
        raise OverflowError("the lattice has too many cells to be numbered")
    key = cells.owner * own + (cells.corner - low) @ strides
    order = np.argsort(key)
    for direction in itertools.product((-1, 0, 1), repeat=d):
        if any(direction):
            wanted = key[chosen] + int(np.dot(direction, strides))
            at = np.minimum(np.searchsorted(key, wanted, sorter=order), len(key) - 1)
            met = key[order[at]] == wanted
            yield chosen[met], order[at[met]]


@cache
def keep_freed_memory() -> None:
    """Have the C library keep the memory of temporary arrays instead of asking the system for it each time.

    glibc returns freed blocks of more than 128 kB to the system until it has seen a larger one (up to 32 MB) freed;
    page faults then cost up to twice the arithmetic.  Elsewhere this does nothing.
    """
    np.empty(31 * 2**20, dtype=np.uint8)


def add_runs(values: np.ndarray, scale: np.ndarray, owner: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Sums of scale * values (H, ...) over equal owners (H,), one row for each target; zero where there is none."""
    out = np.zeros((len(targets), *values.shape[1:]))
    if len(owner):
        starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
        values = values * scale.reshape(-1, *[1] * (values.ndim - 1))
        out[np.searchsorted(targets, owner[starts])] = np.add.reduceat(values, starts)
    return out


def parity_signs(places: np.ndarray) -> np.ndarray:
    """(A, n) signs of the A = 2^d - 1 sublattices at nodes of whole-numbered places (n, d)."""
    halves = np.array(list(itertools.product((0, 1), repeat=places.shape[1])))[1:]
    return np.asarray(1.0 - 2.0 * (halves @ places.T % 2))


def means_and_gaps(first: np.ndarray, alias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means (S, D) and what each sublattice misses of them and of the mass (S, A), from sums as :class:`Sums` has
    them."""
    mean = first[:, 1:] / first[:, :1]
    alias = alias / first[:, :1, None]
    gap = np.linalg.norm(alias[:, :, 1:] - alias[:, :, :1] * mean[:, None], axis=2) + np.abs(alias[:, :, 0])
    return mean, gap


def edge_error(gap: np.ndarray, before: np.ndarray, finer: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Error (S,) where there are kinks or ends of sheets, and what all sublattices miss (S,); ``before``: what they
    missed at a step of which this one is the part ``finer``.

    Where an edge falls between nodes is chance: the worse of the two.
    """
    missed = gap.sum(axis=1)
    return _AT_EDGES * np.maximum(missed, np.sqrt(finer) * before), missed


def sublattice_error(gap: np.ndarray, dim: int) -> np.ndarray:
    """Error of the full lattice from what its sublattices of half the density miss; gap (S, A).

    The trapezoid error is the integrand's spectrum at the dual lattice.  Keeping every second plane of nodes
    brings in dual vectors of half the length; there are 2^d - 1 ways, one for each direction that can be narrow.
    A spectrum that decays exponentially is squared when the length doubles, a Gaussian one decays more.  The power 7/4
    and the factor allow for a narrow feature of which sublattices see little: on three layers, in four dimensions, the
    square alone is below the true error for a fifth of the posteriors, and for most where the skip is 3; of two layers
    of ranks one and two, in three dimensions, for one of fifteen, by up to six times.
    """
    return aliasing_factor(dim) * np.where(gap < 1, gap**ALIASING_POWER, gap).sum(axis=1)


def aliasing_factor(dim: int) -> float:
    """Of :func:`sublattice_error`."""
    return 2.0 if dim <= 2 else 2.5


def measured(integrand: Integrand, rtol: float) -> np.ndarray:
    """(S,) of whose lattices the error is what half of the nodes miss, and not what a law makes of it.

    How fast a spectrum falls from what half of the nodes miss on is known for posteriors that a model makes.  Far from
    there steep scores leave parts of amplitude 1e-3 to 1e-5 whose spectra fall slowly: of two layers on two tokens,
    where a field has a mean beyond five, 3 % were off by more than :func:`sublattice_error` at 1e-3, by up to 130
    times.
    """
    far = max(_FAR_OUT - _NEARER * np.log10(_LOOSELY / rtol), _LEAST)
    return np.asarray(np.broadcast_to(np.asarray(integrand.outlying) > far, integrand.samples))


def blurred(change: Any, dim: int, np_: Any = np) -> Any:
    """The part of a cell (C,) that its nodes do not resolve, by the largest change of a residual from one to the next.

    All of it beyond ``RESOLVED``, else what sums over nodes that far apart, in standard deviations, miss of a Gaussian.
    Of more than two dimensions there are sublattices enough to tell the latter.  np_: numpy, or what has its functions.
    """
    if 2**dim - 1 > FEW:
        return np_.where(change > RESOLVED, 1.0, 0.0)
    missed = 2 * np_.exp(-2 * math.pi**2 / np_.maximum(change, STILL) ** 2)
    return np_.where(change > RESOLVED, 1.0, np_.where(change > STILL, missed, 0.0))


def random_error(
    gap: np.ndarray, share: np.ndarray, before: np.ndarray | float = 0.0, finer: np.ndarray | float = 2.0
) -> np.ndarray:
    """Error (S,) owed to cells between whose nodes residuals change fast: gap (S, A) is what sublattices miss, share
    (S,) what of all that was found is not resolved there, before (S,) what all sublattices missed at so many times
    (finer) the step; infinite where nothing was tried before.

    Their nodes meet a ridge at random: all of them miss as much as half of them do, and not its square, as where a
    spectrum decays.  (Bounds on what such cells hold are 20 to 10^4 times what they do, on three layers; one more
    halving of these cells alone misses what lies at their border, and makes means worse.)

    What sublattices miss is the spectrum at a few frequencies, and may vanish there by chance, as where an output that
    oscillates is met at two phases alone: of few sublattices it counts as no less than what was missed before has it,
    as of spectra that decay exponentially.
    """
    missed = gap.max(axis=1)
    if gap.shape[1] <= FEW:
        missed = np.fmax(missed, np.fmin(before, 1.0) ** np.fmin(finer, 2.0))
    return np.asarray(np.nan_to_num(np.fmin(missed, DISTANCE * share)))


def inner_sums(x: np.ndarray, r: np.ndarray, summed: Summed | None, mass: np.ndarray) -> np.ndarray:
    """Sums (C, 2, 2 + D) over points (x (d, n, C), r (m, n, C)) of weights mass (n, C): of 1, zeta and |zeta|^2 over
    what sums of the integrand's own lose at their border, and miss; (C, 0, 2 + D) where it has none."""
    if summed is None:
        return np.zeros((mass.shape[1], 0, 2 + len(x) + len(r)))
    zeta = np.concatenate([x, r])
    what = np.concatenate([np.ones((1, *mass.shape)), zeta, (zeta**2).sum(axis=0, keepdims=True)])
    return np.asarray(np.einsum("anc,dnc->cad", mass * np.stack([summed.lost, summed.missed]), what))


def inner_error(inner: np.ndarray, total: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Error (S,) of means (S, D) owed to sums of the integrand's own, from :attr:`Sums.inner`.

    What lies beyond their border is less than what lies on it, and no farther than a few standard deviations.  What
    they miss moves the mean by its share and by its distance, by the inequality of Cauchy and Schwarz.
    """
    if not inner.shape[1]:
        return np.zeros(len(total))
    with np.errstate(divide="ignore", invalid="ignore"):
        lost, missed = np.moveaxis(inner / total[:, None, None], 1, 0)
    share, first, second = missed[:, 0], missed[:, 1:-1], missed[:, -1]
    around = np.maximum(second - 2 * (first * mean).sum(axis=1) + share * (mean**2).sum(axis=1), 0.0)
    return np.asarray(share + np.sqrt(share * around) + _BEYOND * lost[:, 0])
