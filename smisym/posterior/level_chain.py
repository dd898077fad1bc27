"""What chains of tables are, whatever their level; and which states to expect between their layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from smisym.base.sobol import Normals
from smisym.kernels.chains import REACH

Mixing = Callable[..., list[np.ndarray]]

# Fields that show which states to expect, spread that much wider than the cavity.
_SCOUTS, _SPREAD = 16, 1.2
# By how much wider than theirs states are expected: a factor of four of what is far out.
_MORE = 1.5


@dataclass(frozen=True)
class Chain:
    """S posteriors, whatever their level: the parts of :class:`smisym.kernels.chains.Given` that do not change.

    of_layers: those of all samples; of_samples: those of each.
    """

    of_layers: dict[str, np.ndarray]
    of_samples: dict[str, np.ndarray]

    # Many parameters: what is known of a chain, by name.
    @classmethod
    def of(
        cls,
        kinds: np.ndarray,
        row_sums: np.ndarray,
        flips: list[np.ndarray],
        apart: list[np.ndarray],
        creases: list[np.ndarray],
        *,
        omega: np.ndarray,
        factor: np.ndarray,
        points: np.ndarray,
        weight: np.ndarray,
    ) -> Chain:
        """kinds (K,), row_sums (K,) of the layers; flips, one (G, rows) each, apart, one (rows,) each, and creases, one
        (C,) each; omega (S, P, 2) and factor (S, P, P) of their rows and then of the late ones; points (S, B, n, 2)
        behind them with log-weights (S, B)."""
        starts = np.cumsum([0, *(own.shape[1] for own in flips)])
        E = int(starts[-1])
        usable = [
            _usable(own, factor[:, a:b, a:b], bool(one.any()))
            for own, one, a, b in zip(flips, apart, starts[:-1], starts[1:], strict=True)
        ]
        padded = np.ones((len(flips), max(map(len, usable)), max(own.shape[1] for own in usable)))
        for k, own in enumerate(usable):
            padded[k, : len(own), : own.shape[1]] = own
        # The sum of both tokens of a row is integrated apart where no later row of the layer is coupled with it.
        alone = np.zeros((len(flips), padded.shape[2]), dtype=np.int64)
        for k, (own, a, b) in enumerate(zip(apart, starts[:-1], starts[1:], strict=True)):
            later = np.tril(factor[:, a:b, a:b], -1) != 0
            alone[k, : b - a] = own & ~later.any(axis=(0, 1)) & (b - a > 1)
        layers = {
            "kinds": kinds.astype(np.int64),
            "starts": starts.astype(np.int64),
            "shares": 1 / row_sums,
            "scales": np.cumprod([1.0, *row_sums[:-1]]),
            "flips": padded,
            "signs": np.array(list(map(len, usable)), dtype=np.int64),
            "apart": alone,
            "creases": _padded(creases),
            "lines": np.array(list(map(len, creases)), dtype=np.int64),
        }
        early, late = factor[:, :E, :E], factor[:, E:, E:]
        samples = {
            "omega": omega[:, :E],
            "factor": early,
            "inverse": np.linalg.inv(early),
            "points": points,
            "weight": weight,
            "late": omega[:, E:],
            "whitening": np.linalg.inv(late),
        }
        return cls(layers, {name: np.ascontiguousarray(value) for name, value in samples.items()})

    @property
    def samples(self) -> int:
        return len(self.of_samples["omega"])

    @property
    def layers(self) -> int:
        return len(self.of_layers["kinds"])

    @property
    def rows(self) -> np.ndarray:
        """(K,) of each layer."""
        return np.diff(self.of_layers["starts"])

    def floor(self, radius: np.ndarray, index: np.ndarray) -> np.ndarray:
        """The least |delta| at which the late fields are within the radius of their mean, (S,).

        Differences of two tokens are s delta times those of the fields, and no mixing behind makes |delta| larger.
        """
        given = {name: value[index] for name, value in self.of_samples.items()}
        sums = 1 / self.of_layers["shares"]
        apart = np.abs(given["points"][..., 0] - given["points"][..., 1])
        deviation = np.sqrt(2 * (np.linalg.inv(given["whitening"]) ** 2).sum(axis=2))
        most = np.abs(given["late"][..., 0] - given["late"][..., 1]) + radius[:, None] * deviation
        least = (apart / most[:, None]).max(axis=2).min(axis=1) / sums.prod() if np.isfinite(sums).all() else 0.0
        return np.maximum(least * np.ones(len(index)), 1e-12)


def _padded(parts: list[np.ndarray]) -> np.ndarray:
    """(n, most): one row each, zeros behind it."""
    out = np.zeros((len(parts), max(1, *map(len, parts))))
    for row, part in zip(out, parts, strict=True):
        row[: len(part)] = part
    return out


def _usable(flips: np.ndarray, factor: np.ndarray, sheared: bool) -> np.ndarray:
    """Signs that leave a lattice as it is: any where rows are not coupled, else those of all rows at once."""
    coupled = sheared or (np.tril(factor, -1) != 0).any()
    return flips[(flips == flips[:, :1]).all(axis=1)] if coupled else flips


def scouted(chain: Chain, mixings: Sequence[Mixing]) -> np.ndarray:
    """(S, K - 1 or 1, 2, 2, 2): ends of the states that fields spread over the cavity lead to, by sign and coordinate,
    drawn wider; infinite where none of them does."""
    layers, given = chain.of_layers, chain.of_samples
    S, starts = chain.samples, layers["starts"]
    z = _SPREAD * Normals(2 * int(starts[-1]), 0).draw(_SCOUTS).reshape(_SCOUTS, -1, 2)
    h = given["omega"][:, None] + np.einsum("spq,nqt->snpt", given["factor"], z)
    C = np.broadcast_to(np.eye(2), (S, _SCOUTS, 2, 2))
    spans = np.broadcast_to(np.array([-np.inf, np.inf]), (S, max(chain.layers - 1, 1), 2, 2, 2)).copy()
    for k in range(chain.layers - 1):
        U = layers["scales"][k] * np.einsum("snpt,snut->pusn", h[:, :, starts[k] : starts[k + 1]], C)
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            A = mixings[layers["kinds"][k]](*U.reshape(-1, S, _SCOUTS))
        A = np.stack([np.broadcast_to(entry, (S, _SCOUTS)) for entry in A], axis=-1).reshape(S, _SCOUTS, 2, 2)
        C = layers["shares"][k] * (A @ C)
        with np.errstate(divide="ignore", invalid="ignore"):
            states = np.stack([C[..., 1, 0], C[..., 0, 1]], axis=1) / (1 - C[..., 1, 0] - C[..., 0, 1])[:, None]
            states = np.sign(states) * np.log1p(np.abs(states))
        for g, sign in enumerate((1.0, -1.0)):
            mine = (sign * (0.5 + states.sum(axis=1)) > 0)[:, None]
            low = np.where(mine, states, np.inf).min(axis=2)
            high = np.where(mine, states, -np.inf).max(axis=2)
            wide = REACH * (high - low) + _MORE
            some = (high > low).all(axis=1)
            spans[some, k, g, :, 0], spans[some, k, g, :, 1] = (low - wide)[some], (high + wide)[some]
    return spans
