"""Where learning sets in: the operator of state evolution at Q = 0, in this model's blocks, and its threshold."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from smisym.base.counting import counted
from smisym.base.derivation import Formula, Step
from smisym.base.directions import spanned
from smisym.base.matrices import square_root, units
from smisym.base.solution import Result
from smisym.base.threshold import Threshold
from smisym.prior import remaining
from smisym.theory.closed_forms import ClosedForm, closed_form
from smisym.theory.stability import weak_recovery
from smisym.trail import notation
from smisym.trail.claims import Claim, Part, are_quick, purse_of
from smisym.trail.samples import SAMPLES, SCRAMBLES, Drawn, by_chance, drawn, map_of, vanish
from smisym.verify.chance import Verdict, means_vanish
from smisym.verify.properties import Subject, Tried, left_out

# The small overlap from which one step is made, and what higher orders may leave of it in units of its root; rounding.
_SMALL, _HIGHER, _ROUNDING = 1e-3, 3.0, 1e-9
# Error beside a threshold from which on it is written; below, digits say it, and no more than all machines agree on.
_SEEN = 1e-3
# Squares of g_out at Q = 0, beside those of its derivative, that say that something is learned at any alpha.
_TRIVIAL = 1e-3
# Samples of a threshold that is found in any case, how many times as many are worth while, and the share of what is
# left that these are to take.
_FEW, _FEW_SCRAMBLES, _MORE, _SURE = 32, 8, 8, 0.5


def exactly(subject: Subject) -> ClosedForm | None:
    """The first threshold in closed form, where its moments are elementary: what stands beside the number."""
    found: tuple[ClosedForm | None] = subject.once("closed form", lambda: (closed_form(subject.model),))
    return found[0]


@dataclass(frozen=True)
class First:
    """The first threshold as solvers have it, and all that are found with it, as trivial ones are: none where nothing
    is ever learned; or why it is not known."""

    every: tuple[Threshold, ...] = ()
    result: Result = Result.SUCCESS
    scrambles: int = SCRAMBLES
    unknown: str = ""

    @property
    def threshold(self) -> Threshold | None:
        return self.every[0] if self.every else None


def first_threshold(subject: Subject) -> First:
    """What is known of the first threshold within the seconds that are there, asked for once."""
    found: First = subject.once("first", lambda: _first_threshold(subject))
    return found


def _first_threshold(subject: Subject) -> First:
    """As solvers choose; where time is short first of few samples, which also tells how many more there is time for."""
    purse = purse_of(subject)

    def found(omap: Any, how: bool | None) -> First | str:
        def ask() -> First:
            solution = weak_recovery(omap, stages=1, quadrature=how)
            return First(tuple(solution.value), solution.result, scrambles=omap.scrambles)

        return purse.spent(ask, number=True)

    if math.isinf(purse.seconds):
        known = found(map_of(subject), None)
        return First(unknown=known) if isinstance(known, str) else known
    begun = time.process_time()
    few = subject.overlap_map(_FEW, "first", scrambles=_FEW_SCRAMBLES, workers=1)
    known = found(few, False)
    if isinstance(known, str):
        return First(unknown=known)
    each = (time.process_time() - begun) / few.samples
    samples = min(int(_SURE * max(purse.left, 0.0) / each), SAMPLES)
    better: First | str = ""
    if are_quick(subject):
        better = found(map_of(subject), None)
    elif samples >= _MORE * few.samples:
        better = found(subject.overlap_map(samples, "first", scrambles=SCRAMBLES, workers=1), False)
    return known if isinstance(better, str) else better


def _still(subject: Subject) -> np.ndarray:
    return np.zeros((subject.model.fields,) * 2)


def is_even(subject: Subject) -> bool:
    """Whether outputs tell nothing at Q = 0 but through second moments, by symmetry."""
    return not subject.model.symmetry.may_be_shown().any()


def _written(subject: Subject) -> Step:
    model = subject.model
    T = model.tokens
    alpha = notation.samples(model)
    k = len(model.symmetry.basis)
    text = (
        "At $Q = 0$ the cavity knows nothing: $\\omega = 0$, $V = I$ in units "
        "of the prior. There $g_{\\mathrm{out}}$ is linear in a small $\\omega$, "
        "with $G_{ts}$ for its derivative, and $E$ is linear in $Q$: "
        "$E(Q) = \\mathcal{F}(Q)$ to first order. Learning sets in where "
        f"${alpha} \\mathcal{{F}}$ has an eigenvalue above one. $\\mathcal{{F}}$ "
        "maps positive semidefinite matrices to such, so that its "
        "leading eigenvector is one (Perron and Frobenius) and names what is learned first. "
    )
    shown = model.symmetry.may_be_shown()
    text += (
        "No symmetry forbids that $g_{\\mathrm{out}}(y, 0, I)$ differs from "
        "zero in some part: if it does, that part is trivial, learned at any "
        "$\\alpha$, and the operator counts for the others only."
        if shown.any()
        else "By the symmetries of the output $g_{\\mathrm{out}}(y, 0, I) = 0$: nothing is trivial."
    )
    told = model.prior.least_told()
    if told.any():
        return _written_of_least(subject, float(told.max()))
    share = rf"{model.prior.multiplicity}\, " if model.prior.multiplicity > 1 else ""
    one = r"\mathrm{tr}\left(B_j\, \mathcal{F}(B_k)\right)"
    formulas = [
        Formula("G_{ts}(y)", r"\mathbb{E}[z_t z_s^{\top} \mid y] - \delta_{ts} I", r"at $\omega = 0$, $V = I$"),
        Formula(r"\mathcal{F}(M)", rf"\mathbb{{E}}_y \sum_{{t,s=1}}^{{{T}}} G_{{ts}}\, M\, G_{{ts}}^{{\top}}"),
        Formula(
            r"\alpha_c^{-1}",
            rf"{share}\lambda_{{\max}}\left({one}\right)_{{j,k=1}}^{{{k}}}",
            rf"$B_k$: the {counted(k, 'block')} of $Q$, with norm one",
        ),
    ]
    text += _unknown(subject)
    formulas += _numbers(subject)
    exact = exactly(subject)
    if exact is not None:
        text += f" The first threshold is known in closed form. {exact.why}"
        formulas.append(Formula(r"\alpha_c", exact.alpha, "exactly"))
    source = "arXiv 2502.00901, theorem 2.3, eqs 15-16; arXiv 2405.15480; arXiv 2002.12903 for first-order methods"
    return Step("stability", "Linear stability and the first threshold", text, tuple(formulas), source=source)


def _written_of_least(subject: Subject, least: float) -> Step:
    """Where learning sets in for weights that must be told a least amount (:mod:`smisym.theory.told`)."""
    share = rf"{subject.model.prior.multiplicity}\,"
    text = (
        "At $Q = 0$ the cavity knows nothing: $\\omega = 0$, $V = I$. The law of the weights answers to no small "
        f"$\\hat Q$: nothing is learned until it reaches {least:g}, and then what outputs show by themselves, "
        "$E(0)$, is learned, from little on. Outputs with $E(0) = 0$ are hard: what would grow from small overlaps "
        "is not heard."
    )
    formulas = [
        Formula(
            "E(0)", r"\mathbb{E}_y \sum_t g_t g_t^{\top}", r"$g_t = \mathbb{E}[z_t \mid y]$ at $\omega = 0$, $V = I$"
        ),
        Formula(r"\alpha_c", rf"\frac{{{least:g}}}{{{share} E(0)}}"),
    ]
    text += _unknown(subject)
    formulas += _numbers(subject)
    exact = exactly(subject)
    if exact is not None:
        text += f" The first threshold is known in closed form. {exact.why}"
        formulas.append(Formula(r"\alpha_c", exact.alpha, "exactly"))
    return Step(
        "stability",
        "The first threshold",
        text,
        tuple(formulas),
        source="arXiv 2506.01582, corollary 4.2; derived here",
    )


def _unknown(subject: Subject) -> str:
    """What is said where there is no number, and which command gives it."""
    first = first_threshold(subject)
    if not first.unknown:
        return ""
    return (
        f" Its number is not here: {first.unknown}. The command smisym thresholds gives it with its error, and smisym "
        "derive with --seconds inf writes it down here."
    )


def _numbers(subject: Subject) -> list[Formula]:
    known = first_threshold(subject)
    first = known.threshold
    if first is None:
        return []
    if first.kind == "trivial":
        trivial = [one for one in known.every if one.kind == "trivial"]
        return [Formula(r"\alpha_c", "0", f"{spanned(one.subspace, one.names)}: trivial") for one in trivial]
    names = spanned(first.subspace, first.names)
    if not math.isfinite(first.alpha):
        order = "" if first.order is None else f", the first order that tells of it is {first.order}"
        return [Formula(r"\alpha_c", r"\infty", f"{names}: hard for first-order methods{order}")]
    if first.samples is None and first.error > _SEEN * first.alpha:
        value = _with_error(first)
        return [Formula(r"\alpha_c", value, f"{names}: integrated over outputs, with what refinement changes")]
    if first.samples is None:
        # As many digits as its error leaves, and no more than all machines agree on.
        digits = min(5, max(2, math.floor(math.log10(first.alpha / max(first.error, 1e-12)))))
        return [
            Formula(r"\alpha_c", f"{first.alpha:.{digits}g}", f"{names}: as solvers find it, integrated over outputs")
        ]
    if first.error < _ROUNDING * first.alpha:
        return [Formula(r"\alpha_c", f"{first.alpha:.5g}", f"{names}: as solvers find it; samples do not differ in it")]
    doubt = "" if known.result.ok else f"; {known.result.name.lower()}: smisym thresholds takes more samples"
    how = f"{known.scrambles} samples of {first.samples} outputs, with one standard error{doubt}"
    return [Formula(r"\alpha_c", _with_error(first), f"{names}: as solvers find it, {how}")]


def _with_error(first: Threshold) -> str:
    """To the first digit of its error."""
    places = max(0, -math.floor(math.log10(first.error)))
    return rf"{first.alpha:.{places}f} \pm {first.error:.{places}f}"


def rates(subject: Subject, plain: Drawn) -> np.ndarray:
    """(n, k, k) how each output lets overlaps along unit blocks grow, by its posterior's covariance."""
    basis, dg = units(subject.model.symmetry.basis), plain.dg
    fed = np.einsum("nptas,kab,nqtbs->nkpq", dg, basis, dg, optimize=True)
    return np.asarray(subject.model.prior.multiplicity * np.einsum("jpq,nkpq->njk", basis, fed))


