"""How many posteriors of the overlap map boxes of a fixed number of nodes resolve, and with which errors.

    SMISYM_BACKEND=jax python benchmarks/boxes.py

By architecture and overlap: free dimensions, error asked for, share of posteriors that no adaptive lattice had to take
over, nodes that boxes cost on average, and the distance of the means from those of the adaptive lattice beyond both
errors, if any.  Speed is that of whatever JAX finds, so that none is printed.
"""

from __future__ import annotations

import os

import numpy as np

import smisym
from smisym import Architecture, Attention
from smisym.base.backends import backend
from smisym.integrate.accuracy import BOXES
from smisym.integrate.boxes import on_boxes

A = Attention
CASES = {
    "tied, rank 2, T = 2": (Architecture(2, (A(rank=2),)), (0.3, 0.9)),
    "untied, T = 2": (Architecture(2, (A(tied=False),)), (0.3, 0.9)),
    "two layers, T = 2": (Architecture(2, (A(), A())), (0.3, 0.9)),
    "two layers, T = 2, late": (Architecture(2, (A(), A())), (0.9, 0.999)),
    "two layers, T = 3": (Architecture(3, (A(), A())), (0.3, 0.9)),
    "rank 1 then 2, T = 2": (Architecture(2, (A(), A(rank=2))), (0.3, 0.3, 0.9)),
    "tied then untied, T = 2": (Architecture(2, (A(), A(tied=False))), (0.3, 0.3, 0.9)),
    "untied, rank 2, T = 3": (Architecture(3, (A(rank=2, tied=False),)), (0.3, 0.3, 0.9, 0.9)),
}


def main(samples: int = 256) -> None:
    os.environ.setdefault("SMISYM_BACKEND", "jax")
    print(f"{backend().version}: {backend().why}", end="\n\n")
    print("| architecture | Q | free | asked | share | nodes | beyond |\n|---|---|---|---|---|---|---|")
    for name, (declared, overlap) in CASES.items():
        model = smisym.compile(declared)
        law = model.prior.law(np.diag(overlap))
        rng = np.random.default_rng(0)
        count = samples if model.channel.free_dimensions < 4 else samples // 8
        normals = rng.standard_normal((2, count, model.fields, model.tokens))
        Z = law.scale @ normals[0]
        omega = law.gain @ Z + law.noise @ normals[1]
        rtol, observed = model.channel.plan.averaged, model.observe(Z)
        posterior = model.channel.posterior
        integrand = posterior.at(posterior.read(observed), omega, law.V[None])
        with np.errstate(all="ignore"):
            found = on_boxes(integrand, rtol, True, 6.0 - np.log(rtol), np.inf)
        os.environ["SMISYM_BACKEND"], asked = backend().loops, os.environ["SMISYM_BACKEND"]
        plain = model.channel.moments(observed, omega, law.V, cov=True, rtol=rtol)
        os.environ["SMISYM_BACKEND"] = asked
        moments = integrand.fields(found.mean, found.cov)
        gap = np.sqrt(np.maximum(np.einsum("spt,spt->s", moments.mean - plain.mean, moments.g - plain.g), 0.0))
        beyond = (gap > found.error + plain.error)[found.converged].mean() if found.converged.any() else 0.0
        print(
            f"| {name} | {overlap} | {integrand.dim}, {len(BOXES[integrand.dim])} boxes | {rtol:g} "
            f"| {found.converged.mean():.0%} | {found.nodes.mean():.0f} | {beyond:.1%} |"
        )


if __name__ == "__main__":
    main()
