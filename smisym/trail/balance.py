"""The free entropy: a function of the overlap whose stationary points are the fixed points of state evolution."""

from __future__ import annotations

import numpy as np

from smisym.base.counting import counted
from smisym.base.derivation import Formula, Step
from smisym.prior import remaining
from smisym.theory.entropy import free_entropy
from smisym.theory.maps import OverlapMap
from smisym.trail import notation, proofs
from smisym.trail.claims import Claim, Part
from smisym.trail.samples import by_chance, map_of, overlap_of
from smisym.verify.averages import bends
from smisym.verify.chance import Verdict, means_vanish
from smisym.verify.identities import clenshaw_curtis
from smisym.verify.properties import Subject, Tried, left_out

# Nodes of the segment; nodes of the prior's part; where Phi is asked for, alpha; rounding.
NODES = (1 - np.cos(np.pi * np.arange(5) / 4)) / 2
_FINER, _ALPHA, _ROUNDING = 64, 1.0, 1e-9


_TEXT = (
    "The free entropy $\\Phi$ is the limit of the log-partition "
    "function per dimension, relative to the base measure "
    "of $y$, which shifts it by a constant times $\\alpha$: only differences at one $\\alpha$ mean anything. The "
    "largest value is the Bayes-optimal one. "
    "In $\\hat Q$ its stationarity is matrix calculus: $\\partial \\log\\det(I "
    "+ \\hat Q) = \\mathrm{tr}\\,(I + \\hat Q)^{-1} \\partial \\hat Q$. "
    "In $Q$ it takes two identities. A Gaussian density obeys the heat "
    "equation, $\\partial_V \\mathcal{N} = \\frac12 \\partial^2_\\omega "
    "\\mathcal{N}$, so that moving $V = I - Q$ against the covariance "
    "of $\\omega$ leaves every mean over $\\omega$ linear in "
    "$Z_{\\mathrm{out}}$ as it is (Stein); $\\log$ is not linear, and its "
    "second derivative leaves $\\frac12 g g^{\\top}$, summed over tokens. "
    "So $2\\, \\partial_Q \\mathbb{E} \\log Z_{\\mathrm{out}} = E(Q)$, "
    "and fixed points of state evolution are stationary points of $\\Phi$."
)


def _written(subject: Subject) -> Step:
    model = subject.model
    T, H = model.tokens, model.prior.multiplicity
    shared = "" if H == 1 else f" The prior's terms carry $1/{H}$: there are as many slices as share the samples."
    scale = "" if H == 1 else rf"\frac{{1}}{{{H}}}"
    plain = notation.gaussian(model)
    if plain:
        whole = r"\tfrac12 \mathrm{tr}\, \hat Q - \tfrac12 \log\det(I + \hat Q)"
        left, still = r"(I + \hat Q)^{-1}", r"(I - Q)^{-1} + I"
        of_one = r"\tfrac12 \mathrm{tr}\, Q + \tfrac12 \log\det (I - Q)"
    else:
        whole, left, still = r"\Psi(\hat Q)", r"F(1 / \hat Q)", r"\hat Q(Q)"
        of_one = r"-\tfrac12 \mathrm{tr}\, Q \hat Q(Q) + \Psi(\hat Q(Q))"
    formulas: tuple[Formula, ...] = (
        Formula(
            r"\Phi(Q, \hat Q)",
            r"S(Q, \hat Q) + \alpha\, \mathbb{E} \log Z_{\mathrm{out}}(y, "
            + (r"Q^{1/2} \xi" if plain else r"\omega")
            + ", I - Q)",
        ),
        Formula(
            r"S(Q, \hat Q)",
            rf"{scale}\left[-\tfrac12 \mathrm{{tr}}\, Q \hat Q + {whole}\right]",
            "of the law of the weights" + ("" if plain else r"; $\Psi' = (1 - F(1 / \hat Q)) / 2$"),
        ),
        Formula(None, rf"\partial_{{\hat Q}} \Phi = 0 \quad\Leftrightarrow\quad Q = I - {left}"),
        Formula(
            None,
            r"\tfrac12 \partial^2_\omega (\mathcal{Z} \log \mathcal{Z}) - \tfrac12 (1 + \log \mathcal{Z})\, "
            r"\partial^2_\omega \mathcal{Z} = \tfrac12 \mathcal{Z}\, g\, g^{\top}",
            r"$\mathcal{Z} = Z_{\mathrm{out}}$: the law of $\omega$ widens as $V$ narrows, and this is what is left",
        ),
        Formula(
            r"\partial_Q\, \mathbb{E} \log Z_{\mathrm{out}}",
            rf"\tfrac12\, \mathbb{{E}} "
            rf"\sum_{{t=1}}^{{{T}}} g_t\, g_t^{{\top}}",
        ),
        Formula(
            r"\Phi(Q)",
            rf"{scale}\left[{of_one}\right] + \alpha\, \mathbb{{E}} \log Z_{{\mathrm{{out}}}}",
            r"$\hat Q$ eliminated",
        ),
        Formula(
            r"\mathrm{d}\Phi",
            rf"\tfrac{{1}}{{{2 * H}}}\, \mathrm{{tr}}\left[\left({notation.samples(model)}\, "
            rf"E(Q) - {still}\right) \mathrm{{d}}Q\right]",
        ),
    )
    return Step(
        "entropy",
        "Free entropy and its stationarity",
        _TEXT + shared,
        formulas,
        source="arXiv 2502.00901, theorem 2.1, eq. 10, and D.2; arXiv "
        "1806.05451; arXiv 1708.03395; doi 10.1214/aos/1176345632",
    )


