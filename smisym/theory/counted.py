"""First thresholds where outputs are few: hard attention, signs.

E[z z^T - I | y] of each output is that of its posterior, where this is in closed form, else a mean over draws of the
fields that have it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smisym.base.matrices import units
from smisym.base.sobol import Normals
from smisym.model.compiled import Model
from smisym.theory.controls import rates_of

# log2 of the draws of one scramble, scrambles, and outputs at most.
_DRAWS, _SCRAMBLES, _MOST = 15, 16, 64
_SEED = 20261124
# What probabilities of all outputs may be off one for none to have been missed.
_WHOLE = 1e-6


def are_counted(model: Model) -> bool:
    """Whether all outputs are few, and without noise."""
    if model.channel.posterior.outputs is not None:
        return True
    return not model.noise and _kinds(model, _fields(model, np.random.SeedSequence(_SEED), 12)) is not None


def counted_threshold(model: Model, parts: Sequence[int]) -> tuple[float, float]:
    """(alpha, standard error) of the first threshold of a class of parts that grow together.

    G of an output is that of its posterior where this is in closed form, else the mean over all draws that have it;
    what leaving out one scramble changes tells the error.
    """
    known = _known(model)
    if known is not None:
        share, g, dg = known
        scale = model.prior.law(np.zeros((model.fields,) * 2)).scale
        G = np.einsum("pi,nptqs,qj->nitjs", scale, dg + np.einsum("npt,nqs->nptqs", g, g), scale, optimize=True)
        return _of_all(model, parts, share, G), 0.0
    found = []
    for seed in np.random.SeedSequence(_SEED).spawn(_SCRAMBLES):
        z = _fields(model, seed, _DRAWS)
        kinds = _kinds(model, z)
        if kinds is None:
            raise ArithmeticError("outputs that are not few")
        flat = z.reshape(len(z), -1)
        found.append({y: (own.sum(), flat[own].T @ flat[own]) for y, own in kinds.items()})
    alphas = [_alpha(model, parts, found[:r] + found[r + 1 :]) for r in range(_SCRAMBLES)]
    spread = np.std(alphas) * np.sqrt(_SCRAMBLES - 1)
    return _alpha(model, parts, found), float(spread)


def exact_products(model: Model) -> np.ndarray | None:
    """(P, P): E[g g^T] where nothing is known, in units of the prior, a sum over all outputs; None where posteriors are
    not in closed form."""
    known = _known(model)
    if known is None:
        return None
    share, g, _ = known
    g = model.prior.law(np.zeros((model.fields,) * 2)).units @ g
    return np.asarray(model.prior.multiplicity * np.einsum("n,npt,nqt->pq", share, g, g))


def counted_products(model: Model) -> np.ndarray | None:
    """(R, P, P): independent estimates of E[g g^T] where nothing is known, of mean fields of each output; None where
    outputs are many.  Each multiplies means of two sets of draws, so that what they lack does not add up."""
    found = []
    for seed in np.random.SeedSequence(_SEED).spawn(_SCRAMBLES):
        z = _fields(model, seed, _DRAWS)
        kinds = _kinds(model, z)
        if kinds is None:
            return None
        found.append({y: (own.mean(), z[own].mean(axis=0)) for y, own in kinds.items()})
    # In units of the prior: of omega = 0, where Z = scale z and V g = E[Z | y].
    law = model.prior.law(np.zeros((model.fields,) * 2))
    turn = law.units @ np.linalg.solve(law.V, law.scale)
    products = []
    for first, second in zip(found[::2], found[1::2], strict=True):
        both = [
            0.5 * (first[y][0] + second[y][0]) * (turn @ first[y][1]) @ (turn @ second[y][1]).T
            for y in first.keys() & second.keys()
        ]
        total = np.sum(both, axis=0)
        products.append(model.prior.multiplicity * 0.5 * (total + total.T))
    return np.array(products)


def _fields(model: Model, seed: np.random.SeedSequence, log_n: int) -> np.ndarray:
    """Standard normal fields (n, P, T)."""
    P, T = model.fields, model.tokens
    return Normals(P * T, seed, fine=True).draw(2**log_n).reshape(-1, P, T)


def _kinds(model: Model, z: np.ndarray) -> dict[bytes, np.ndarray] | None:
    """Of each output that there is which fields (n,) have it; None where these are many."""
    scale = model.prior.law(np.zeros((model.fields, model.fields))).scale
    y = model.link(scale @ z).reshape(len(z), -1)
    first, which = np.unique(y, axis=0, return_inverse=True)
    if len(first) > _MOST:
        return None
    return {value.tobytes(): which.reshape(-1) == k for k, value in enumerate(first)}


def _alpha(model: Model, parts: Sequence[int], found: Sequence[dict[bytes, tuple[int, np.ndarray]]]) -> float:
    counts: dict[bytes, int] = {}
    sums: dict[bytes, np.ndarray] = {}
    for one in found:
        for y, (count, total) in one.items():
            counts[y] = counts.get(y, 0) + count
            sums[y] = sums.get(y, 0.0) + total
    share = np.array(list(counts.values())) / sum(counts.values())
    P, T = model.fields, model.tokens
    G = np.stack([sums[y] / counts[y] - np.eye(P * T) for y in counts]).reshape(-1, P, T, P, T)
    return _of_all(model, parts, share, G)


def _known(model: Model) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """The probability of each output (m,) where nothing is known, g (m, P, T) and dg (m, P, T, P, T) of its posterior;
    None where these are not in closed form."""
    outputs = model.channel.posterior.outputs
    if outputs is None:
        return None
    law = model.prior.law(np.zeros((model.fields,) * 2))
    still = np.zeros((len(outputs), model.fields, model.tokens))
    y = outputs.reshape(-1, *model.link(still[:1]).shape[1:])
    found = model.channel.moments(y, still, law.V, cov=True)
    there = np.isfinite(found.log_partition)
    chance = np.exp(found.log_partition[there])
    if abs(chance.sum() - 1) > _WHOLE:
        return None
    return chance, found.g[there], np.asarray(found.dg)[there]


def _of_all(model: Model, parts: Sequence[int], share: np.ndarray, G: np.ndarray) -> float:
    """The first threshold from the probability of each output (m,) and its G (m, P, T, P, T)."""
    unit = units(model.symmetry.basis[np.isin(model.symmetry.parts, list(parts))])
    rates = model.prior.multiplicity * np.einsum("n,njk->jk", share, rates_of(unit, G))
    return float(1 / np.linalg.eigvalsh(rates)[-1])
