"""What the letters of all later steps are in this model, with their shapes."""

from __future__ import annotations

from smisym.base.counting import counted
from smisym.base.derivation import Formula, Step
from smisym.model.compiled import Model
from smisym.trail import notation
from smisym.trail.claims import Part
from smisym.verify.properties import Subject


def _written(subject: Subject) -> Step:
    model = subject.model
    text = (
        "These letters mean the same in all steps. Numbers are those of this network; letters in sizes grow. "
        "Vectors are columns, $\\top$ transposes, $I$ is the identity, and a hat is an estimate or, on $Q$, "
        "what the data tell."
    )
    formulas = (*_data(model), *_fields(model), *_posterior(model), *_overlaps(model))
    stage = next(iter(model.derivation)).stage
    return Step(stage, "Notation", text, formulas, source="arXiv 2502.00901, and the steps below")


def _data(model: Model) -> tuple[Formula, ...]:
    """One sample, the weights, how many samples there are."""
    T, own = model.tokens, model.prior.entries
    rows = f"the weights: {counted(model.fields, 'row')}, one for each row of $Z$"
    if own == "M":
        sample = (
            f"sample $\\mu$ as the weights see it: {counted(T, 'sensing matrix', 'sensing matrices')}, one a row, made "
            "of the tokens $X$, whose dimension is $d$ ($D$ in $\\alpha$); entries are independent, of variance one"
        )
        size = model.prior.matrix_entries
        rows += f": the $M = {size}$ entries of a matrix in an orthonormal basis (not the factors of the step on it)"
    else:
        sample = (
            f"sample $\\mu$: {counted(T, 'token')} ($T = {T}$) of dimension $D$, one a row, whose entries are "
            "independent and standard normal; $X$ is that of any one sample"
        )
        rows += ", each on its own slice of the tokens" if own.startswith("D/") else ""
    # N over what is alpha.
    unit = model.prior.unit.removeprefix("N/").strip("()")
    return (
        Formula(None, rf"X_\mu \in \mathbb{{R}}^{{{T} \times {'D' if own.startswith('D/') else own}}}", sample),
        Formula(None, rf"W \in \mathbb{{R}}^{{{model.fields} \times {own}}}", rf"{rows}; $W_i$ is column $i$"),
        Formula("N", rf"\alpha\, {unit}", "the number of samples $\\mu$, which grows while $\\alpha$ is kept"),
    )


def _fields(model: Model) -> tuple[Formula, ...]:
    """What samples show, and of what it is a function."""
    P, T, own = model.fields, model.tokens, model.prior.entries
    shape = r" \times ".join(map(str, model.link.output_shape))
    columns, sample = ("sensing matrix", r"X_\mu") if own == "M" else ("token", "X")
    return (
        Formula(
            None,
            rf"Z = \frac{{W {sample}^{{\top}}}}{{\sqrt{{{own}}}}} \in \mathbb{{R}}^{{{P} \times {T}}}",
            f"the fields, one column $z_t$ a {columns}; $Z^*$ those of the truth",
        ),
        Formula(
            None,
            rf"y \in \mathbb{{R}}^{{{shape}}}, \qquad p(y \mid Z) = {notation.given(model)}",
            "the output; $f$ is the link, a function of the fields alone, written out beside this step",
        ),
    )


def _posterior(model: Model) -> tuple[Formula, ...]:
    """Of one sample, given what all others say of its fields."""
    P, T = model.fields, model.tokens
    size = rf"\mathbb{{R}}^{{{P} \times {T}}}"
    return (
        Formula(
            None,
            rf"\omega \in {size}, \qquad V \in \mathbb{{R}}^{{{P} \times {P}}}",
            "mean of the fields of a sample before its output is seen (the cavity), and the covariance of each of "
            "their columns",
        ),
        Formula(None, r"Z_{\mathrm{out}}(y, \omega, V) \in \mathbb{R}_+", "how likely the output is there"),
        Formula(
            None,
            rf"g_{{\mathrm{{out}}}} = \partial_\omega \log Z_{{\mathrm{{out}}}} \in {size}",
            "what the output tells of the fields, the denoiser; $g_t$ are its columns",
        ),
    )


def _overlaps(model: Model) -> tuple[Formula, ...]:
    """The estimate, and what all samples together tell."""
    P, own = model.fields, model.prior.entries
    square = rf"\mathbb{{R}}^{{{P} \times {P}}}"
    return (
        Formula(
            None,
            rf"\hat W \in \mathbb{{R}}^{{{P} \times {own}}}, \qquad \hat C \in {square}",
            "the estimate of $W$, its posterior mean, and the posterior covariance of one column",
        ),
        Formula(
            None,
            rf"Q, E, \hat Q \in {square}",
            "$Q$: overlap of estimate and truth, from $0$ to $I$; $E$: the mean of $g g^{\\top}$, summed over its "
            f"columns; $\\hat Q = {notation.samples(model)} E$: what all samples tell of a column of $W$",
        ),
    )


LETTERS = Part(_written, ())