def _operators_agree(subject: Subject, level: float) -> Tried:
    model = subject.model
    basis, Q = units(model.symmetry.basis), _still(subject)

    def test(stage: int, times: int) -> Verdict:
        estimates = map_of(subject, stage, times).evaluate(Q)
        own = np.array([[np.einsum("jpq,pq->j", basis, e.derivative(B)) for B in basis] for e in estimates])
        own = np.swapaxes(own, 1, 2)
        plain = drawn(subject, Q, "still", stage, times)
        each = rates(subject, plain)
        size = len(each) // SCRAMBLES
        means = each[: size * SCRAMBLES].reshape(SCRAMBLES, size, *own.shape[1:]).mean(axis=1)
        scale = float(np.abs(own.mean(axis=0)).max())
        error = 4 * float(plain.moments.error.mean()) * np.sqrt(model.fields * model.tokens * max(scale, 1.0))
        stated = error + 3 * float(np.mean([e.inner_error for e in estimates])) + _ROUNDING
        found = means_vanish(means - own, stated)
        return Verdict(found.t, found.p, found.which, len(each), found.error, stage + 1)

    return by_chance(subject, level, test, "outputs at $\\omega = 0$")


def _starts_there(subject: Subject, level: float) -> Tried:
    """One step of state evolution, by plain draws of g g^T, from a small overlap along what is learned first."""
    if subject.model.prior.least_told().any():
        return left_out("nothing is learned from a little")
    if first_threshold(subject).unknown:
        return left_out("the number of the first threshold is not known here")
    first = first_threshold(subject).threshold
    if first is None or first.kind == "trivial" or not math.isfinite(first.alpha):
        return left_out(
            "the first threshold is not a finite one"
            if first is None or first.kind != "trivial"
            else "something is learned at any $\\alpha$"
        )
    model = subject.model
    if not is_even(subject):
        return left_out("symmetries do not say that nothing is trivial")
    estimates = map_of(subject).evaluate(_still(subject))
    basis = units(model.symmetry.basis)
    operator = np.mean(
        [[[float((B * e.derivative(C)).sum()) for C in basis] for B in basis] for e in estimates], axis=0
    )
    values, vectors = np.linalg.eig(operator)
    leading = vectors[:, int(values.real.argmax())].real
    M = np.einsum("k,kpq->pq", leading, basis)
    M = M * np.sign(np.trace(M)) / np.linalg.norm(M)
    # What rounding leaves outside of the cone.
    root = square_root(M)
    M = root @ root
    Q = _SMALL * M

    def test(stage: int, times: int) -> Verdict:
        plain = drawn(subject, Q, "small", stage, times)
        back = np.linalg.inv(square_root(remaining(Q)))
        g = back @ plain.g
        grown = model.prior.multiplicity * np.einsum("npt,pq,nqt->n", g, M, g) / _SMALL
        gaps = first.alpha * grown - float((M * M).sum())
        error = 4 * float(plain.moments.error.mean()) * np.sqrt(model.fields * model.tokens / _SMALL)
        sure = 4 * first.error / first.alpha
        return vanish(gaps[:, None], _HIGHER * math.sqrt(_SMALL) + error + sure)

    said = f"one step from $Q = {_SMALL:g} M$, up to ${_HIGHER:g} \\sqrt{{{_SMALL:g}}}$ for higher orders"
    return by_chance(subject, level, test, "plain draws", said)


