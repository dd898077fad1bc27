"""Many layers that each do little: the declared limit, and how far a finite network is from it."""

from __future__ import annotations

import dataclasses

import numpy as np

from smisym.base.counting import counted
from smisym.base.derivation import Formula, Step
from smisym.declare.architecture import Architecture
from smisym.trail.claims import Claim, Part
from smisym.trail.samples import by_chance
from smisym.verify.chance import Verdict, groups, means_vanish
from smisym.verify.depth import copies_of, depth_gaps, orthogonal_tokens
from smisym.verify.properties import Subject, Tried, left_out
from smisym.verify.tokens import draw_tokens, run_on_tokens, slices_of

# Networks of each depth; how much readouts are scaled down, and where the ratio of errors of half the readouts is of
# second order.
_NETWORKS, _SCALE, _SECOND = 64, 1 / 32, (3.0, 5.3)


def _limit(subject: Subject) -> str | None:
    declared = subject.model.architecture
    return declared.limit if isinstance(declared, Architecture) else None


def _written(subject: Subject) -> Step:
    declared = subject.model.architecture
    assert isinstance(declared, Architecture)
    L = len(declared.layers)
    o = sum(sum(layer.readouts) for layer in declared.layers[:-1])
    if _limit(subject) == "first_order":
        text = (
            f"The {counted(L - 1, 'layer')} before the last {'acts' if L == 2 else 'act'} as a sum: each sees "
            "the tokens as they came. This is the network to first order in "
            "the readouts $o_l = 1/c$, an expansion and no limit: what is dropped is of "
            "second order, a double sum over layers, small where the sum of all readouts "
            f"is (here {o:g}), and not where $L \\to \\infty$ at fixed $L/c$."
        )
        formulas = (
            Formula(
                "B_{L-1}",
                r"I + \sum_{l<L} o_l\, \sigma(h_l^{\top} h_l) + "
                r"O\left(\left(\textstyle\sum_l o_l\right)^2\right)",
            ),
            Formula(
                r"\text{error}",
                r"\sum_{k<l<L} o_l o_k \left(\sigma_l \sigma_k + \mathrm{d}\sigma_l[\sigma_k]\right) + O(o^3)",
                r"$\sigma_l = \sigma(h_l^{\top} h_l)$, $\mathrm{d}\sigma_l[\sigma_k]$ "
                r"what $\sigma_k$ changes of the scores of layer $l$",
            ),
        )
    else:
        text = (
            f"Infinitely many layers share what the {counted(L - 1, 'layer')} before the last "
            f"{'does' if L == 2 else 'do'}, the sum of their readouts $o = {o:g}$. "
            "Their weights are independent, so that what they do adds up as a law of large numbers and the mixing $B$ "
            "is not random: it solves a differential equation. A finite network of $L$ layers "
            "fluctuates about it by $O(L^{-1/2})$ and is off on average by $O(1/L)$. "
            "With the fluctuations vanishes the signal of each single layer: "
            "only the last layer can be learned here."
        )
        formulas = (
            Formula(
                r"\frac{\mathrm{d}B}{\mathrm{d}s}",
                r"o\; \mathbb{E}_h\, \sigma(B h^{\top} h "
                r"B^{\top})\, B, \qquad B(0) = I,\ 0 \le s \le 1",
            ),
            Formula(r"B_{L-1}", r"B(1) + L^{-1/2}\, \eta + O(1/L)", r"$\eta$ Gaussian"),
        )
    return Step(
        "depth",
        "Large depth",
        text,
        formulas,
        source="arXiv 2502.00901, appendix A.4; the limit and its error are derived here",
    )


def _deep_networks_tend_to_it(subject: Subject, level: float) -> Tried:
    model, declared = subject.model, subject.model.architecture
    assert isinstance(declared, Architecture)
    depth = copies_of(declared) * (len(declared.layers) - 1)
    if declared.layers[-1].activation == "hardmax" or not depth:
        return left_out("no network that can be run tells of the limit")

    def test(stage: int, times: int) -> Verdict:
        gaps = depth_gaps(model, _NETWORKS * times, subject.number("depth", stage) % 2**31)
        found = means_vanish(groups(gaps), 1 / depth**2 + 1e-4)
        return Verdict(found.t, found.p, found.which, len(gaps), found.error, stage + 1)

    return by_chance(subject, level, test, f"networks of {depth} and {2 * depth} layers")


def _misses(declared: Architecture, scale: float, seed: int) -> float:
    """How far the sum of layers is from the network itself, its readouts but the last scaled, on random tokens."""
    *first, last = declared.layers
    layers = [dataclasses.replace(x, readout=tuple(scale * o for o in x.readouts)) for x in first]
    sums = dataclasses.replace(declared, layers=(*layers, last), noise=0.0)
    X = orthogonal_tokens(declared, seed)
    W = draw_tokens(declared, X.shape[1] // slices_of(declared), seed)[1]
    exact = run_on_tokens(dataclasses.replace(sums, limit=None), X, W)
    return float(np.abs((run_on_tokens(sums, X, W) - exact).astype(float)).max())


def _error_is_of_second_order(subject: Subject, level: float) -> Tried:
    declared = subject.model.architecture
    assert isinstance(declared, Architecture)
    if len(declared.layers) < 3 or "hardmax" in [layer.activation for layer in declared.layers]:
        return left_out("fewer than two layers are added up, or one jumps")
    ratios = []
    for k in range(8):
        seed = subject.number("depth", k) % 2**31
        ratios.append(_misses(declared, _SCALE, seed) / _misses(declared, _SCALE / 2, seed))
    ratio = float(np.median(ratios))
    holds = _SECOND[0] < ratio < _SECOND[1]
    said = f"half the readouts leave a quarter of the error: a factor of {ratio:.1f}"
    return Tried(len(ratios), "networks", 0.0 if holds else ratio, None, holds, said)


DEPTH = Part(
    _written,
    (
        Claim(
            "networks of many layers, extrapolated in $1/L$, show what the limit gives",
            _deep_networks_tend_to_it,
            applies=lambda subject: _limit(subject) == "ode",
        ),
        Claim(
            "the expansion misses the network of the same layers by a term of second order",
            _error_is_of_second_order,
            applies=lambda subject: _limit(subject) == "first_order",
        ),
    ),
    lambda subject: _limit(subject) is not None,
)
