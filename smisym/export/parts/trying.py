"""The self-test: values of the package that wrote the module, and identities that hold of every posterior."""

from __future__ import annotations

import re

import numpy as np

from smisym.export.parts.asking import moments
from smisym.export.parts.given import FIELDS, NISHIMORI, NOISE, REFERENCE, RTOL, SAMPLED, TOKENS, Array
from smisym.export.parts.network_softmax import observe


def self_test() -> bool:
    """Prints what was tried and how it went; whether all of it holds."""
    good = [reference(), nishimori(), *([] if SAMPLED else [derivative()])]
    print("all holds" if all(good) else "SOMETHING IS WRONG")  # noqa: T201
    return all(good)


def said(what: str, off: float, allowed: float) -> bool:
    """One line."""
    holds = off <= allowed
    print(f"{'ok' if holds else 'WRONG'}: {what}: {off:.2g} (at most {allowed:.2g})")  # noqa: T201
    return bool(holds)


def reference() -> bool:
    """g_out against the package's, in units of the errors of both."""
    good = True
    for number, known in enumerate(REFERENCE):
        y, omega, V, g = (np.asarray(known[name], dtype=float)[None] for name in ("y", "omega", "V", "g"))
        found = moments(y, omega, V, log_ratios=known["log_ratios"])
        off = np.sqrt(np.einsum("spt,spq,sqt->", found.g - g, V, found.g - g))
        allowed = (5 if SAMPLED else 1) * found.error[0] + known["error"] + 1e-9 * (1 + np.abs(omega).max())
        good &= said(f"g_out of reference {number + 1} in the norm of V", float(off), float(allowed))
    return good


def drawn(samples: int, rng: np.random.Generator) -> tuple[Array, Array, Array, Array]:
    """Outputs (log-ratios of softmaxes), omega, V and the fields that the outputs were made from."""
    V = np.asarray(REFERENCE[0]["V"])
    omega, rest = rng.standard_normal((2, samples, FIELDS, TOKENS))
    Z = 0.6 * omega + np.linalg.cholesky(V) @ rest
    y, ratios = observe(Z)
    if NOISE:
        return y + np.sqrt(NOISE) * rng.standard_normal(y.shape), 0.6 * omega, V, Z
    seen, kept = y if ratios is None else ratios, np.ones(samples, dtype=bool)
    while kept.any():
        try:
            moments(seen[kept], 0.6 * omega[kept], V, rtol=1.0, max_nodes=1, log_ratios=ratios is not None)
            break
        except ValueError as refused:
            # What saturates is rounded, to an output that no fields give.
            if (named := re.search(r"y of sample (\d+)", str(refused))) is None:
                raise
            kept[np.flatnonzero(kept)[int(named[1])]] = False
    return seen[kept], 0.6 * omega[kept], V, Z[kept]


def derivative() -> bool:
    """dg_out, which comes from the covariance, against differences of g_out."""
    rng = np.random.default_rng(2)
    y, omega, V, _ = drawn(4, rng)
    way, how = rng.standard_normal(omega.shape), {"log_ratios": REFERENCE[0]["log_ratios"]}
    found = moments(y, omega, V, cov=True, **how)
    met = np.isfinite(found.error)
    if not met.any():
        return said("share of draws for dg_out that are not resolved", 1.0, 0.75)
    y, omega, way, dg = y[met], omega[met], way[met], np.asarray(found.dg)[met]
    error = max(RTOL, float(found.error[met].max()))
    # Where errors of g are larger the step is, so that the difference still tells: it misses its square.
    step = max(1e-4, error ** (1 / 3))
    missed = 10 * step**2 if step > 1e-4 else 0.0
    up, down = (moments(y, omega + sign * step * way, V, **how).g for sign in (1, -1))
    along = np.einsum("sptqu,squ->spt", dg, way)
    off = np.abs((up - down) / (2 * step) - along).max() / np.abs(along).max()
    return said("dg_out against differences of g_out", float(off), 1e-6 + 10 * error / step + missed)


def nishimori() -> bool:
    """E g^T (Z - omega) = E g^T V g = -E tr dg where Z is the truth behind y: in standard errors over random draws."""
    y, omega, V, Z = drawn(NISHIMORI, np.random.default_rng(3))
    found = moments(y, omega, V, cov=True, rtol=max(RTOL, 1e-4), log_ratios=REFERENCE[0]["log_ratios"])
    told = np.einsum("spt,pq,sqt->s", found.g, V, found.g)
    known = np.einsum("spt,spt->s", found.g, Z - omega)
    gain = np.einsum("sptqt,pq->s", np.asarray(found.dg), V)
    met = np.isfinite(found.error)
    good = said("share of draws without a maximum", float(1 - met.mean()), 0.03)
    gaps = [("g (Z - omega) = g V g", told - known)]
    if len(y) == NISHIMORI:  # this one holds over all outputs, not over those alone that do not saturate
        gaps.append(("tr V dg = -g V g", told + gain))
    for name, gap in gaps:
        own = gap[met]
        error = max(float(own.std(ddof=1)) / np.sqrt(len(own)), 1e-12)
        good &= said(f"mean of {name} over {len(own)} draws, in standard errors", float(abs(own.mean()) / error), 5.0)
    return good
