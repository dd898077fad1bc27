"""Errors that are stated, over many seeds: how far answers are from the truth in units of them.

    python benchmarks/calibration.py [seeds] [case ...]       prints a table

Truths are of a second way.  One layer of T tokens shows its fields up to a sign, as |z| does where T = 1: everything of
it is an integral in two dimensions.  Two layers: plain draws, a million; a nested quadrature; posteriors by the
trapezoid rule over the fields of the first layer.  Standard errors over eight scrambles make Student's t of seven
degrees of freedom, of which the root mean square is 1.18; what refinement says is a bound that 99 % should keep to.
Seeds are kept in benchmarks/calibration.json as they come: remove the file to begin anew.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize, stats

import smisym
from smisym import SMI, Architecture, Attention
from smisym.theory.entropy import free_entropy
from smisym.verify.averages import plain_means

# Distances from the truth that are rounding.
ROUNDING = 1e-14
KEPT = Path(__file__).with_suffix(".json")
SCRAMBLES = 8
# Chance that an honest row is outside the range of counts that is printed beside it.
OUTSIDE = 1e-3
TWO = Architecture(2, (Attention(), Attention()))
MODELS: dict[str, Any] = {
    "|z|": SMI("abs(z1)", 1),
    "one layer": Architecture(2, (Attention(),)),
    "one layer, T = 3": Architecture(3, (Attention(),)),
    "two layers": TWO,
    "two layers, T = 3": Architecture(3, (Attention(), Attention())),
}


@cache
def model_of(name: str) -> smisym.Model:
    return smisym.compile(MODELS[name])


# ------------------------------------------------------------------------------------------ fields up to one sign


def up_to_a_sign(q: float, T: int) -> tuple[float, float]:
    """(E(q), E log Zout) where the output shows T fields up to a common sign: omega has length r, the fields a along
    it, and the posterior mean is z tanh(z . omega / V)."""
    V = 1 - q
    x, w = np.polynomial.legendre.leggauss(400)
    r = 6 * math.sqrt(q) * (x + 1)
    wr = 6 * w * stats.chi.pdf(r / math.sqrt(q), T)
    a = r[:, None] + 10 * math.sqrt(V) * x
    wa = wr[:, None] * 10 * w * stats.norm.pdf(10 * x)
    r = r[:, None]
    t, square = np.tanh(r * a / V), a**2 + V * (T - 1)
    E = float((wa * (square * t**2 - 2 * t * r * a + r**2)).sum()) / V**2
    cosh = np.abs(r * a / V) + np.log1p(np.exp(-2 * np.abs(r * a / V)))
    return E, float((wa * (cosh - (square + r**2) / (2 * V))).sum()) - T / 2 * math.log(2 * math.pi * V)


def overlap_up_to_a_sign(alpha: float, T: int) -> float:
    """The fixed point above zero of q = alpha E / (1 + alpha E)."""

    def left(q: float) -> float:
        E = up_to_a_sign(q, T)[0]
        return q - alpha * E / (1 + alpha * E)

    return float(optimize.brentq(left, 0.05, 0.999, xtol=1e-12))


# --------------------------------------------------------------------------------------------- two layers, otherwise

MANY = 2**20


@cache
def plain(Q: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(E(Q), standard error), diagonals, of two layers from plain draws."""
    draws = plain_means(model_of("two layers"), np.diag(Q), MANY, seed=12345)[0]
    diagonal = np.diagonal(draws, axis1=1, axis2=2)
    return diagonal.mean(axis=0), diagonal.std(axis=0) / math.sqrt(MANY)


@cache
def last_layer(alpha: float) -> tuple[float, float]:
    """(Q_22, its error) of two layers where the first is not learned: the fixed point of plain draws, by one step of
    Newton's method from that of a map."""
    model = model_of("two layers")
    omap = smisym.overlap_map(model, samples=2**15, seed=4711)
    q = float(smisym.state_evolution(omap, alpha).value.Q[1, 1])

    def image(E: float) -> float:
        return alpha * E / (1 + alpha * E)

    slope = (image(omap(np.diag([0, q + 0.01]))[0][1, 1]) - image(omap(np.diag([0, q - 0.01]))[0][1, 1])) / 0.02
    E, error = (float(part[1]) for part in plain((0.0, q)))
    return q + (image(E) - q) / (1 - slope), alpha * error / (1 + alpha * E) ** 2 / (1 - slope)


