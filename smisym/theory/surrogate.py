"""A cheap stand-in for the posterior where nothing is known: E[z z^T - I | y] in cells of outputs.

Draws of fields and outputs are cut into cells of equally many, by halves along the coordinate of the output that is
widest there.  Whatever a stand-in H of y misses of G = E[X | y], X = z z^T - I,

    E[G (x) H] = E[X (x) H]   and   E[H (x) H]

are known from draws alone, millions of them, without any posterior: beside what posteriors give at their own points
they are control variates of E[G (x) G] that leave the square of G - H to be sampled, two to five per cent of the whole
where outputs have two coordinates.

How large an output is, and the square of it, have known means as well.  Where scores are shown they grow like |z|^2,
and with them most of the tails of G (x) G: of an untied head of rank two on three tokens controls of two traces leave
fluctuations of 0.46 of the rate, the squared size beside them 0.021, and the size 0.0012.  Where outputs grow faster,
as behind many layers, few points tell nothing of such means: what no point has met is what makes them.  There it is a
power of the size that has no more tails than products of two fields.  First thresholds of sixteen layers at 512 samples
were 0.060(34) with the size itself, below any that there can be, where plain means of the same points have 0.28.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from smisym.base import patience
from smisym.base.sobol import Normals
from smisym.link.linking import Observation
from smisym.model.compiled import Model
from smisym.theory.controls import StandIn
from smisym.theory.counted import are_counted
from smisym.theory.over_outputs import by_quadrature

# log2 of the draws that tell axes, of those of a cell, and of those that tell means beside one scramble.
_PROBED, _CELL, _KNOWN = 16, 8, 19
# log2 of the draws that cells are made of: where outputs have so many coordinates at most, in which more and smaller
# ones tell more (1024 samples of two layers with sequence output, the first untied, on two tokens: errors of 0.0020
# where 2^19 draws leave 0.0037), and otherwise.
_FEW_COORDINATES, _MANY_DRAWS, _DRAWS = 2, 21, 19
# Posteriors of one scramble from which on a stand-in is made.
_FEW = 32
# Draws made at once.
_AT_ONCE = 2**16
# Share of the largest variance of an output's coordinates below which one is constant.
_CONSTANT = 1e-13
# Far quantile of sizes, over the median: from which on their own means are not told by few points, and what the power
# that is taken instead brings it to.  That of a product of two fields is 22, that of a third power 192.
_FAR, _HEAVY, _USUAL = 0.9999, 300.0, 30.0
# Quantiles between which the width of a cell is measured.
_WIDTH = (0.1, 0.9)
_SEED = 20261124


@dataclass(frozen=True)
class Surrogate:
    """axes (M, m), centre (M,), scale (m,): from an output to the coordinates that cells are cut along.  width (m,): of
    these, standard deviations.

    power: of sizes, 1 where these have tails as products of fields have.  cuts: level by level the coordinate and the
    place of each cut.  G (C, P, T, P, T): of each cell.
    """

    axes: np.ndarray
    centre: np.ndarray
    scale: np.ndarray
    width: np.ndarray
    power: float
    cuts: tuple[tuple[np.ndarray, np.ndarray], ...]
    G: np.ndarray

    @classmethod
    def of(cls, model: Model) -> Surrogate:
        probed, made = np.random.SeedSequence(_SEED).spawn(2)
        probe = Normals(model.fields * model.tokens, probed, fine=True).draw(2**_PROBED)
        still = np.zeros((_AT_ONCE, model.channel.noise_dimensions))
        noiseless = np.concatenate([_shown(model, part, still[: len(part)]) for part in _parts(probe)])
        # In units, a power of two, of the largest of them, whose square may be no float.
        unit = math.ldexp(0.5, math.frexp(float(np.abs(noiseless).max()))[1])
        noiseless /= unit
        centre = unit * noiseless.mean(axis=0)
        values, axes = np.linalg.eigh(np.cov(noiseless.T).reshape(len(centre), -1))
        shown = values > _CONSTANT * values[-1]
        axes, width = axes[:, shown], unit * np.sqrt(values[shown])
        draws = _MANY_DRAWS if axes.shape[1] <= _FEW_COORDINATES else _DRAWS
        z, y = _drawn(model, draws, made)
        v = (y - centre) @ axes
        power = _power(np.linalg.norm(v / width, axis=1))
        scale = np.maximum(np.median(np.abs(v), axis=0), np.finfo(float).tiny)
        v = np.arcsinh(v / scale)
        cuts, cells = _cut(v, draws - _CELL)
        shape = (-1, model.fields, model.tokens) * 2
        G = _means(z, cells, 2 ** len(cuts))[1].reshape(-1, *shape[1:3], *shape[1:3])
        # What a flip that leaves the output alone changes the sign of is zero.
        signs = model.symmetry.signs
        alike = (signs[:, :, None] == signs[:, None, :]).all(axis=0)
        return cls(axes, centre, scale, width, power, tuple(cuts), np.where(alike[:, None, :, None], G, 0.0))

    def cells(self, y: np.ndarray) -> np.ndarray:
        """Numbers (n,) of the cells of outputs y (n, M)."""
        v = np.arcsinh(((y - self.centre) @ self.axes) / self.scale)
        found, rows = np.zeros(len(v), dtype=int), np.arange(len(v))
        for axis, place in self.cuts:
            found = 2 * found + (v[rows, axis[found]] > place[found])
        return found

    def sizes(self, y: np.ndarray) -> np.ndarray:
        """(n, 2): of outputs y (n, M), in standard deviations, to the power, and their squares."""
        square = (((y - self.centre) @ self.axes / self.width) ** 2).sum(axis=1) ** self.power
        return np.stack([np.sqrt(square), square], axis=1)

    def at(self, model: Model, observed: Observation, seed: np.random.SeedSequence) -> StandIn:
        """The stand-in at n outputs, and what is known of it by draws of their own."""
        y = _told(observed.y if observed.log_ratios is None else observed.log_ratios)
        z, others = _drawn(model, _KNOWN, seed)
        counts, means = _means(z, self.cells(others), len(self.G))
        sizes = self.sizes(y) - self.sizes(others).mean(axis=0)
        return StandIn(self.G[self.cells(y)], counts / len(z), self.G, means.reshape(self.G.shape), sizes)


def _power(sizes: np.ndarray) -> float:
    """The power of sizes (n,) whose far quantile is a usual one; 1 where that of the sizes is not far out."""
    middle, far = np.quantile(sizes, (0.5, _FAR))
    if not 0 < middle < far or far <= _HEAVY * middle:
        return 1.0
    return math.log(_USUAL) / math.log(far / middle)


def worth(model: Model, points: int) -> bool:
    """Whether a stand-in is made for so many posteriors: where they cost more than it."""
    channel = model.channel
    if channel.plan.dearer == 1 or points < _FEW or are_counted(model):
        return False
    # Where all outputs share their rows thresholds are integrated over outputs.
    return channel.shared is None or not by_quadrature(model)


def _told(y: np.ndarray) -> np.ndarray:
    """What cells are cut along, (n, M): log-ratios, of which masked ones tell nothing, or the entries of outputs."""
    return np.where(np.isfinite(y), y, 0.0).reshape(len(y), -1)


def _parts(z: np.ndarray) -> list[np.ndarray]:
    return [z[i : i + _AT_ONCE] for i in range(0, len(z), _AT_ONCE)]


def _shown(model: Model, z: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """What :func:`_told` is told of outputs at fields z (n, P T): log-ratios without noise, under it the entries."""
    patience.check()
    scale = model.prior.law(np.zeros((model.fields, model.fields))).scale
    Z = scale @ z.reshape(len(z), model.fields, model.tokens)
    return _told(model.channel.draw(Z, noise).y if model.noise else model.link.raw(Z))


def _drawn(model: Model, log_n: int, seed: np.random.SeedSequence) -> tuple[np.ndarray, np.ndarray]:
    """Fields (n, P T), standard normal, and their outputs (n, M), under noise."""
    size, K = model.fields * model.tokens, model.channel.noise_dimensions
    drawn = Normals(size + K, seed, fine=True).draw(2**log_n)
    z, noise = np.split(drawn, [size], axis=1)
    return z, np.concatenate([_shown(model, *both) for both in zip(_parts(z), _parts(noise), strict=True)])


def _cut(v: np.ndarray, levels: int) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """Cuts of points v (n, m) in halves, level by level, and the cell (n,) of each point."""
    cuts, parts = [], [np.arange(len(v))]
    for _ in range(levels):
        axes, places, halves = [], [], list[np.ndarray]()
        for part in parts:
            patience.check()
            own = v[part]
            if not len(own):  # below a cut in the middle of many equal outputs
                halves += [part, part]
                axes.append(0)
                places.append(0.0)
                continue
            axis = int(np.ptp(np.quantile(own, _WIDTH, axis=0), axis=0).argmax())
            place = float(np.median(own[:, axis]))
            above = own[:, axis] > place
            halves += [part[~above], part[above]]
            axes.append(axis)
            places.append(place)
        cuts.append((np.array(axes), np.array(places)))
        parts = halves
    cells = np.empty(len(v), dtype=int)
    for number, part in enumerate(parts):
        cells[part] = number
    return cuts, cells


def _means(z: np.ndarray, cells: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """How many points are in each of ``count`` cells, and the means (count, D, D) of z z^T - I in each."""
    D = z.shape[1]
    counts = np.bincount(cells, minlength=count)
    means = np.empty((count, D, D))
    for i in range(D):
        for j in range(i, D):
            total = np.bincount(cells, z[:, i] * z[:, j], count)
            means[:, i, j] = means[:, j, i] = total / np.maximum(counts, 1) - (i == j)
    return counts, means
