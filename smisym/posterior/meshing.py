"""How finely deep chains of single rows are integrated by meshes: boxes from fields drawn ahead, and then from what a
level says of itself.

Fields of all layers, drawn from the cavity and weighted by what stands behind the last of them, show where the states
between the layers are; a level says what its nodes, its stencils and its boxes miss, each of which the next one mends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from smisym.base import patience
from smisym.base.sobol import Normals
from smisym.integrate.averages import Average
from smisym.kernels.meshes import Mesh, Meshes, Seen
from smisym.posterior.level_chain import Chain, Mixing
from smisym.posterior.levels import legendre

# Fields that are drawn ahead, and how many of them must weigh at least, or weights are flattened.
_AHEAD, _ENOUGH = 1024, 64
# Boxes around what is drawn: weights above which it is within, deviations, and how much wider.
_WITHIN, _DEVIATIONS, _WIDER = 1e-3, 2.7, 0.2
# The first level: nodes of meshes along the long axis and the short one, how many more from table to table, and most;
# nodes in the angle by the logarithm of how steep scores are, to base 2, and along rays below and above the fourth; of
# the first layer, which has one state.
_SIDE, _MORE, _WIDEST = np.array([10.0, 10.0]), np.array([1.5, 1.0]), np.array([18.0, 14.0])
_ACROSS, _ALONG, _SINGLE = (6, 6, 8, 10, 10, 10, 9, 8, 7), (10, 8), 20
_LEAST_SIDE, _MOST_SIDE, _MOST_NODES = 8, 48, 64
# Error of one layer for which these do, and by which power of e it falls for every node more.
_SUFFICIENT, _FALL = 0.02, 0.7
# Discs of fields end where a share of the tolerance is beyond; how much farther where there is mass, and at most.
_DEPTH, _FARTHER, _FARTHEST = 3.0, 1.0, 9.5
# Shares of the tolerance of nodes, tables, boxes and borders; what a level aims at of each.
_NODES, _TABLES, _BORDERS, _AIM = 0.5, 0.5, 0.2, 0.6
# How far what lies beyond a mesh may be from where it is thought to be, in standard deviations.
_FAR = 0.5
# Messages, over the tolerance, around which boxes are drawn.
_HELD = 1e-3
# How much wider boxes are drawn where too much is beyond them.
_DRAWN_WIDER = 1.15
# Error, over the tolerance, from which on nodes may also become fewer, and by which factor; levels at most.
_NEAR, _COARSER, _ROUNDS = 4.0, 0.8, 6
# Evaluations of one level beyond which it is not tried.
MOST = 4 * 10**6


@dataclass
class Rung:
    """How finely each of S posteriors is integrated, as :class:`smisym.kernels.meshes.Mesh` has it."""

    rules: np.ndarray
    radius: np.ndarray
    sides: np.ndarray
    boxes: np.ndarray

    def take(self, index: np.ndarray) -> Rung:
        return Rung(*(getattr(self, field.name)[index] for field in fields(self)))


class Meshing:
    """The levels of a block of posteriors, until what each misses is below rtol."""

    def __init__(
        self, chain: Chain, run: Meshes, mixings: Sequence[Mixing], rtol: float, cov: bool, most: int | None
    ) -> None:
        self.chain, self.carry_out, self.rtol, self.cov, self.most = chain, run, rtol, cov, most or MOST
        S, K = chain.samples, chain.layers
        self.size = 2 * K + 2 * chain.of_samples["late"].shape[1]
        self.out = Average(
            np.full(S, np.nan),
            np.full((S, self.size), np.nan),
            np.full((S, self.size, self.size), np.nan) if cov else None,
            np.full(S, np.inf),
            np.zeros(S),
            np.zeros(S, dtype=bool),
        )
        radius = np.full(S, np.sqrt(2 * (_DEPTH + np.log(K) - np.log(min(rtol, 1.0)))))
        # Errors of layers add up in squares.
        finer = max(float(np.log(_SUFFICIENT * np.sqrt(K) / rtol)), 0.0)
        side = np.minimum(_SIDE + _MORE * np.arange(K - 1)[:, None], _WIDEST) * np.exp(finer / 6)
        sides = np.broadcast_to(np.minimum(side, _MOST_SIDE).astype(np.int64), (S, K - 1, 2)).copy()
        self.rung = Rung(self._rules(finer), radius, sides, drawn_ahead(chain, mixings))

    def run(self) -> Average:
        active = np.arange(self.chain.samples)
        for _ in range(_ROUNDS):
            active = active[self.cost(active) <= self.most]
            if not active.size:
                break
            patience.check()
            seen = self.at(active)
            parts = self.missed(active, seen)
            self._keep(active, seen, parts)
            rest = np.flatnonzero(~(self.out.error[active] <= self.rtol) & np.isfinite(seen.log_norm))
            self.refine(active[rest], seen, parts, rest)
            active = active[rest]
        self.out.converged = self.out.error <= self.rtol
        return self.out

    def _rules(self, finer: float) -> np.ndarray:
        """(S, K, 2): nodes of the first level in the angle and along rays, for errors smaller by exp(-finer)."""
        layers, factor = self.chain.of_layers, self.chain.of_samples["factor"]
        steep = np.log2(layers["scales"] * np.einsum("spp->sp", factor))
        across = np.interp(steep, np.arange(len(_ACROSS)), _ACROSS)
        # One piece where no creases are known.
        across = np.ceil(across) * np.where(layers["lines"] == 0, 3, 1)
        rules = np.stack([across, np.where(steep < 4, *_ALONG)], axis=2) + np.round(finer / _FALL)
        rules = np.minimum(rules, _MOST_NODES).astype(np.int64)
        rules[:, 0] = _SINGLE
        return rules

    def cost(self, index: np.ndarray) -> np.ndarray:
        """Evaluations of a level, (S,)."""
        rung = self.rung.take(index)
        states = np.concatenate([np.ones((len(index), 1)), rung.sides.prod(axis=2)], axis=1)
        return np.asarray((states * rung.rules.prod(axis=2) * (self.chain.of_layers["lines"] + 1)).sum(axis=1))

    def mesh(self, index: np.ndarray) -> Mesh:
        """What a level of some samples is made of."""
        rung, layers, S = self.rung.take(index), self.chain.of_layers, len(index)
        given = {name: np.ascontiguousarray(value[index]) for name, value in self.chain.of_samples.items()}
        return Mesh(
            **{name: layers[name] for name in ("kinds", "shares", "scales", "creases", "lines")},
            **{name: given[name] for name in ("omega", "points", "weight", "late", "whitening")},
            factor=np.ascontiguousarray(np.einsum("spp->sp", given["factor"])),
            rules=rung.rules,
            legendre=legendre(_MOST_NODES),
            radius=rung.radius,
            least=np.full(S, _HELD * self.rtol),
            sides=rung.sides,
            boxes=rung.boxes,
        )

    def at(self, index: np.ndarray) -> Seen:
        """One level of some samples."""
        S, K, D = len(index), self.chain.layers, self.size
        seen = Seen(
            np.full(S, np.nan),
            np.zeros((S, D)),
            np.zeros((S if self.cov else 0, D, D)),
            np.zeros((S, K, 2)),
            np.zeros((S, K - 1, 2)),
            np.zeros((S, K - 1)),
            np.zeros((S, K)),
            np.zeros(S),
            np.zeros((S, K - 1, 6)),
        )
        self.carry_out(self.mesh(index), seen, self.cov)
        return seen

    def missed(self, index: np.ndarray, seen: Seen) -> dict[str, np.ndarray]:
        """What a level misses of some samples: the error, (S,), and its parts."""
        radius = self.rung.radius[index][:, None]
        border = radius * np.abs(seen.border) * np.exp(-0.5 * (radius - 0.25))
        far = _FAR * np.abs(seen.far)
        error = np.sqrt((seen.missed**2).sum(axis=(1, 2))) + np.sqrt((seen.tables**2).sum(axis=(1, 2)))
        error = error + far.sum(axis=1) + border.sum(axis=1)
        return {"error": np.where(np.isfinite(seen.log_norm), error, np.inf), "border": border, "far": far}

    def _keep(self, index: np.ndarray, seen: Seen, parts: dict[str, np.ndarray]) -> None:
        out, error = self.out, np.nan_to_num(parts["error"], nan=np.inf)
        out.nodes[index] += seen.nodes
        better = error < out.error[index]
        own = index[better]
        out.log_norm[own], out.mean[own], out.error[own] = seen.log_norm[better], seen.mean[better], error[better]
        if out.cov is not None:
            mean = seen.mean[better]
            out.cov[own] = seen.second[better] - mean[:, :, None] * mean[:, None, :]

    def refine(self, index: np.ndarray, seen: Seen, parts: dict[str, np.ndarray], rest: np.ndarray) -> None:
        """The next level of samples that miss the tolerance."""
        rung, rtol, K = self.rung, self.rtol, self.chain.layers
        aim = _AIM * _NODES * rtol / np.sqrt(2 * K)
        ratio = np.log(min(aim, 0.5)) / np.log(np.clip(np.nan_to_num(seen.missed[rest], nan=0.7), 1e-12, 0.7))
        # What is nearly there needs no other nodes than it lacks.
        least = np.where(parts["error"][rest] <= _NEAR * rtol, 1.0, _COARSER)[:, None, None]
        rung.rules[index] = np.clip(np.ceil(rung.rules[index] * np.clip(ratio, least, 1.6)), 4, _MOST_NODES)
        aim = _AIM * _TABLES * rtol / np.sqrt(2 * (K - 1))
        finer = np.clip(np.nan_to_num(seen.tables[rest] / aim, nan=np.inf) ** (1 / 6), least, 1.7)
        boxes = seen.boxes[rest]
        wider = parts["far"][rest] > _BORDERS * rtol / (K - 1)
        boxes[..., 2:] *= np.where(wider, _DRAWN_WIDER, 1.0)[..., None]
        width = _widths(boxes) / _widths(rung.boxes[index])
        sides = np.ceil(rung.sides[index] * finer * np.minimum(width, 1.5))
        rung.sides[index] = np.clip(sides, _LEAST_SIDE, _MOST_SIDE)
        rung.boxes[index] = boxes
        farther = (parts["border"][rest].sum(axis=1) > _BORDERS * rtol) & (rung.radius[index] < _FARTHEST)
        rung.radius[index] += _FARTHER * farther


def _widths(boxes: np.ndarray) -> np.ndarray:
    """(..., 2): how wide boxes (..., 6) are along their axes."""
    return np.asarray(np.sqrt(boxes[..., 2:4] ** 2 + boxes[..., 4:6] ** 2))


def drawn_ahead(chain: Chain, mixings: Sequence[Mixing]) -> np.ndarray:
    """(S, K - 1, 6): boxes of the states that fields of the cavity lead to, those that lead to the output rather."""
    layers, given = chain.of_layers, chain.of_samples
    S, K = chain.samples, chain.layers
    z = Normals(2 * K, 0).draw(_AHEAD).reshape(_AHEAD, K, 2)
    deviation = np.einsum("spp->sp", given["factor"])
    C = np.broadcast_to(np.eye(2)[:, :, None, None], (2, 2, S, _AHEAD))
    states = []
    with np.errstate(all="ignore"):
        for k in range(K):
            h = given["omega"][:, None, k] + deviation[:, k, None, None] * z[:, k]
            U = [layers["scales"][k] * (C[t, 0] * h[..., 0] + C[t, 1] * h[..., 1]) for t in range(2)]
            A = mixings[layers["kinds"][k]](*U)
            A = [np.broadcast_to(entry, (S, _AHEAD)) for entry in A]
            C = np.stack([[A[2 * t] * C[0, u] + A[2 * t + 1] * C[1, u] for u in range(2)] for t in range(2)])
            if k < K - 1:
                C = C * layers["shares"][k]
                delta = 1 - C[1, 0] - C[0, 1]
                states.append(np.log1p(np.stack([C[1, 0], C[0, 1]]) / delta))
        # The last mixing is not divided by what its rows sum to, which may be anything.
        weight = _weights(given, layers["scales"][K - 1] * C)
        return np.stack([boxed(state, weight) for state in states], axis=1)


def _weights(given: dict[str, np.ndarray], C: np.ndarray) -> np.ndarray:
    """(S, N): of what stands behind matrices C (2, 2, S, N), flattened until enough of them weigh."""
    points, omega, whitening = given["points"], given["late"], given["whitening"]
    det = C[0, 0] * C[1, 1] - C[0, 1] * C[1, 0]
    u, v = (points[..., a].transpose(1, 2, 0)[..., None] for a in range(2))
    late = np.stack([C[1, 1] * u - C[0, 1] * v, C[0, 0] * v - C[1, 0] * u]) / det
    late = late - omega.transpose(2, 1, 0)[:, None, :, :, None]
    late = np.einsum("spq,tbqsn->tbpsn", whitening, late)
    log = given["weight"].T[..., None] - 0.5 * (late**2).sum(axis=(0, 2))
    log = np.logaddexp.reduce(log, axis=0) - points.shape[2] * np.log(np.abs(det))
    log = np.where(np.isfinite(log), log, -np.inf)
    log = log - log.max(axis=1, keepdims=True)
    power = np.ones((len(log), 1))
    for _ in range(12):
        w = np.exp(power * log)
        few = w.sum(axis=1) ** 2 < _ENOUGH * (w**2).sum(axis=1)
        if not few.any():
            break
        power[few] *= 0.7
    return np.asarray(w / w.sum(axis=1, keepdims=True))


def boxed(states: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(S, 6): boxes along the principal axes of states (2, S, N) of these weights (S, N)."""
    states = np.where(np.isfinite(states), states, 0.0)
    middle = (states * weight).sum(axis=2)
    gap = states - middle[..., None]
    xx, xy, yy = ((gap[a] * gap[b] * weight).sum(axis=1) for a, b in ((0, 0), (0, 1), (1, 1)))
    angle = 0.5 * np.arctan2(2 * xy, xx - yy)
    c, d = np.cos(angle), np.sin(angle)
    turned = np.stack([c[:, None] * gap[0] + d[:, None] * gap[1], c[:, None] * gap[1] - d[:, None] * gap[0]])
    deviation = np.sqrt((turned**2 * weight).sum(axis=2)) + 1e-9
    kept = weight > _WITHIN * weight.max(axis=1, keepdims=True)
    low = np.minimum(np.where(kept, turned, np.inf).min(axis=2), -_DEVIATIONS * deviation) - _WIDER * deviation
    high = np.maximum(np.where(kept, turned, -np.inf).max(axis=2), _DEVIATIONS * deviation) + _WIDER * deviation
    m, r = 0.5 * (low + high), 0.5 * (high - low)
    return np.stack(
        [middle[0] + c * m[0] - d * m[1], middle[1] + d * m[0] + c * m[1], c * r[0], -d * r[1], d * r[0], c * r[1]],
        axis=1,
    )
