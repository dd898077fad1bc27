"""A noisy output around the level sets of the noiseless one, for every chart: coordinates of the image, numerically.

    p(y) = int dv c(v) N(y; f(v), Delta) int dx w(u(v), x) N(Z(x, u(v)); omega, V),

v coordinates of the image about its most likely point (:mod:`smisym.posterior.image`), u(v) the coordinates that the
chart reads off the noiseless output at v.  The weights w of a chart may leave out factors that depend on the output
alone: c(v) brings them back.  With G = dv/dZ and tangents tau = dZ/d(latents, directions), both over the solved fields
and at any one point of the level set, the co-area formula says

    c = |det (tau, G^T)| / (w det G G^T),

or c = |det du/dv| where w leaves nothing out.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from smisym.base.axes import canonical
from smisym.base.matrices import solve_each
from smisym.charts.base import Arrays, Coordinates, LevelSet, Unfolding
from smisym.charts.covering import read_coordinates
from smisym.integrate.modes import Doubt, Values, log_density
from smisym.integrate.seeking import Modes, find_modes
from smisym.link.linking import LinkFunction, Observation
from smisym.posterior.all_fields import OnFields
from smisym.posterior.around import lives_around, spread_of, weak_beside
from smisym.posterior.base import METHODS, SAMPLED, Cavity, Kind, Whitening, entries_of, log_noise
from smisym.posterior.image import Anchors, Image
from smisym.posterior.level_set import Whitened, rows_of
from smisym.posterior.placing import Places, components, normals, refit

# Samples located together: some thousand points of the image each.
_BLOCK = 64
# Free fields and latent coordinates at which the factor of the output alone is read off: any generic point, with small
# latent coordinates, where the smoothed turn of an angle counts every point once (to 4e-9).
_GENERIC = np.random.default_rng(4).uniform(0.3, 0.9, 64) * np.resize([1, -1, -1, 1, -1], 64)
_LATENT = 0.2
# Step and weights of derivatives of fourth order.
_STEP = 2e-4
_DIFFERENCES = ((1.0, 2 / 3), (-1.0, -2 / 3), (2.0, -1 / 12), (-2.0, 1 / 12))
# Largest ratio of the noise to the variance of the noiseless output at which a point of the image is worth its price.
NEAR = 0.1
# So many fields and fewer a lattice over all of them resolves at less cost, however thin the shell.
_FEW = 2
# Points of the image, for each of its dimensions and each maximum, that must be found again; maxima at most; how much
# less mass than at the best one, in nats, is not worth a look; what counts as the same output, in units of the noise;
# how many standard deviations the points reach.
_LOOKS, _MAXIMA, _WORTH, _SAME, _REACH = 32, 4, 9.0, 0.1, 1.5
# Share of the mass that may be missed.
MISSABLE = 2e-2


@dataclass(frozen=True)
class Located:
    """Outputs, and where they put the coordinates of the image.

    y (S, M): outputs.  Z (S, n): fields at the likeliest point.  centre (S, K), factor (S, K, K): of v about it.
    missed (S,): what is missed of the mass near the maxima, in units of the whitened fields.
    """

    y: np.ndarray
    Z: np.ndarray
    centre: np.ndarray
    factor: np.ndarray
    missed: np.ndarray
    relative_error: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: slice | np.ndarray) -> Located:
        """The same for some of the samples."""
        return Located(*(getattr(self, f.name)[index] for f in fields(self)))


class AroundImage(Kind):
    """A noisy output whose noiseless link has a chart, in coordinates of the image found numerically.

    missable: share of the mass that these coordinates may miss; a sample of which they miss more is in doubt.
    """

    smooth = False

    def __init__(
        self, level_set: LevelSet, link: LinkFunction, noise: float, image: Image, missable: float = MISSABLE
    ) -> None:
        self.level_set, self.link, self.noise, self.image, self.missable = level_set, link, noise, image, missable
        self.order = rows_of(level_set)
        self.dim = len(level_set.free_rows) * link.tokens + len(level_set.latents) + image.rank
        self.spread = spread_of(link)

    def noise_is_weak(self, V: np.ndarray) -> np.ndarray:
        """(S,) whether the noise is weak beside what the cavity leaves open of the output; V (S, P, P)."""
        return weak_beside(self.noise, NEAR * self.spread, self.level_set, V)

    def read(self, observation: Observation) -> Coordinates:
        return entries_of(observation)

    def locate(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> tuple[Located, np.ndarray, np.ndarray]:
        """What :meth:`at` needs of the outputs; which samples can be integrated so, and which in part."""
        cavity = Cavity.of(omega, V, self.order)
        blocks = [slice(i, i + _BLOCK) for i in range(0, len(omega), _BLOCK)]
        parts = [locate(self, observed.values[part], cavity.centre[part], cavity.factor[part]) for part in blocks]
        y, Z, centre, factor, missed, suited, in_part = map(np.concatenate, zip(*parts, strict=True))
        return Located(y, Z, centre, factor, missed, observed.relative_error), suited, in_part

    def at(self, observed: Located, omega: np.ndarray, V: np.ndarray) -> OnImage:
        return OnImage(self, observed, Cavity.of(omega, V, self.order))

    def describe(self) -> tuple[str, str]:
        return lives_around(self.noise, self.dim), METHODS.get(self.dim, SAMPLED)


def refusal(level_set: LevelSet, image: Image, ratio: float) -> str:
    """Why the posterior is not integrated so, or nothing; ratio of the noise to the variance of the output."""
    if image.entries <= _FEW:
        return f"there are {image.entries} fields, which a lattice over all of them resolves at less cost"
    if ratio > NEAR:
        return f"that is more than {NEAR:g} of it, from where on coordinates of the image found numerically do not pay"
    if image.rank != level_set.dimension:
        return f"its level sets have {level_set.dimension} coordinates of the output, not {image.rank}"
    if level_set.shared and not _complete(level_set):
        return "its sheets share points, with weights that leave out a factor of the output"
    return ""


def _complete(level_set: LevelSet) -> bool:
    return level_set.complete or level_set.density


class OnImage(Whitened):
    """The posterior of one block of samples over (x, t, r): x the whitened free fields and the latent coordinates, t
    of which v is a function, r the whitened solved fields.
    """

    # Its own maxima are dear to find: whoever samples it begins with broad proposals about the place of v.
    modeless = True

    def __init__(self, posterior: AroundImage, located: Located, cavity: Whitening) -> None:
        super().__init__(posterior.level_set, posterior.link.tokens, located.y, cavity)
        self.posterior, self.link, self.image = posterior, posterior.link, posterior.image
        self.located, self.anchors = located, self.image.anchored(located.Z)
        self.places = components(np.zeros((len(located), 1)), located.centre[:, None], located.factor[:, None])
        self.others = self.dim
        self.dim += self.image.rank

    def take(self, index: np.ndarray) -> OnImage:
        """The same for some of the samples."""
        return OnImage(self.posterior, self.located.take(index), self.cavity.take(index))

    def log_density(self) -> np.ndarray:
        return super().log_density() + log_noise(self.u.shape[1], self.posterior.noise)

    def doubt(self, seen: Doubt | None) -> tuple[np.ndarray, np.ndarray]:
        return self.located.missed, np.zeros(self.samples, dtype=bool)

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        """Residuals (branches, m, n, C), log-weight (branches, n, C) and spread at x (d, n, C)."""
        shape = x.shape[1:]
        v = self.places.at(0, index, x[self.others :])
        owner = np.tile(index, shape[0])
        flat = np.stack([np.broadcast_to(value, shape).ravel() for value in v], axis=1)
        Z, there = self.image.lift(self.anchors, owner, flat)
        Z[~there] = self.anchors.Z[owner[~there]]
        observed = self.link.observe(Z.reshape(len(Z), self.link.fields, self.tokens))
        found, read = read_coordinates(self.level_set, observed)
        u = found.values
        measure = log_measure(self.level_set, self.image, self.anchors.frame[owner], Z, u)
        r, log_weight, along, *_ = self.on_sheets(index, x[: self.others], [column.reshape(shape) for column in u.T])
        misfit = observed.y.reshape(len(Z), -1) - self.u[owner]
        extra = measure - 0.5 * (misfit**2).sum(axis=1) / self.posterior.noise
        extra = np.where(there & read, extra, -np.inf).reshape(shape)
        extra = extra + self.places.log_share(0, index, v, np.ones((1, len(v))))
        log_weight = np.broadcast_to(log_weight + extra, (self.branches, *shape))
        return Values(r, np.where(np.isfinite(log_weight), log_weight, -np.inf), along)


# ------------------------------------------------------------------------------------------------------- the measure


def log_measure(level_set: LevelSet, image: Image, frame: np.ndarray, Z: np.ndarray, u: np.ndarray) -> np.ndarray:
    """log c, (N,): what the chart's weights lack at the points of fields Z (N, n), with coordinates u (N, m)."""
    with np.errstate(all="ignore"):
        if _complete(level_set):
            return _log_slope(level_set, image, frame, Z)
        return _log_coarea(level_set, image, frame, u)


