"""The law of the weights: what it makes of what the data tell, and its term of the free entropy."""

from __future__ import annotations

import numpy as np

from smisym.base.counting import counted
from smisym.base.derivation import Formula, Step
from smisym.trail import notation
from smisym.trail.claims import Claim, Part
from smisym.trail.samples import overlap_of
from smisym.verify.identities import clenshaw_curtis
from smisym.verify.properties import Subject, Tried, left_out

# Relative differences that rounding makes, and intervals of the rule that integrates the derivative.
_ROUNDING, _INTERVALS = 1e-10, 64
# Of integrals over a law of singular values.
_QUADRATURE = 1e-8


def _written(subject: Subject) -> Step:
    model = subject.model
    prior, H = model.prior, model.prior.multiplicity
    slices = (
        f" Rows live on {H} slices of the embedding: overlaps couple rows of one slice only, and each slice has "
        f"${H}\\alpha$ samples per dimension."
        if max(prior.row_slices)
        else ""
    )
    text = (
        f"The weights have {prior.describe()}, in {counted(model.fields, 'row')}. "
        "Overlaps are counted in units of this law, from 0 "
        "where nothing is known to $I$ where everything is. Nothing is known of the weights but "
        + ("" if prior.centred() else "their mean, and ")
        + (
            "through the data, so that for each of their columns the posterior is this law times a Gaussian, and "
            "everything stays in closed form."
            if notation.gaussian(model)
            else "through the data, which tell of each of them as Gaussian noise would; of these together the "
            "posterior is this law times a Gaussian. The steps above say what is left then."
        )
        + slices
    )
    formulas: tuple[Formula, ...] = notation.overlap(model)
    if notation.gaussian(model):
        share = "" if H == 1 else rf"\frac{{1}}{{{H}}}\left["
        end = "" if H == 1 else r"\right]"
        formulas += (
            Formula(r"\hat C", r"\left(I + \hat Q\right)^{-1}, \qquad Q = I - \hat C = \hat Q\,(I + \hat Q)^{-1}"),
            Formula(
                "S(Q)",
                rf"{share}\tfrac12 \mathrm{{tr}}\, "
                rf"Q + \tfrac12 \log\det(I - Q){end}",
                "its free-entropy term",
            ),
            Formula(
                r"\partial_Q S",
                rf"-\tfrac{{1}}{{{2 * H}}} \left[(I - Q)^{{-1}} "
                rf"- I\right] = -\tfrac{{1}}{{{2 * H}}}\, \hat Q(Q)",
            ),
        )
    return Step(
        "prior", "The law of the weights", text, formulas, source="arXiv 2502.00901, eqs 10 and 14; derived here"
    )


def _laws_agree(subject: Subject, level: float) -> Tried:
    """The joint law of fields and estimated fields, written in two ways, is one."""
    prior, (Q, step) = subject.model.prior, overlap_of(subject)
    worst = 0.0
    for at in (Q, Q + step):
        A, B = prior.roots(at)
        law = prior.law(at)
        whole = law.scale @ law.scale.T
        size = float(np.abs(whole).max())
        gaps = (
            A @ A.T + B @ B.T - whole,
            A @ A.T - whole @ law.gain.T,
            A @ A.T - law.gain @ whole @ law.gain.T - law.noise @ law.noise.T,
            B @ B.T - law.V,
            size * (law.units @ np.linalg.solve(law.V, law.units.T) - np.eye(len(Q))),
        )
        worst = max(worst, *(float(np.abs(gap).max()) / size for gap in gaps))
    return Tried(2, "overlaps", worst / _ROUNDING, None, worst <= _ROUNDING)


def _denoises(subject: Subject, level: float) -> Tried:
    """The answer to (A, b) solves its normal equations, and leaves what Q_hat leaves."""
    model = subject.model
    prior, P = model.prior, model.fields
    if prior.precision is None:
        return left_out("columns of these weights are not independent, and have no normal equations of their own")
    rng, lam = subject.rng("denoise"), 0.3
    root = rng.standard_normal((P, P))
    A, b = prior.together() * (root @ root.T) / P, rng.standard_normal((P, 5))
    mean, C = prior.denoise(A, b, lam)
    precision = A + prior.precision + lam * np.eye(P)
    gaps = (precision @ C - np.eye(P), precision @ mean - b)
    worst = max(float(np.abs(gap).max()) for gap in gaps) / float(np.abs(precision).max())
    return Tried(1, "random (A, b)", worst / _ROUNDING, None, worst <= _ROUNDING)


def _entropy_has_its_slope(subject: Subject, level: float) -> Tried:
    prior, (Q, step) = subject.model.prior, overlap_of(subject)
    nodes = (1 - np.cos(np.pi * np.arange(_INTERVALS + 1) / _INTERVALS)) / 2
    slopes = [-0.5 / prior.multiplicity * float((prior.conjugate(Q + s * step) * step).sum()) for s in nodes]
    gap = prior.entropy(Q + step) - prior.entropy(Q) - float(clenshaw_curtis(_INTERVALS) @ slopes)
    allowed = _ROUNDING if notation.gaussian(subject.model) else _QUADRATURE
    worst = abs(gap) / (1 + float(np.abs(slopes).max()))
    return Tried(1, "segment of overlaps", worst / allowed, None, worst <= allowed)


PRIOR = Part(
    _written,
    (
        Claim(
            "$\\omega = A\\xi$, $Z = \\omega + Bu$ and $\\omega$ given $Z$ are one joint law, at this overlap",
            _laws_agree,
        ),
        Claim("mean and covariance of a column of $W$ solve their normal equations", _denoises),
        Claim("$S$ changes along a segment by the integral of its derivative", _entropy_has_its_slope),
    ),
)
