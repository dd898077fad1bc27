"""Numbers that tell the outputs of a chart, each output equally often, and the law of outputs in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smisym.base.sobol import Normals
from smisym.charts import LevelSet
from smisym.model.compiled import Model

# Points at which the law is looked at to see how wide it is, logs of the smallest and the largest width tried, how many
# widths, and points of a sample that is made of them.
_LOOKED, _WIDTHS, _SCALES, _DRAWN = 256, (-3.0, 4.0), 29, 1024
_LOOSE = 0.1


@dataclass(frozen=True)
class Outputs:
    """Outputs of a model by independent numbers v in R^K: the coordinates of its chart where these have a density, else
    those in which the chart says how it unfolds.  told: whether they are the coordinates."""

    model: Model
    chart: LevelSet
    size: int
    told: bool

    @classmethod
    def of(cls, model: Model) -> Outputs | None:
        """None where the chart knows no such numbers."""
        chart = model.level_set
        if chart is None:
            return None
        if chart.density or chart.complete:
            return cls(model, chart, chart.dimension, True)
        return None if chart.unfolding is None else cls(model, chart, chart.unfolding.size, False)

    def coordinates(self, v: np.ndarray) -> np.ndarray:
        """The chart's coordinates (n, k) of outputs v (n, K)."""
        unfolding = None if self.told else self.chart.unfolding
        if unfolding is None or unfolding.embed is None:
            return v
        return np.stack(unfolding.embed(list(v.T)), axis=1)

    def log_measure(self, v: np.ndarray) -> np.ndarray:
        """What the log-partition lacks to be the log of the density of v (n, K), up to a constant."""
        unfolding = None if self.told else self.chart.unfolding
        if unfolding is None or unfolding.log_weight is None:
            return np.zeros(len(v))
        with np.errstate(divide="ignore"):
            return np.broadcast_to(unfolding.log_weight(list(v.T)), len(v))

    def shown(self, v: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
        """The chart's coordinates (n, k) of what the link gives at any point of the level set, tokens in that order."""
        chart, link, n = self.chart, self.model.charted, len(v)
        T = link.tokens
        rng = np.random.default_rng(0)
        free = list(rng.standard_normal((len(chart.free_rows) * T, n)))
        latent = list(0.5 * rng.standard_normal((len(chart.latents), n)))
        solved = chart.solve(free, latent, list(self.coordinates(v).T)).solved[0]
        Z = np.empty((n, link.fields, T))
        rows = [*chart.free_rows, *chart.solved_rows]
        for k, value in enumerate([*free, *solved]):
            Z[:, rows[k // T], k % T] = value
        return chart.coordinates(link.observe(Z[:, :, list(order)])).values

    def sample(self, fields: np.ndarray) -> np.ndarray:
        """Points (n, K) about as the law of outputs has them, of random fields (n, P, T) where their outputs tell v."""
        if self.told:
            return self.chart.coordinates(self.model.observe(fields)).values
        K = self.size
        scales = np.exp(np.linspace(*_WIDTHS, _SCALES))
        normals = Normals(K, 0).draw(_LOOKED)
        v = normals * scales[np.arange(_LOOKED) % _SCALES][:, None]
        log_q = -0.5 * ((v[:, None] / scales[:, None]) ** 2).sum(axis=2) - K * np.log(scales)
        still = np.zeros((_LOOKED, self.model.fields, self.model.tokens))
        V = self.model.prior.nothing_known()
        found = self.model.channel.still.moments_at(self.coordinates(v), still, V, rtol=_LOOSE).log_partition
        log_p = found + self.log_measure(v) - np.log(np.exp(log_q).sum(axis=1))
        share = np.exp(np.where(np.isfinite(log_p), log_p, -np.inf) - np.nanmax(log_p))
        share /= share.sum()
        return v[np.searchsorted(np.cumsum(share), (np.arange(_DRAWN) + 0.5) / _DRAWN).clip(max=_LOOKED - 1)]