def _is_exact(subject: Subject, level: float) -> Tried:
    """A first threshold from a map of its own, sampled, against the closed form."""
    exact = exactly(subject)
    if exact is None:
        return left_out("no closed form is known")

    def test(stage: int, times: int) -> Verdict:
        omap = map_of(subject, stage, times)
        found = weak_recovery(omap, stages=1, quadrature=False).value[0]
        inner = found.alpha * math.sqrt(omap.at(0, _still(subject)).inner_error)
        beyond = max(abs(found.alpha - float(exact)) - inner - _ROUNDING, 0.0)
        t = (beyond / found.error if found.error else math.inf) if beyond else 0.0
        p = min(1.0, 2 * float(special.stdtr(SCRAMBLES - 1, -t)))
        return Verdict(t, p, 0, omap.samples, found.error, stage + 1)

    return by_chance(subject, level, test, "samples of the overlap map")


STABILITY = Part(
    _written,
    (
        Claim(
            "the operator that solvers use is the mean over outputs of $G M G^{\\top}$",
            _operators_agree,
            posteriors=True,
        ),
        Claim(
            "at $\\alpha_c$ state evolution from a small start along its eigenvector neither grows nor falls",
            _starts_there,
            posteriors=True,
        ),
        Claim(
            "the closed form is the threshold that sampled outputs have",
            _is_exact,
            posteriors=True,
            applies=lambda subject: exactly(subject) is not None,
        ),
    ),
)