def _conjugate(subject: Subject, level: float) -> Tried:
    symmetry = subject.model.symmetry
    if not notation.gaussian(subject.model):
        return left_out("F and Psi are integrals; the trial along a segment covers it")
    if not proofs.affordable(symmetry):
        return left_out(
            "the overlap has too many numbers for algebra, or some that are sums of roots or not known exactly; the "
            "trial along a segment covers it"
        )
    left = [x for x in proofs.stationary_in_conjugate(symmetry) if x != 0]
    rest = proofs.eliminated(symmetry)
    holds = not left and rest == 0
    said = f"symbolically, {counted(len(symmetry.basis), 'derivative')} in the coordinates of $\\hat Q$: 0"
    return Tried(0, "", holds=holds, said=said if holds else f"{[*left, rest]} where zero should be left")


def _heat(subject: Subject, level: float) -> Tried:
    left = [x for x in (*proofs.heat_equations(), *proofs.steins_remainder()) if x != 0]
    return Tried(
        0,
        "",
        holds=not left,
        said="symbolically, with a free covariance and a free function of two rows: 0" if not left else str(left),
    )


def stationarity_gaps(omap: OverlapMap, Q: np.ndarray, step: np.ndarray, alpha: float) -> tuple[np.ndarray, float]:
    """((R,) of every scramble Phi(Q + step) - Phi(Q) less the integral of its derivative as state evolution has it,
    what may be wrong with the integral)."""
    prior = omap.model.prior
    every = [omap.evaluate(Q + s * step) for s in NODES]
    ends = np.array([[e.log_partition for e in every[k]] for k in (0, -1)])
    phi = alpha * (ends[1] - ends[0]) + prior.entropy(Q + step) - prior.entropy(Q)
    # The solver's own value, at both ends, is the mean of these.
    said = [float(free_entropy(omap, Q + s * step, alpha).value) for s in (0.0, 1.0)]
    phi += said[1] - said[0] - phi.mean()
    told = np.array([[float((e.E * step).sum()) for e in at] for at in every])
    fine, coarse = (alpha / 2 * np.tensordot(clenshaw_curtis(k), told[:: 4 // k], axes=1) for k in (4, 2))
    nodes = (1 - np.cos(np.pi * np.arange(_FINER + 1) / _FINER)) / 2
    hats = [float((prior.conjugate(Q + s * step) * step).sum()) for s in nodes]
    least = np.linalg.eigvalsh(remaining(Q + step))[0]
    stated = alpha * float(np.mean([e.inner_error for at in every for e in at])) * (1 + np.trace(step) / least)
    allowed = float(np.abs((fine - coarse).mean())) + stated + _ROUNDING * (1 + abs(said[0]))
    return phi - (fine - float(clenshaw_curtis(_FINER) @ hats) / 2) / prior.multiplicity, allowed / prior.multiplicity


def _stationary(subject: Subject, level: float) -> Tried:
    Q, step = overlap_of(subject)

    def test(stage: int, times: int) -> Verdict:
        omap = map_of(subject, stage, times)
        gaps, allowed = stationarity_gaps(omap, Q, step, _ALPHA)
        found = means_vanish(gaps[:, None], allowed)
        return Verdict(found.t, found.p, found.which, omap.samples * len(NODES), found.error, stage + 1)

    return by_chance(subject, level, test, "samples, at five overlaps of a segment")


def _convex(subject: Subject, level: float) -> Tried:
    Q, step = overlap_of(subject)

    def test(stage: int, times: int) -> Verdict:
        omap = map_of(subject, stage, times)
        # The ends and the middle of the same segment.
        values = bends(omap, Q + step / 2, step / 2)
        found = means_vanish(values[:, None], 4 * max(e.inner_error for e in omap.evaluate(Q)) + _ROUNDING, sides=1)
        return Verdict(found.t, found.p, found.which, omap.samples * 3, found.error, stage + 1)

    return by_chance(subject, level, test, "samples, at three overlaps of a segment")


ENTROPY = Part(
    _written,
    (
        Claim(
            "$\\partial_{\\hat Q} \\Phi = 0$ at $Q = I - (I + \\hat Q)^{-1}$, and eliminating $\\hat Q$ leaves $S(Q)$",
            _conjugate,
        ),
        Claim(
            "$\\partial_V \\mathcal{N} = \\frac12 \\partial^2_\\omega "
            "\\mathcal{N}$, and what it leaves of $\\log$ is $\\frac12 g g^{\\top}$",
            _heat,
        ),
        Claim(
            "$\\Phi$ changes along a segment of overlaps by the "
            "integral of $\\mathrm{d}\\Phi$, with $E$ of the overlap map",
            _stationary,
            posteriors=True,
        ),
        Claim("$\\mathbb{E} \\log Z_{\\mathrm{out}}$ is convex along it", _convex, posteriors=True),
    ),
)
