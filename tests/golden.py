"""Numbers of every family, kept: what moving the furniture must not change.

    python tests/golden.py                  compare with tests/data/golden.json, to 1e-12
    python tests/golden.py --within 1e-6    on another CPU, whose kernels round differently
    python tests/golden.py --write          write them anew, where a change of the arithmetic is meant

Moments and one estimate of E of every family of the table of cases, and what the solvers make of a few: fixed points,
thresholds, curves, free entropies, prediction errors, steps of GAMP.  Seeds are fixed and points are few: these are
numbers to hold still, not answers.  Every array is told by one number, its product with fixed weights.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES, FAMILIES

import smisym
from smisym import SMI, Architecture, Attention

# Numbers of one backend: another one agrees to twelve digits, no more.
os.environ.setdefault("SMISYM_BACKEND", "numpy")
KEPT = Path(__file__).parent / "data" / "golden.json"
# Of which a posterior costs more than a tenth of a second.
DEAR = {"L4-T6", "L2-T6", "L3-T3-linear", "L2-T2-c0"}


def told(array: Any) -> float:
    """One number that changes where any entry does."""
    flat = np.asarray(array, dtype=float).ravel()
    return float(flat @ np.cos(np.arange(1, len(flat) + 1)))


def declared() -> dict[str, tuple[Architecture | SMI, int]]:
    """Every row of the table of cases, and how many samples of it are affordable."""
    rows: dict[str, tuple[Architecture | SMI, int]] = {
        name: (family.declared, 4 if family.samples >= 60 else 2) for name, family in FAMILIES.items()
    }
    rows.update({name: (case.architecture, 4) for name, case in CASES.items() if name not in DEAR})
    return rows


def posteriors(what: Architecture | SMI, count: int) -> dict[str, float]:
    """Outputs, posterior moments and their derivatives at random fields, half of which is known."""
    model = smisym.compile(what)
    rng = np.random.default_rng(7)
    shape = (count, model.fields, model.tokens)
    omega, rest = np.sqrt(0.5) * rng.standard_normal((2, *shape))
    y = model.channel.sample(omega + rest, rng)
    V = 0.5 * np.eye(model.fields)
    moments = model.channel.moments(y, omega, V, cov=True, rtol=1e-3)
    return {
        "log_partition": told(moments.log_partition),
        "mean": told(moments.mean),
        "g": told(moments.g),
        "dg": told(moments.dg),
    }


TWO = Architecture(2, (Attention(), Attention()))
UNTIED = Architecture(2, (Attention(tied=False),))
ONE = Architecture(2, (Attention(),))
SPLIT = FAMILIES["heads-split"].declared
NOISY = Architecture(2, (Attention(),), noise=0.3)
SOLVED = {
    "one": ONE,
    "two": TWO,
    "untied": UNTIED,
    "split": SPLIT,
    "noisy": NOISY,
    "rank two": FAMILIES["tied-r2-T2"].declared,
    "square": SMI("z1**2", 1),
    "product": SMI("z1*z2", 2),
    "committee": SMI("sign(sign(z1) + sign(z2))", 2),
}


def theory(what: Architecture | SMI) -> dict[str, float]:
    """Fixed points along alpha, free entropy and prediction errors there, and the first threshold."""
    model = smisym.compile(what)
    omap = smisym.overlap_map(model, samples=64, scrambles=4)
    points = smisym.curve(omap, [0.3, 0.8])
    last = points[-1].value
    alone = smisym.state_evolution(omap, 0.8, side_information=0.1)
    Q = 0.4 * np.eye(model.fields)
    first = smisym.weak_recovery(omap, stages=1).value[0]
    errors = smisym.prediction_errors(model, Q, samples=32, scrambles=2)
    return {
        "curve at 0.3": told(points[0].value.Q),
        "curve at 0.8": told(last.Q),
        "its error": told(last.Q_error),
        "with side information": told(alone.value.Q),
        "E": told(np.mean([e.E for e in omap.evaluate(Q)], axis=0)),
        "free entropy": float(smisym.free_entropy(omap, Q, 0.8).value),
        "first threshold": first.alpha,
        "prediction": told([errors[name].value for name in sorted(errors)]),
    }


def finite(what: Architecture | SMI) -> dict[str, float]:
    """Three steps of GAMP on data of its own."""
    model = smisym.compile(what)
    data = smisym.generate(model, 60, 1.5, np.random.default_rng(5))
    found = smisym.gamp(model, data.X, data.y, W=data.W, max_steps=3, seed=2).value
    return {"W_hat": told(found.W_hat), "C_hat": told(found.C_hat)}


def tasks() -> Iterator[tuple[str, Any]]:
    for name, (what, count) in declared().items():
        yield f"{name}: posteriors", partial(posteriors, what, count)
    for name, what in SOLVED.items():
        yield f"{name}: theory", partial(theory, what)
        yield f"{name}: GAMP", partial(finite, what)


def numbers() -> dict[str, float]:
    found: dict[str, float] = {}
    for name, task in tasks():
        found.update({f"{name}: {key}": value for key, value in task().items()})
        if sys.stderr.isatty():
            print(f"\r{name:60}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def differences(found: dict[str, float], kept: dict[str, float], within: float) -> list[str]:
    """Lines on what is not as it was: relative to one, or to itself where that is more."""
    lines = [f"gone: {name}" for name in kept.keys() - found.keys()]
    lines += [f"new: {name}" for name in found.keys() - kept.keys()]
    for name in kept.keys() & found.keys():
        was, now = kept[name], found[name]
        if was != now and not abs(now - was) <= within * max(1.0, abs(was)):
            lines.append(f"{name}: {now!r}, was {was!r}")
    return sorted(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--within", type=float, default=1e-12)
    chosen = parser.parse_args()
    found = numbers()
    if chosen.write:
        KEPT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        print(f"{len(found)} numbers kept in {KEPT}")
        return 0
    lines = differences(found, json.loads(KEPT.read_text()), chosen.within)
    print("\n".join(lines) if lines else f"{len(found)} numbers as they were, within {chosen.within:g}")
    if lines and chosen.within < 1e-6:
        print("On another CPU than that which wrote them, only --within 1e-6 holds: the docstring says how to compare.")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