def _log_slope(level_set: LevelSet, image: Image, frame: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """log |det du/dv|: derivatives of u along the fields that move v."""
    G = np.swapaxes(frame, 1, 2) @ image.jet(Z)[1]
    K = G.shape[1]
    inverse = np.stack([solve_each(G @ np.swapaxes(G, 1, 2), np.broadcast_to(e, G.shape[:2])) for e in np.eye(K)], 2)
    back = np.swapaxes(G, 1, 2) @ inverse
    size = np.sqrt((back**2).sum(axis=1))  # (N, K)
    slope = np.zeros((len(Z), K, K))
    for k in range(K):
        unit = back[:, :, k] / size[:, k, None]
        for step, weight in _DIFFERENCES:
            moved = np.nan_to_num(Z + step * _STEP * unit)
            observed = image.link.observe(moved.reshape(len(Z), image.link.fields, -1))
            slope[:, :, k] += weight * read_coordinates(level_set, observed)[0].values
    return log_abs_det(slope / _STEP) + np.log(size).sum(axis=1)


def _log_coarea(level_set: LevelSet, image: Image, frame: np.ndarray, u: np.ndarray) -> np.ndarray:
    """log of |det (tau, G^T)| / (w det G G^T) over the solved fields, on the first sheet that there is."""
    out = np.full(len(u), np.nan)
    for sheet in range(level_set.branches):
        rest = np.flatnonzero(~np.isfinite(out))
        if not rest.size:
            break
        out[rest] = _log_coarea_on(sheet, level_set, image, frame[rest], u[rest])
    return out


def _log_coarea_on(sheet: int, level_set: LevelSet, image: Image, frame: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The same on one sheet, at a generic point of it; not finite where it has none."""
    T, N = image.link.tokens, len(u)
    n_free, n_latent = len(level_set.free_rows) * T, len(level_set.latents)
    point = np.resize(_GENERIC, n_free + n_latent)
    columns = list(u.T)
    free = [np.full(N, value) for value in point[:n_free]]
    latent = [np.full(N, value) for value in _LATENT * np.abs(point[n_free:])]
    sheets = level_set.solve(free, latent, columns)
    tangents = [_stack(d, N) for d in (sheets.directions[sheet] if level_set.directions else [])]
    for i in range(n_latent):
        total = np.zeros((N, len(level_set.solved_rows) * T))
        for step, weight in _DIFFERENCES:
            moved = [value + step * _STEP * (j == i) for j, value in enumerate(latent)]
            total += weight * _stack(level_set.solve(free, moved, columns).solved[sheet], N)
        tangents.append(total / _STEP)
    Z = np.empty((N, image.link.fields, T))
    Z[:, list(level_set.free_rows)] = _stack(free, N).reshape(N, -1, T)
    Z[:, list(level_set.solved_rows)] = _stack(sheets.solved[sheet], N).reshape(N, -1, T)
    J = image.jet(np.nan_to_num(Z.reshape(N, -1)))[1].reshape(N, -1, *Z.shape[1:])
    own = J[:, :, list(level_set.solved_rows)].reshape(N, J.shape[1], -1)
    G = np.swapaxes(frame, 1, 2) @ own
    square = np.concatenate([np.stack(tangents, axis=1), G], axis=1) if tangents else G
    own_weight = np.broadcast_to(sheets.log_weight[sheet if len(sheets.log_weight) > 1 else 0], (N,))
    return np.asarray(log_abs_det(square) - log_abs_det(G @ np.swapaxes(G, 1, 2)) - own_weight)


def _stack(entries: Arrays, count: int) -> np.ndarray:
    return np.stack([np.broadcast_to(e, (count,)) for e in entries], axis=1) if entries else np.empty((count, 0))


def log_abs_det(A: np.ndarray) -> np.ndarray:
    """log |det A| of (N, K, K), NaN where an entry is not finite."""
    good = np.isfinite(A).all(axis=(1, 2))
    return np.where(good, np.linalg.slogdet(np.where(good[:, None, None], A, 0.0))[1], np.nan)


# --------------------------------------------------------------------------------------------------------- the place


@dataclass
class _Tangent:
    """The posteriors of v alone, the fields taken for Gaussian in v: what :func:`smisym.posterior.placing.refit` fits
    to."""

    image: Image
    anchors: Anchors
    y: np.ndarray
    noise: float
    unfolding: Unfolding

    def misfit(self, index: np.ndarray, v: Arrays) -> np.ndarray:
        """(f(v) - y) / sqrt(Delta), (M, n, C); infinite outside the image."""
        shape = v[0].shape
        flat = np.stack([value.ravel() for value in v], axis=1)
        owner = np.tile(index, shape[0])
        Z, found = self.image.lift(self.anchors, owner, flat)
        y = self._output(Z) - self.y[owner]
        y[~found] = np.inf
        return np.asarray(np.moveaxis(y.reshape(*shape, -1), -1, 0) / np.sqrt(self.noise))

    def _output(self, Z: np.ndarray) -> np.ndarray:
        link = self.image.link
        with np.errstate(all="ignore"):
            return link(np.nan_to_num(Z).reshape(len(Z), link.fields, -1)).reshape(len(Z), -1)


def locate(posterior: AroundImage, y: np.ndarray, omega: np.ndarray, factor: np.ndarray) -> tuple[np.ndarray, ...]:
    """y, Z_0, centre of v, factor of v and what is missed, as :class:`Located` has them; which samples can be
    integrated so, and which in part only."""
    image, link, S = posterior.image, posterior.link, len(y)
    rows = list(posterior.order)
    whole = np.linalg.cholesky(_covariance(factor, rows))
    with np.errstate(all="ignore"):
        everywhere = OnFields(link, posterior.noise, y, Cavity(omega, whole, tuple(range(link.fields))), broken=False)
        modes = find_modes(everywhere, np.arange(S))
        normal = np.eye(image.entries) + np.einsum("skmi,skmj->skij", modes.jacobian, modes.jacobian)
        good = np.isfinite(normal).all(axis=(2, 3)) & np.isfinite(modes.value)
        normal[~good] = np.eye(image.entries)
        mass = np.where(good, modes.value - 0.5 * np.linalg.slogdet(normal)[1], -np.inf)
        zeta = modes.x.reshape(S, -1, link.fields, link.tokens)
        Z = (omega[:, None] + np.einsum("spq,skqt->skpt", whole, zeta)).reshape(S, zeta.shape[1], -1)
        best = mass.argmax(axis=1)
        anchors = image.anchored(Z[np.arange(S), best])
        suited = np.isfinite(mass.max(axis=1)) & np.isfinite(anchors.back).all(axis=(1, 2))
        places, suited = _place(posterior, anchors, y, omega, whole, suited)
        missed = _missed(posterior, everywhere, anchors, modes, mass)
    doubt = np.sqrt(image.entries) * missed
    found = y, anchors.Z, places.centre[:, 0], places.factor[:, 0], doubt
    return *found, suited & (missed <= posterior.missable), suited & (missed > posterior.missable) & (missed < 1)


def _covariance(factor: np.ndarray, rows: list[int]) -> np.ndarray:
    """V (S, P, P) in the order of the fields, from its factor with the rows in the posterior's order."""
    V = np.empty_like(factor)
    V[:, np.array(rows)[:, None], rows] = factor @ np.swapaxes(factor, 1, 2)
    return V


def _missed(posterior: AroundImage, fields: OnFields, anchors: Anchors, modes: Modes, mass: np.ndarray) -> np.ndarray:
    """(S,): share of the mass near the maxima that the coordinates about the anchors do not reach.

    Points of the image from fields about each maximum, in the K directions that the output knows best, must be found
    again from their coordinates alone, and the chart must have a measure there: this sees maxima elsewhere, folds,
    searches that fail and charts of other sheets.
    """
    image, S = posterior.image, fields.samples
    K, n = image.rank, image.entries
    count = min(_MAXIMA, mass.shape[1])
    chosen = np.argsort(-mass, axis=1)[:, :count]
    take = np.arange(S)[:, None]
    J = np.where(np.isfinite(modes.jacobian[take, chosen]), modes.jacobian[take, chosen], 0.0)
    _, size, right = np.linalg.svd(J, full_matrices=n > J.shape[2])
    right = np.swapaxes(canonical(np.swapaxes(right, -1, -2)), -1, -2)
    step = right[..., :K, :] / np.sqrt(1 + size[..., :K, None] ** 2)  # (S, count, K, n)
    w = _REACH * normals(K, _LOOKS * K)
    x = modes.x[take, chosen][..., None] + np.einsum("skji,jm->skim", step, w)  # (S, count, n, m)
    x = np.moveaxis(x, 2, 0).reshape(n, S, -1).swapaxes(1, 2)  # (n, count m, S)
    r, log_weight, *_ = fields.evaluate(np.arange(S), x)
    tilt = 0.5 * (w**2).sum(axis=0) / _REACH**2
    log_f = log_density(x, r, log_weight)[0] + np.tile(tilt, count)[:, None]
    log_f = np.where(np.isfinite(log_f), log_f, -np.inf)
    worth = (log_f > log_f.max(axis=0) - _WORTH) & np.isfinite(anchors.back).all(axis=(1, 2))
    where, owner = np.nonzero(worth)
    Z = fields.at(np.arange(S), x)[:, where, owner].T
    v = np.einsum("nmk,nm->nk", anchors.frame[owner], image.surface(Z) - anchors.value[owner])
    again, found = image.lift(anchors, owner, v)
    shape = (len(Z), image.link.fields, -1)
    gap = image.link(np.nan_to_num(again).reshape(shape)) - image.link(Z.reshape(shape))
    found &= (gap.reshape(len(Z), -1) ** 2).sum(axis=1) <= _SAME**2 * posterior.noise
    # Nor is anything of use where the chart cannot read the output, or has no measure there.
    coordinates, read = read_coordinates(posterior.level_set, image.link.observe(np.nan_to_num(again).reshape(shape)))
    u = coordinates.values
    found &= read & np.isfinite(log_measure(posterior.level_set, image, anchors.frame[owner], again, u))
    share = np.exp(log_f - log_f.max(axis=0))[where, owner]
    total, lost = (np.bincount(owner, k, minlength=S) for k in (share, share * ~found))
    return np.where(total > 0, lost / np.where(total > 0, total, 1.0), 1.0)


def _place(
    posterior: AroundImage, anchors: Anchors, y: np.ndarray, omega: np.ndarray, whole: np.ndarray, suited: np.ndarray
) -> tuple[Places, np.ndarray]:
    """One component for v, and for which samples there is one."""
    image, link, S = posterior.image, posterior.link, len(y)
    K, n = image.rank, image.entries
    V = np.einsum("spq,tu->sptqu", whole @ np.swapaxes(whole, 1, 2), np.eye(link.tokens)).reshape(S, n, n)
    prior = anchors.slope @ V @ np.swapaxes(anchors.slope, 1, 2)
    tangent = _Tangent(image, anchors, y, posterior.noise, Unfolding(K, np.ones((1, K))))
    slopes = _slopes(tangent, suited)
    suited = suited & np.isfinite(prior).all(axis=(1, 2)) & np.isfinite(slopes).all(axis=(1, 2))
    prior = np.where(suited[:, None, None], prior, np.eye(K))
    values = np.linalg.eigvalsh(prior)
    suited &= values[:, 0] > 1e-12 * values[:, -1]
    prior = np.where(suited[:, None, None], prior, np.eye(K))
    slopes = np.where(suited[:, None, None], slopes, 0.0)
    mean = np.einsum("ski,si->sk", anchors.slope, omega.reshape(S, n) - anchors.Z)
    mean = np.where(suited[:, None], mean, 0.0)
    known = np.linalg.inv(np.linalg.cholesky(prior))
    precision = np.einsum("smi,smj->sij", slopes, slopes) + np.swapaxes(known, 1, 2) @ known
    places = components(np.zeros((S, 1)), np.zeros((S, 1, K)), np.linalg.cholesky(np.linalg.inv(precision))[:, None])
    return refit(tangent, places, mean, known), suited


def _slopes(tangent: _Tangent, suited: np.ndarray) -> np.ndarray:
    """d(misfit)/dv at the anchors, (S, M, K), through the fields; zero where the sample is not suited."""
    Z, back = tangent.anchors.Z, tangent.anchors.back
    columns = []
    for k in range(back.shape[2]):
        size = np.sqrt((back[:, :, k] ** 2).sum(axis=1, keepdims=True))
        unit = np.where(suited[:, None], back[:, :, k] / size, 0.0)
        ahead, behind = (tangent._output(Z + s * 1e-5 * unit) for s in (1.0, -1.0))
        columns.append((ahead - behind) / (2e-5 * np.sqrt(tangent.noise)) * np.where(suited[:, None], size, 0.0))
    return np.stack(columns, axis=2)