def two_layers_of(Z: np.ndarray, omega: np.ndarray, V: np.ndarray, step: float) -> tuple[np.ndarray, float]:
    """(mean (2, T), log Zout as a density in the scores' root u) of one posterior: the trapezoid rule over h_1, with
    h_2 = +- B^{-1} u."""
    T = Z.shape[1]

    def mixing(h: np.ndarray) -> np.ndarray:
        scores = h[:, :, None] * h[:, None, :]
        A = np.exp(scores - scores.max(axis=2, keepdims=True))
        return np.eye(T) + A / A.sum(axis=2, keepdims=True)

    u = mixing(Z[:1])[0] @ Z[1]
    line = np.arange(-6.5, 6.5 + step / 2, step) * math.sqrt(V[0])
    h = omega[0] + np.array(list(itertools.product(line, repeat=T)))
    B = mixing(h)
    other = np.linalg.solve(B, np.broadcast_to(u, (len(h), T))[..., None])[..., 0]
    first = -((h - omega[0]) ** 2).sum(axis=1) / (2 * V[0]) - np.linalg.slogdet(B)[1]
    both = np.array([first - ((s * other - omega[1]) ** 2).sum(axis=1) / (2 * V[1]) for s in (1, -1)])
    top = both.max()
    w = np.exp(both - top)
    total = w.sum()
    mean = np.array([(w.sum(axis=0) @ h), ((w[0] - w[1]) @ other)]) / total
    cell = T * (math.log(step) + 0.5 * math.log(V[0])) - T / 2 * np.log(4 * math.pi**2 * V.prod())
    return mean, float(top + math.log(total) + cell)


# ---------------------------------------------------------------------------------------------------------- the cases

Answer = list[tuple[float, float]]  # (distance from the truth, stated error, with that of the truth)


def of_the_map(name: str, Q: tuple[float, ...], samples: int) -> Callable[[int], Answer]:
    def one(seed: int) -> Answer:
        omap = smisym.overlap_map(model_of(name), samples=samples, scrambles=SCRAMBLES, seed=seed)
        E, error = (np.diag(part) for part in omap(np.diag(Q)))
        if name == "two layers":
            truth, its = plain(Q)
        else:
            truth, its = np.array([up_to_a_sign(Q[0], model_of(name).tokens)[0]]), np.zeros(1)
        return list(zip((E - truth).tolist(), np.hypot(error, its).tolist(), strict=True))

    return one


def of_the_overlap(name: str, alpha: float, samples: int) -> Callable[[int], Answer]:
    def one(seed: int) -> Answer:
        model = model_of(name)
        found = smisym.state_evolution(model, alpha, samples=samples, scrambles=SCRAMBLES, seed=seed)
        q, error = (float(part[-1, -1]) for part in (found.value.Q, found.value.Q_error))
        truth = last_layer(alpha) if name == "two layers" else (overlap_up_to_a_sign(alpha, model.tokens), 0.0)
        return [(q - truth[0], math.hypot(error, truth[1]))]

    return one


# Exact, and by nested quadrature (docs/second_way.json).
FIRST = {"|z|": 1 / 2, "one layer": 1 / 6, "one layer, T = 3": 1 / 12, "two layers": 1 / 5.391479632959364}


def of_the_threshold(name: str, samples: int) -> Callable[[int], Answer]:
    def one(seed: int) -> Answer:
        settings = {"samples": samples, "scrambles": SCRAMBLES, "seed": seed}
        (first, *_) = smisym.weak_recovery(model_of(name), stages=1, quadrature=False, **settings).value
        return [(first.alpha - FIRST[name], first.error)]

    return one


def of_the_entropy(name: str, q: float, samples: int) -> Callable[[int], Answer]:
    """E log Zout, by the free entropy at alpha = 1 less the prior's part of it."""

    def one(seed: int) -> Answer:
        omap = smisym.overlap_map(model_of(name), samples=samples, scrambles=SCRAMBLES, seed=seed)
        found = free_entropy(omap, np.array([[q]]), 1.0)
        truth = up_to_a_sign(q, model_of(name).tokens)[1] + (q + math.log1p(-q)) / 2
        return [(found.value - truth, float(found.statistical_error))]

    return one


def of_posteriors(name: str, Q: tuple[float, float], rtol: float, step: float) -> Callable[[int], Answer]:
    """The mean, in the norm of V^{-1}, beside what refinement says that 99 % of errors keep to."""

    def one(seed: int) -> Answer:
        model, V = model_of(name), 1 - np.array(Q)
        rng = np.random.default_rng([7, seed])
        omega = np.sqrt(Q)[:, None] * rng.standard_normal((2, model.tokens))
        Z = omega + np.sqrt(V)[:, None] * rng.standard_normal(omega.shape)
        found = model.channel.moments(model.link.observe(Z[None]), omega[None], np.diag(V), rtol=rtol)
        gap = (found.mean[0] - two_layers_of(Z, omega, V, step)[0]) / np.sqrt(V)[:, None]
        return [(float(np.linalg.norm(gap)), float(found.bound[0]))]

    return one


