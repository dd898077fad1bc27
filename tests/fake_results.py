"""Made-up but realistic inputs for the tests of documents and figures: two layers, two tokens.

The curve has the shape of the true one (two layers learned one after the other, then perfect recovery); its
errors, its failures and its extreme values are invented.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import sympy as sp

from smisym.base.derivation import Derivation, Formula, Step

ARCHITECTURE_TEXT = "Architecture(\n    tokens=2,\n    layers=(Attention(), Attention()),\n)"


def derivation() -> Derivation:
    """A derivation with one step of every kind, made of sympy objects."""
    trail = Derivation("Two layers of tied attention, $T = 2$")
    c, a, b, k = sp.symbols("c a b k", real=True)
    u = sp.MatrixSymbol("u", 2, 1)
    U, h, B = sp.MatrixSymbol("U_1", 2, 1), sp.MatrixSymbol("h_1", 1, 2), sp.MatrixSymbol("B_1", 2, 2)
    x, y = sp.symbols("u_1 u_2", real=True)
    trail.add(
        Step(
            "architecture",
            "What was declared",
            "A network on sequences of $T = 2$ tokens.\n\nTokens are rows: $X$ is $(T, D)$, with independent entries.",
            (Formula(None, r"Z = W X^{\top} / \sqrt{D}", "one row an index, one column a token"),),
            source="arXiv 2502.00901, eqs 2-7",
        )
    )
    trail.add(
        Step(
            "link",
            "The mixing recursion",
            "Every layer multiplies the tokens from the left, so that $X_l = B_l X$ exactly.",
            (
                Formula(U, h.T, code="U_1 = h_1.T"),
                Formula(B, sp.Matrix([[c + 1 - a, a], [b, c + 1 - b]]), "the rows sum to $c + 1$"),
                Formula(a, 1 / (1 + sp.exp(x * (x - y))), code="a = 1/(1 + exp(u_1*(u_1 - u_2)))"),
            ),
        )
    )
    trail.add(Step("symmetry", "Signs", "The group has four elements.", checks=(("$y(-u) = y(u)$", "substituted"),)))
    trail.add(
        Step(
            "chart",
            "The fields that give this output",
            r"The output shows $\Lambda_{ij} = u_i (u_j - u_i)$ and no more. Feasible iff $y_{12} + y_{21} \le 1$.",
            (
                Formula(r"\Lambda_{ij}", r"\frac{1}{k}\log\frac{y_{ij}}{y_{ii}}"),
                Formula(r"\left|\det B_1\right|", sp.factor((c + 1) * (c + 1 - a - b)), "the weight of the chart"),
                Formula(sp.Symbol("h_2"), rf"\pm {sp.latex(B.I * u)}"),
                Formula(k, sp.Piecewise((x / y, y > 0), (-x / y, True))),
            ),
            (
                ("f(Z(t, s; y)) = y", "substituted, simplified to $0$"),
                (r"$\Lambda_{12} + \Lambda_{21} < 0$", "expanded"),
            ),
            "arXiv 2502.00901, appendix E; proof by substitution",
        )
    )
    log_integral = r"\log \int \mathrm{d}t\, \left|\det B_1\right|^{-1} \mathcal{N}(Z; \omega, V)"
    wide = sp.Add(*[sp.Symbol(f"a_{i}") ** i * sp.exp(-(sp.Symbol(f"b_{i}") ** 2)) for i in range(1, 25)])
    trail.add(
        Step(
            "channel",
            "Posterior moments",
            r"One integral gives all: $g_{\mathrm{out}} = V^{-1} (m - \omega)$.",
            (
                Formula(r"\log Z_{\mathrm{out}}", log_integral),
                Formula(sp.Symbol("W"), wide, "a formula wider than the page"),
            ),
        )
    )
    trail.add(Step("model", "Ready", "Sympy stops here."))
    return trail


def hostile_derivation() -> Derivation:
    """Every text tries to break out of its place."""
    attack = "<script>alert(1)</script> & \"quoted\" 'single' \\input{/etc/passwd} 100% #1 a_b ~ ^ {open $5 *bold* `x`"
    trail = Derivation(f"{attack}")
    trail.add(
        Step(
            "chart",
            attack,
            attack + r" and $\text{<script>alert(2)</script>}$ and $\input{x}$ and $a & b$ and $</math><img src=x>$",
            (
                Formula(None, "<script>alert(3)</script>", attack, attack + "\n  second line"),
                Formula(sp.Symbol("x<img src=x onerror=alert(4)>"), sp.Symbol("$$"), "", "</code></pre><script>"),
                Formula(None, r"\href{javascript:alert(5)}{x}"),
                Formula(None, r"\frac{a"),
                Formula(None, r"\end{equation} oops \begin{equation}"),
            ),
            ((attack, attack),),
            attack,
        )
    )
    return trail


def points() -> list[dict[str, Any]]:
    """A curve of 49 points: two kinks, perfect recovery above 1, two failures, one free entropy that is not finite."""
    made = []
    for index, alpha in enumerate(np.linspace(0, 1.6, 49)):
        second = float(np.clip(1 - np.exp(-3.2 * max(alpha - 0.1855, 0.0) ** 1.25 / max(0.9 - 0.5 * alpha, 0.2)), 0, 1))
        first = float(np.clip(1 - np.exp(-4.2 * max(alpha - 0.7194, 0.0)), 0, 1))
        if alpha > 1.02:
            first, second = 1 - 2e-3 * np.exp(-5 * (alpha - 1)), 1 - 1e-4 * np.exp(-5 * (alpha - 1))
        spread = [4e-3 * np.sqrt(q * (1 - q)) + 1e-9 * (q > 0) for q in (first, second)]
        bayes = 0.3024 * (1 - second) ** 0.6 * 0.85 + 0.045 * (1 - first)
        made.append(
            {
                "alpha": float(alpha),
                "Q": [[first, 0.0], [0.0, second]],
                "Q_error": [[spread[0], 0.0], [0.0, spread[1]]],
                "result": "success",
                "bayes_error": bayes,
                "bayes_error_stderr": 0.004 * bayes,
                "plug_in_error": bayes * (1.28 - 0.2 * second),
                "plug_in_error_stderr": 0.004 * bayes,
                "free_entropy": float(0.4 * max(alpha - 0.1855, 0) ** 2 - 0.9 * alpha),
                "free_entropy_stderr": 0.002,
            }
        )
        if alpha > 1.02:
            made[-1] |= {"free_entropy": None, "free_entropy_stderr": None, "unbounded": "+inf"}
        if index in (22, 23):
            made[-1]["result"] = "max_steps" if index == 22 else "statistical_error_large"
    return made


def thresholds() -> list[dict[str, Any]]:
    whole = [[1, 0], [0, 1]]
    zero = [[0.0, 0.0], [0.0, 0.0]]
    below = [[0.0, 0.0], [0.0, 0.9735]]
    return [
        {"kind": "weak", "layers": [2], "subspace": [[0, 1]], "alpha": 0.185478, "error": 4e-6, "Q": zero},
        {"kind": "weak", "layers": [1], "subspace": [[1, 0]], "alpha": 0.7194, "error": 6e-4, "Q": below},
        {"kind": "perfect_stable", "layers": [1, 2], "subspace": whole, "alpha": 1.0, "error": 0.0, "Q": None},
        {"kind": "perfect_amp", "layers": [1, 2], "subspace": whole, "alpha": 1.02, "error": 0.01, "Q": None},
    ]


def gamp_runs(seeds: int = 4) -> list[dict[str, Any]]:
    """Runs at three alphas; the last seed of the middle one stops before it converges."""
    rng = np.random.default_rng(7)
    runs = []
    for alpha, (first, second) in {0.5: (0.0, 0.772), 0.9: (0.5, 0.991), 1.3: (0.9997, 0.99995)}.items():
        for seed in range(seeds):
            stopped = alpha == 0.9 and seed == seeds - 1
            steps = []
            for step in range(14 if stopped else 31):
                growth = 1 - np.exp(-((step / 9) ** 2)), 1 - np.exp(-((step / 6) ** 2))
                spread = np.sqrt([q * (1 - q) + 1e-5 for q in (first, second)])
                noise = 0.03 * rng.standard_normal(2) * spread
                diagonal = [first * growth[0] + noise[0], second * growth[1] + noise[1]]
                overlap = [[diagonal[0], 0.004 * noise[0]], [0.0, diagonal[1]]]
                steps.append({"step": step, "overlap": overlap, "Q": [[diagonal[0], 0.0], [0.0, diagonal[1]]]})
            runs.append(
                {
                    "alpha": alpha,
                    "dim": 1000,
                    "seed": seed,
                    "iterations": steps,
                    "result": "max_steps" if stopped else "success",
                }
            )
    return runs


def trajectories() -> list[dict[str, Any]]:
    """State evolution, step by step, for :func:`gamp_runs`."""
    made = []
    for alpha, (first, second) in {0.5: (0.0, 0.772), 0.9: (0.5, 0.991), 1.3: (0.9997, 0.99995)}.items():
        steps = [
            {
                "step": t,
                "Q": [[first * (1 - np.exp(-((t / 9) ** 2))), 0.0], [0.0, second * (1 - np.exp(-((t / 6) ** 2)))]],
            }
            for t in range(31)
        ]
        made.append({"alpha": alpha, "iterations": steps})
    return made


def published() -> dict[str, Any]:
    """A curve from elsewhere that differs from ours above the second kink, and a few runs with their spread."""
    curve = []
    for point in points()[::2]:
        first, second = point["Q"][0][0], point["Q"][1][1]
        overlaps = [min(first, 0.93) * 0.88, min(second, 0.996)]
        curve.append({"alpha": point["alpha"], "Q": overlaps, "plug_in_error": None})
    amp = [{"alpha": p["alpha"], "Q": [p["Q"][0], p["Q"][1] + 0.01], "Q_error": [0.03, 0.04]} for p in curve[1::3]]
    return {
        "source": "an invented paper, repository <none>",
        "notes": ["Computed with 1e-3 added to $V$: it stays below perfect recovery."],
        "curve": curve,
        "amp": amp,
    }


def results() -> dict[str, Any]:
    """Everything a report is made of."""
    header = {
        "schema": 1,
        "package_version": "0.1.0",
        "architecture": {"tokens": 2, "layers": [{"rank": 1, "skip": 1.0}] * 2, "output": "attention", "noise": 0.0},
        "seed": 0,
        "settings": {"samples": 4096, "scrambles": 8, "rtol": 1e-6, "alphas": [0.0, 1.6, 49]},
        "versions": {"python": "3.11.7", "numpy": "2.4.6"},
    }
    return copy.deepcopy(
        {
            "header": header,
            "architecture_text": ARCHITECTURE_TEXT,
            "thresholds": thresholds(),
            "points": points(),
            "gamp": gamp_runs(),
            "published": published(),
            "derivation": derivation(),
            "figure_svg": '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 10"><path d="M0 0L10 10"/></svg>',
        }
    )
