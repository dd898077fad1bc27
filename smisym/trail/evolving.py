"""State evolution: GAMP in infinite dimension is a map of one matrix, here in this model's own blocks."""

from __future__ import annotations

import numpy as np

from smisym.base.counting import counted
from smisym.base.derivation import Formula, Step
from smisym.base.matrices import square_root
from smisym.prior import remaining
from smisym.trail import notation
from smisym.trail.claims import Claim, Part
from smisym.trail.samples import SCRAMBLES, by_chance, drawn, map_of, overlap_of, vanish
from smisym.verify.chance import Verdict, means_vanish
from smisym.verify.properties import Subject, Tried

_ROUNDING = 1e-9


def _written(subject: Subject) -> Step:
    model = subject.model
    T, symmetry = model.tokens, model.symmetry
    alpha = notation.samples(model)
    text = (
        f"As $D$ grows at fixed $\\alpha = {model.prior.unit}$, the fields and "
        "their cavity estimates of a sample are jointly Gaussian, "
        "because they are sums over columns; $A$ and the mean square "
        "of $b$ concentrate on one matrix, $\\hat Q$, because they are "
        "averages over samples; and the mean of $b$ is $\\hat Q$ times the truth (Nishimori). So the overlap of the "
        "estimate with the truth, which is also its overlap with itself, obeys a closed recursion. The sum runs over "
        f"{counted(T, 'token') if notation.gaussian(model) else f'{T} fields'}. The map "
        "commutes with the symmetries of the output, and an overlap in their blocks stays there."
    )
    plain = notation.gaussian(model)
    each = rf"$\xi, \xi'$ with {model.fields * T} standard normal entries each"
    made = r"\hat Q^{(k)} \left(I + \hat Q^{(k)}\right)^{-1}" if plain else r"1 - F\big(1 / \hat Q^{(k)}\big)"
    formulas = [
        Formula(
            r"\omega",
            r"Q^{1/2}\, \xi, \qquad Z = \omega + (I - Q)^{1/2}\, \xi', \qquad y \sim p(y \mid Z)",
            each,
        )
        if plain
        else Formula(
            r"\omega",
            r"A\, \xi, \qquad Z = \omega + B\, \xi', \qquad B B^{\top} = V = I - Q, \qquad y \sim p(y \mid Z)",
            each + "; $A A^{\\top}$ is what is known of the fields, with what the mean of the weights tells",
        ),
        Formula(
            r"E(Q)",
            rf"\mathbb{{E}}_{{\xi, \xi'}} \sum_{{t=1}}^{{{T}}} g_t\, "
            rf"g_t^{{\top}}, \qquad g = g_{{\mathrm{{out}}}}(y, \omega, I - Q)",
        ),
        Formula(
            r"\hat Q^{(k)}",
            rf"{alpha}\, E(Q^{{(k)}}), \qquad Q^{{(k+1)}} = {made}",
            "" if plain else "F of the step on the prior",
        ),
    ]
    if plain and symmetry.projectors and len(symmetry.basis) <= notation.READABLE:
        for k, D in enumerate(symmetry.directions):
            q = notation.block_symbols(symmetry)[k]
            rows = ", ".join(notation.rows(model)[r] for r in np.flatnonzero(np.abs(D).max(axis=0) > 1e-9))
            q_name = str(q)
            share = rf"\tfrac{{1}}{{{len(D)}}}\, " if len(D) > 1 else ""
            e = rf"{share}\mathrm{{tr}}\left(\Pi_{{{k + 1}}} E\right)"
            note = f"the part of {counted(len(D), 'dimension')} about ${rows}$, onto which $\\Pi_{{{k + 1}}}$ projects"
            formulas.append(Formula(q_name, rf"\frac{{{alpha} e}}{{1 + {alpha} e}}, \qquad e = {e}", note))
    return Step(
        "evolution",
        "The recursion of the overlap",
        text,
        tuple(formulas),
        source="arXiv 2502.00901, lemma 2.2, eqs 13-14 and D.1; arXiv 2109.11905; arXiv 1211.5164",
    )


def _map_is_the_mean(subject: Subject, level: float) -> Tried:
    Q, _ = overlap_of(subject)
    model = subject.model
    factor = model.prior.together() * model.prior.multiplicity
    upper = np.triu_indices(len(Q))

    def test(stage: int, times: int) -> Verdict:
        white = np.array([e.white for e in map_of(subject, stage, times).evaluate(Q)])
        plain = drawn(subject, Q, "Q", stage, times)
        each = factor * np.einsum("spt,sqt->spq", plain.g, plain.g)
        size = len(each) // SCRAMBLES
        means = each[: size * SCRAMBLES].reshape(SCRAMBLES, size, *Q.shape).mean(axis=1)
        stated = float(np.mean([e.inner_error for e in map_of(subject, stage, times).evaluate(Q)]))
        error = stated + 2 * float(plain.moments.error.mean()) * np.sqrt(model.fields * model.tokens)
        found = means_vanish((means - white)[:, upper[0], upper[1]], error + _ROUNDING)
        return Verdict(found.t, found.p, found.which, len(each), found.error, stage + 1)

    return by_chance(subject, level, test, "plain draws")


def _blocks_hold(subject: Subject, level: float) -> Tried:
    Q, _ = overlap_of(subject)
    model = subject.model
    upper = np.triu_indices(len(Q))

    def test(stage: int, times: int) -> Verdict:
        plain = drawn(subject, Q, "Q", stage, times)
        each = model.prior.together() * np.einsum("spt,sqt->spq", plain.g, plain.g)
        root = np.linalg.inv(square_root(remaining(Q)))
        outside = root @ each @ root.T
        outside = outside - model.symmetry.project(outside)
        error = 2 * float(plain.moments.error.mean()) * np.sqrt(model.fields * model.tokens)
        allowed = error * float(np.abs(root).max()) ** 2 + _ROUNDING
        return vanish(outside[:, upper[0], upper[1]], allowed)

    return by_chance(subject, level, test, "plain draws")


EVOLUTION = Part(
    _written,
    (
        Claim(
            "$E(Q)$, as solvers have it, is the plain mean of $g g^{\\top}$ at a random overlap",
            _map_is_the_mean,
            posteriors=True,
        ),
        Claim("of that mean nothing lies outside of the blocks", _blocks_hold, posteriors=True),
    ),
)
