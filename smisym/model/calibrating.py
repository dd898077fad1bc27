"""Whether posteriors conserve probability: identities that hold of every exact channel, whatever it is made of.

Fields Z ~ N(omega', V') are drawn, and their outputs y.  On average over them, with the posterior of each y

    Z_out(y; omega, V) / Z_out(y; omega', V') = 1                 at any omega and V <= V'
    (Z - omega') . (m - omega') = |m - omega'|^2,   |Z - m|^2 = tr C      m = E[Z | y],  C = Cov[Z | y]

A sheet that is missing, or a wrong Jacobian, breaks them also where no search would find it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smisym.base.errors import InputError
from smisym.model.channel import Channel

# What each posterior may cost, and how exact it is at best.
_NODES, _TOLERANCE = 200_000, 1e-3
# Variances V' and V, mean square of omega', and |omega - omega'|^2 in all: ratios then vary by a factor of two.
_WIDE, _NARROW, _KNOWN, _SHIFT = 0.7, 0.6, 0.3, 0.3
# Standard errors from which on a second, larger sample is asked, and at which that one is a verdict.
_SUSPECT, _WRONG = 3.0, 5.0
# What quadrature and rounding may do to a mean of zero, in units of the posterior.
_ROUNDING = 1e-6
NAMES = ("probability", "overlap of mean and truth", "spread about the mean")


@dataclass(frozen=True)
class Calibration:
    """Means that should be zero, one for each of :data:`NAMES`; standard errors of each; error of the integrals."""

    means: np.ndarray
    errors: np.ndarray
    quadrature: float
    samples: int

    @property
    def misfit(self) -> float:
        """The largest mean, in its standard errors, beyond what the integrals may be wrong by."""
        beyond = np.maximum(np.abs(self.means) - _ROUNDING - self.quadrature, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.nan_to_num(np.where(beyond > 0, beyond / self.errors, 0.0), nan=np.inf).max())


def calibration(channel: Channel, samples: int | None = None, seed: int = 19) -> Calibration:
    """The identities at ``samples`` random fields (by default fewer where a posterior costs more)."""
    P, T = channel.fields, channel.tokens
    count = samples or channel.plan.checked
    rng = np.random.default_rng(seed)
    omega = np.sqrt(_KNOWN) * rng.standard_normal((count, P, T))
    Z = omega + np.sqrt(_WIDE) * rng.standard_normal((count, P, T))
    good = np.isfinite(channel.link.raw(Z)).reshape(count, -1).all(axis=1)
    omega, Z = omega[good], Z[good]
    y = channel.sample(Z, rng)
    rtol = max(_TOLERANCE, channel.default_rtol())
    here = channel.moments(y, omega, _WIDE * np.eye(P), cov=True, rtol=rtol, max_nodes=_NODES)
    moved = omega + np.sqrt(_SHIFT / (P * T)) * rng.standard_normal(omega.shape)
    there = channel.moments(y, moved, _NARROW * np.eye(P), rtol=rtol, max_nodes=_NODES)
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = np.exp(there.log_partition - here.log_partition)
    known, spread = here.mean - omega, np.einsum("sptpt->s", np.asarray(here.cov))
    gaps = np.stack(
        [
            ratio - 1,
            ((Z - omega) * known).sum(axis=(1, 2)) - (known**2).sum(axis=(1, 2)),
            ((Z - here.mean) ** 2).sum(axis=(1, 2)) - spread,
        ]
    )
    scale = 1 + (known**2).sum(axis=(1, 2))
    quadrature = float(np.mean((here.error + there.error) * np.sqrt(scale)))
    return Calibration(gaps.mean(axis=1), gaps.std(axis=1) / np.sqrt(len(Z)), quadrature, len(Z))


def check_calibration(name: str, channel: Channel) -> tuple[tuple[str, str], ...]:
    """(statement, how) of the identities; InputError where posteriors on the chart ``name`` break them."""
    found = calibration(channel)
    if found.misfit > _SUSPECT:
        # One in some hundred samples is this far off by chance, and few outputs may carry much of a mean.
        found = calibration(channel, 4 * found.samples, seed=20)
    if found.misfit > _WRONG:
        worst = int(np.argmax(np.abs(found.means) / np.maximum(found.errors, 1e-300)))
        raise InputError(
            f"chart {name!r}",
            f"posteriors that do not conserve {NAMES[worst]}: a mean of {found.means[worst]:.3g} +- "
            f"{found.errors[worst]:.1g} over {found.samples} outputs, where it should be 0",
            "sheets that hold all of the level set, with the weights of its measure",
            "look for a sheet that is missing, that is there twice, or whose log_weight is wrong",
        )
    how = f"means over {found.samples} outputs of random fields vanish within {_WRONG:g} standard errors"
    return ((r"$\mathbb{E}\, Z_{out}(y; \omega, V) / Z_{out}(y; \omega', V') = 1$, and Nishimori identities", how),)