CASES: dict[str, tuple[Callable[[int], Answer], str]] = {
    "|z|, E(0.5)": (of_the_map("|z|", (0.5,), 256), "t"),
    "|z|, E(0.95)": (of_the_map("|z|", (0.95,), 256), "t"),
    "one layer, E(0.5)": (of_the_map("one layer", (0.5,), 256), "t"),
    "one layer, T = 3, E(0.3)": (of_the_map("one layer, T = 3", (0.3,), 256), "t"),
    "one layer, T = 3, E(0.98)": (of_the_map("one layer, T = 3", (0.98,), 256), "t"),
    "two layers, E(0.3, 0.6), 11 and 22": (of_the_map("two layers", (0.3, 0.6), 512), "t"),
    "|z|, Q at 0.8": (of_the_overlap("|z|", 0.8, 1024), "t"),
    "one layer, Q at 0.25": (of_the_overlap("one layer", 0.25, 1024), "t"),
    "one layer, T = 3, Q at 0.12": (of_the_overlap("one layer, T = 3", 0.12, 1024), "t"),
    "one layer, T = 3, Q at 0.32": (of_the_overlap("one layer, T = 3", 0.32, 1024), "t"),
    "two layers, Q_22 at 0.35": (of_the_overlap("two layers", 0.35, 1024), "t"),
    "|z|, first threshold": (of_the_threshold("|z|", 1024), "t"),
    "one layer, first threshold": (of_the_threshold("one layer", 1024), "t"),
    "one layer, T = 3, first threshold": (of_the_threshold("one layer, T = 3", 1024), "t"),
    "two layers, first threshold": (of_the_threshold("two layers", 1024), "t"),
    "|z|, E log Zout at 0.5": (of_the_entropy("|z|", 0.5, 256), "t"),
    "one layer, E log Zout at 0.5": (of_the_entropy("one layer", 0.5, 256), "t"),
    "one layer, T = 3, E log Zout at 0.3": (of_the_entropy("one layer, T = 3", 0.3, 256), "t"),
    "two layers, posterior mean, 1e-2": (of_posteriors("two layers", (0.3, 0.6), 1e-2, 0.05), "bound"),
    "two layers, posterior mean, 1e-4": (of_posteriors("two layers", (0.3, 0.6), 1e-4, 0.05), "bound"),
    "two layers, T = 3, posterior mean, 1e-2": (of_posteriors("two layers, T = 3", (0.3, 0.6), 1e-2, 0.2), "bound"),
    "two layers, T = 3, posterior mean, 1e-3": (of_posteriors("two layers, T = 3", (0.3, 0.6), 1e-3, 0.2), "bound"),
}  # fmt: skip


def allowed(count: int, level: float) -> str:
    """Counts in percent that an honest row has but for a chance of OUTSIDE."""
    low, high = stats.binom.interval(1 - OUTSIDE, count, level)
    return f"{100 * low / count:.0f}-{100 * high / count:.0f}"


def shown(name: str, rows: list[Answer], kind: str) -> list[str]:
    lines = []
    for k, label in enumerate(["", "(second)"][: len(rows[0])]):
        gaps, errors = np.array([row[k] for row in rows]).T
        with np.errstate(divide="ignore", invalid="ignore"):
            # Where control variates leave no error, rounding is none either.
            z = np.where(np.abs(gaps) <= ROUNDING, 0.0, gaps / errors)
        levels = (0.6827, 0.95) if kind == "t" else (0.99,)
        limits = [float(stats.t.ppf(0.5 + v / 2, SCRAMBLES - 1)) for v in levels] if kind == "t" else [1.0]
        held = [100 * float(np.mean(np.abs(z) <= limit)) for limit in limits]
        cover = " / ".join(f"{h:.0f} ({allowed(len(z), v)})" for h, v in zip(held, levels, strict=True))
        lines.append(
            f"| {name} {label} | {np.median(errors):.1e} | {z.mean():.2f} | {math.sqrt((z**2).mean()):.2f} | "
            f"{np.abs(z).max():.2f} | {cover} |"
        )
    return lines


def main(seeds: str = "64", *chosen: str) -> None:
    kept: dict[str, list[Answer]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    print("| number | stated, median | z, mean | z, rms | largest | within 68 / 95 % (99 % of bounds), and allowed |")
    print("|---|---|---|---|---|---|")
    for name in chosen or CASES:
        one, kind = CASES[name]
        rows, begun = kept.setdefault(name, []), time.perf_counter()
        for seed in range(len(rows), int(seeds)):
            rows.append([(float(f"{gap:.4g}"), float(f"{error:.4g}")) for gap, error in one(seed)])
        KEPT.write_text(json.dumps({key: kept[key] for key in CASES if key in kept}) + "\n")
        print("\n".join(shown(name, rows, kind)), flush=True)
        print(f"{name}: {time.perf_counter() - begun:.1f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
