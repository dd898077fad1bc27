"""Speed and accuracy of the posterior moments: one core, Sobol samples, against a far smaller tolerance.

    OMP_NUM_THREADS=1 python benchmarks/moments.py [case ...]

Each case reports milliseconds a sample (best of three, process time) and the quantiles of the true error of the mean in
the norm of V^{-1}, and the largest true error over what is stated (at the level of 99 %).

The reference is integrated, never sampled, each sample until its stated error is a thirtieth of what was asked (a
seventh on three tokens, a fifth on four): by the model's own way, and on the whole level set with a larger and larger
budget where that does not arrive.  It is held against itself at ten times its tolerance, and on the first few samples
three layers against the lattice in four dimensions, which shares nothing with their chain, or on more tokens against
importance samples: "checked" is the largest distance over the sum of stated errors, at 99 %.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

import smisym
from smisym.integrate.accuracy import SAMPLING
from smisym.link.linking import Observation
from smisym.model.channel import Channel, Moments, plan_of
from smisym.posterior.composite import ByChain

A = smisym.Attention
# name: (layers, tokens, diagonal of Q, tolerance asked for, tolerance of the reference, samples)
CASES: dict[str, tuple[tuple[smisym.Attention, ...], int, tuple[float, ...], float, float, int]] = {
    "L2-T2": ((A(),) * 2, 2, (0.3, 0.9), 1.3e-5, 1e-10, 4096),
    "L2-T2-c0.7": ((A(skip=0.7),) * 2, 2, (0.3, 0.9), 1.5e-5, 1e-10, 4096),
    "L2-T2-loose": ((A(),) * 2, 2, (0.3, 0.9), 1e-2, 1e-10, 4096),
    "L2-T3": ((A(),) * 2, 3, (0.3, 0.9), 1e-2, 1e-5, 256),
    "L3-T2": ((A(),) * 3, 2, (0.3, 0.3, 0.9), 1e-2, 3e-5, 256),
    "L3-T2-start": ((A(),) * 3, 2, (0.0, 0.0, 0.0), 1e-2, 3e-5, 256),
    "L3-T2-end": ((A(),) * 3, 2, (0.9, 0.9, 0.99), 1e-2, 3e-5, 256),
    "L3-T2-c0.3": ((A(skip=0.3),) * 3, 2, (0.3, 0.3, 0.9), 1e-2, 3e-5, 256),
    "L3-T2-c3": ((A(skip=3.0),) * 3, 2, (0.3, 0.3, 0.9), 1e-2, 1e-4, 256),
    "L3-T2-causal": ((A(mask="causal"), A(), A()), 2, (0.3, 0.3, 0.9), 1e-2, 3e-5, 256),
    "L3-T2-linear": ((A(), A(activation="linear"), A()), 2, (0.3, 0.3, 0.9), 1e-2, 3e-5, 256),
    "L3-T2-untied": ((A(), A(tied=False), A()), 2, (0.3, 0.3, 0.3, 0.9), 1e-2, 1e-3, 16),
    "L3-T2-heads": ((A(heads=2), A(), A()), 2, (0.3, 0.3, 0.3, 0.9), 1e-2, 3e-4, 32),
    "L4-T2": ((A(),) * 4, 2, (0.3, 0.3, 0.3, 0.9), 2e-3, 1e-4, 24),
    "L4-T2-start": ((A(),) * 4, 2, (0.0,) * 4, 2e-3, 1e-4, 64),
    "L4-T2-end": ((A(),) * 4, 2, (0.9, 0.9, 0.9, 0.99), 2e-3, 1e-4, 32),
    "L4-T2-c0.3": ((A(skip=0.3),) * 4, 2, (0.3, 0.3, 0.3, 0.9), 2e-3, 1e-4, 32),
    "L4-T2-c3": ((A(skip=3.0),) * 4, 2, (0.3, 0.3, 0.3, 0.9), 1e-2, 1e-3, 16),
    **{f"L{depth}-T2": ((A(),) * depth, 2, (0.3,) * (depth - 1) + (0.9,), 1e-2, 1e-3, 8) for depth in (6, 8, 12, 16)},
    "L3-T3": ((A(),) * 3, 3, (0.3, 0.3, 0.9), 1e-2, 1e-3, 128),
    "L3-T3-start": ((A(),) * 3, 3, (0.0, 0.0, 0.0), 1e-2, 1e-3, 128),
    "L3-T3-end": ((A(),) * 3, 3, (0.9, 0.9, 0.99), 1e-2, 1e-3, 128),
    "L3-T3-c0.3": ((A(skip=0.3),) * 3, 3, (0.3, 0.3, 0.9), 1e-2, 1e-3, 32),
    "L3-T3-c3": ((A(skip=3.0),) * 3, 3, (0.3, 0.3, 0.9), 1e-2, 1e-3, 32),
    "L3-T4": ((A(),) * 3, 4, (0.3, 0.3, 0.9), 3e-2, 5e-3, 4),
    "L3-T2-tanh": ((A(), A(activation="tanh(s)"), A()), 2, (0.3, 0.3, 0.9), 1e-2, 1e-4, 256),
}


# Of the reference: its error over what is asked for, budgets of the ways to it, and samples compared with the lattice.
SHARE, BUDGETS, COMPARED = 1 / 30, (10**6, 10**7), 4
# Where six dimensions and more are integrated, a thirtieth costs seconds a sample.
DEARER = {"L3-T3": 1 / 7, "L3-T4": 1 / 5}


def apart(one: Moments, other: Moments, V: np.ndarray) -> np.ndarray:
    """Between two means, in the norm of V^{-1}."""
    gap = one.mean - other.mean
    return np.asarray(np.sqrt(np.einsum("spt,pq,sqt->s", gap, np.linalg.inv(V), gap)))


class Reference:
    """Moments of a batch that are known: ``moments``, which samples are (S,), and how far two ways are apart at most,
    over the sum of their errors."""

    def __init__(self, model: smisym.Model, observation: Observation, omega: np.ndarray, V: np.ndarray) -> None:
        posterior = model.channel.posterior
        chain = isinstance(posterior, ByChain)
        self.sampled = chain and plan_of(posterior.otherwise).method is SAMPLING
        self.ways = [Channel(model.link, posterior.chain if chain else posterior)]
        self.whole = Channel(model.link, posterior.otherwise) if chain else self.ways[0]
        self.observation, self.omega, self.V, self.chain = observation, omega, V, chain

    def at(self, way: Channel, index: np.ndarray, rtol: float, budget: int) -> Moments:
        return way.moments(self.observation[index], self.omega[index], self.V, rtol=rtol, max_nodes=budget)

    def find(self, fine: float, enough: float) -> tuple[Moments, np.ndarray, float]:
        everyone = np.arange(len(self.omega))
        found = self.at(self.ways[0], everyone, fine, BUDGETS[0])
        checked = self._checked(found, everyone, self.at(self.ways[0], everyone, 10 * fine, BUDGETS[0]))
        if self.chain:
            few = everyone[:COMPARED]
            budget = BUDGETS[0] if self.sampled else BUDGETS[-1]
            checked = max(checked, self._checked(found, few, self.at(self.whole, few, enough, budget)))
        # Samples know nothing to a thirtieth.
        for budget in () if self.sampled else BUDGETS:
            rest = np.flatnonzero(~self._known(found, enough))
            if rest.size:
                found = found.replaced(rest, self.at(self.whole, rest, enough, budget))
        return found, self._known(found, enough), checked

    def _known(self, found: Moments, enough: float) -> np.ndarray:
        return (found.error <= enough) & ~found.statistical

    def _checked(self, found: Moments, index: np.ndarray, other: Moments) -> float:
        """The largest distance over the sum of errors, of those that both know."""
        both = np.isfinite(other.bound + found.bound[index])
        own = found.take(index[both])
        gap = apart(own, other.take(np.flatnonzero(both)), self.V) / (own.bound + other.bound[both])
        return float(gap.max(initial=0.0))


def run(name: str) -> None:
    layers, tokens, overlap, rtol, fine, samples = CASES[name]
    share = DEARER.get("-".join(name.split("-")[:2]), SHARE)
    model = smisym.compile(smisym.Architecture(tokens=tokens, layers=layers))
    depth = model.fields
    q = np.array(overlap)[None, :, None]
    uniform = qmc.Sobol(2 * depth * tokens, rng=np.random.default_rng(0)).random(samples)
    normals = ndtri(np.maximum(uniform, 2.0**-54)).reshape(samples, 2, depth, tokens)
    omega = np.sqrt(q) * normals[:, 0]
    Z = omega + np.sqrt(1 - q) * normals[:, 1]
    observation, V = model.observe(Z), np.diag(1 - np.array(overlap))
    times = []
    for _ in range(3):
        start = time.process_time()
        moments = model.channel.moments(observation, omega, V, rtol=rtol)
        times.append((time.process_time() - start) / samples * 1e3)
    reference, known, checked = Reference(model, observation, omega, V).find(fine, share * rtol)
    error = apart(moments, reference, V)[known]
    quantiles = " ".join(f"{x:.1e}" for x in np.quantile(error, (0.5, 0.9, 0.99, 1)))
    held = (error / (moments.bound + reference.error)[known]).max()
    print(
        f"{name:12s} {min(times):8.3f} ms/sample  asked {rtol:.0e}  error 50/90/99/100 %: {quantiles}  "
        f"over stated {held:.2f}  nodes {moments.nodes.mean():.0f}  sampled {moments.statistical.mean():.2f}  "
        f"{moments.result.value}  known {known.mean():.3f}  checked {checked:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        run(case)
