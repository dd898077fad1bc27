"""First thresholds in closed form, where the moments that make them are elementary.

At Q = 0 an overlap M grows by F(M) = E_y sum_ts G_ts M G_ts^T, where G_ts = E[z_t z_s^T | y] - delta_ts I: 1 / alpha
is the largest eigenvalue of F (Troiani et al., arXiv 2502.00901, section 5).  So all that counts is what y
leaves open of the products of fields.  Each rule here reads that off the compiled model, or off one layer as declared,
and refuses by None; what is returned is exact, and holds for the model as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from smisym.base.errors import InputError
from smisym.declare.architecture import Architecture, Attention
from smisym.declare.smi import SMI
from smisym.model.compiled import Model, compile
from smisym.posterior.measured import OnMeasurements

# A cell of angles between multiples of pi / _EDGES (of pi/8 and of pi/6, as of z1 = 0, |z1| = |z2|, z1^2 = 3 z2^2), and
# where in it, and at which sizes, the output is looked at.
_EDGES, _INSIDE, _SIZES = 24, (0.1, 0.5, 0.93), (2.3, 0.4, -1.0)


@dataclass(frozen=True)
class ClosedForm:
    """A first threshold, exactly.

    alpha: its value.  formula: for any tokens T and rank r, where the rule holds for any, else the value; as text.
    why: one or two sentences, ``$...$`` holds LaTeX.  source: where it is from.
    """

    alpha: sp.Expr
    formula: str
    why: str
    source: str

    def __float__(self) -> float:
        return float(self.alpha)

    def __repr__(self) -> str:
        return f"ClosedForm(alpha = {self.formula} = {self.alpha} = {float(self):.6g})"


def closed_form(model: Model | Architecture | SMI) -> ClosedForm | None:
    """The first threshold of a model in closed form, or None where no rule knows one.

    Known are: outputs that leave nothing open but signs; one layer of any rank, tied with softmax or linear scores;
    one layer untied, of rank one, with softmax; even outputs that are constant on cones of two fields, with
    edges at multiples of pi/24; linear measurements of a matrix of small width.  A declaration is compiled.

    Raises InputError for what is neither a Model nor a declaration.
    """
    if isinstance(model, Architecture | SMI):
        model = compile(model)
    if not isinstance(model, Model):
        raise InputError(
            "model", model, "a Model, or a declaration", "write smisym.closed_form(smisym.compile(architecture))"
        )
    if model.prior.least_told().any():
        return _told(model)
    if not _standard(model):
        return None
    return next((found for rule in RULES if (found := rule(model)) is not None), None)


def _standard(model: Model) -> bool:
    """Noiseless, with weights whose fields are standard normal where nothing is known, and no sum in their place."""
    law = model.prior.law(np.zeros((model.fields,) * 2))
    plain = np.array_equal(law.scale, np.eye(model.fields)) and model.prior.centred()
    return plain and not model.noise and model.charted is model.link


# ------------------------------------------------------------------- weights that must be told a least amount


def _told(model: Model) -> ClosedForm | None:
    """Of one row of weights, K of whose fields are measured: E(0) = K, and from there on they are learned."""
    posterior = model.channel.posterior
    if model.fields > 1 or not isinstance(posterior, OnMeasurements) or not model.prior.centred():
        return None
    K, shared = len(posterior.rows), model.prior.multiplicity
    least = sp.nsimplify(float(model.prior.least_told()[0, 0]))
    layer = model.architecture.layers[0] if isinstance(model.architecture, Architecture) else None
    T = model.tokens if layer is None else model.prior.tokens(model.tokens)
    formulas = {T * (T + 1) // 2: "1/(T(T+1))", T * (T + 1) // 2 - 1: "1/(T(T+1) - 2)"}
    alpha = least / (shared * sp.Integer(K))
    return ClosedForm(
        alpha,
        formulas.get(K, str(alpha)) if least == 1 and shared == 2 else str(alpha),
        f"An output measures {K} of the fields, so that $E(0) = {K}$ where nothing is known, and the weights are "
        rf"learned where ${shared}\alpha E(0)$ passes ${sp.latex(least)}$: spikes leave the noise.",
        "arXiv 2506.01582, corollary 4.2; the count of measurements from the chart of this model",
    )


# ------------------------------------------------------------------------------------------ known up to signs of rows


def shows_up_to_signs(model: Model) -> bool:
    """Whether an output leaves nothing open but the signs that symmetry cannot tell: as many sheets as such signs."""
    level_set = model.level_set
    if level_set is None or model.noise or model.charted is not model.link:
        return False
    free = level_set.free_rows or level_set.latents or level_set.directions or level_set.shared or level_set.pieces
    return not free and level_set.branches == len(model.symmetry.signs)


def _up_to_signs(model: Model) -> ClosedForm | None:
    signs, slices = model.symmetry.signs, model.prior.multiplicity
    # A row that no flip turns has a sign that is shown: it is learned at any alpha.
    if not shows_up_to_signs(model) or (signs == 1).all(axis=0).any():
        return None
    _, together = np.unique(signs, axis=1, return_counts=True)
    P, T = int(together.max()), model.tokens
    rows, share = ("a row", "") if P == 1 else (f"the {P} rows that are flipped together", f" / {P}")
    formula = "T(T+1)" if P == 1 else f"T({P}T+1)"
    return ClosedForm(
        1 / sp.Integer(slices * T * (P * T + 1)),
        f"1/({formula})" if slices == 1 else f"1/({slices} {formula})",
        f"An output shows the fields up to signs, and so all products of two entries of {rows}: there "
        r"$G_{ts} = z_t z_s^{\top} - \delta_{ts} I$, and the identity grows at the rate "
        rf"$\mathbb{{E}} \sum_{{ts}} \|G_{{ts}}\|^2{share} = {formula.replace('T(', 'T (')}$, faster than all else.",
        "arXiv 2502.00901, section 5; the count of signs from the chart and the symmetry of this model",
    )


# -------------------------------------------------------------------------------------------------- one layer, any rank


def _one_layer(model: Model) -> tuple[Architecture, Attention] | None:
    """A declared layer all of whose attention matrices are seen, with nothing masked."""
    declared = model.architecture
    if not isinstance(declared, Architecture) or len(declared.layers) > 1 or declared.layers[0].mask is not None:
        return None
    layer = declared.layers[0]
    apart = layer.heads == 1 or (declared.output == "attention" and declared.combine == "stack")
    return (declared, layer) if apart and declared.tokens > 1 else None


def _tied(model: Model) -> ClosedForm | None:
    one = _one_layer(model)
    if one is None or not one[1].tied or one[1].activation not in ("softmax", "linear"):
        return None
    T, r, slices = one[0].tokens, one[1].rank, model.prior.multiplicity
    softmax = one[1].activation == "softmax"
    # With r < T the rank of the Gram matrix fixes what the softmax hides of it.
    hidden = max(r - T + 1, 0) if softmax else 0
    alpha = 1 / (slices * (sp.Rational(T * (T + 1), r) - sp.Rational(2 * hidden, r * r)))
    formula = "1/(T(T+1)/r - 2(r-T+1)/r^2)" if hidden else "r/(T(T+1))"
    why = (
        r"Scores show the Gram matrix $G = U U^{\top}$, and nothing else: "
        r"$\mathbb{E}\|G / r - I\|^2 = T (T + 1) / r$."
    )
    if hidden:
        why = (
            r"The softmax shows the Gram matrix $G = U U^{\top}$ up to $g\,11^{\top}$: of $\mathbb{E}\|G / r - I\|^2 = "
            r"T (T + 1) / r$ the variance of a chi-square of $r - T + 1$ degrees is missing."
        )
    return ClosedForm(alpha, formula if slices == 1 else f"{formula}/{slices}", why, "derived here")


def _untied(model: Model) -> ClosedForm | None:
    """The largest eigenvalue of [[chi_q, x], [x, chi_k]]: queries and keys grow together.

    y shows q_i (k_j - mean k): both up to a length, with s = |q| |k - mean k| known, q in R^T and k - mean k in R^{T-1}
    standard normal.  int rho^{a-1} exp(-(rho^2 + s^2/rho^2)/2) d rho = s^{a/2} K_{a/2}(s), here of half-integer order,
    hence elementary.  tests/theory/test_closed_forms.py does these integrals again.
    """
    one = _one_layer(model)
    if one is None or one[1].tied or one[1].activation != "softmax" or one[1].rank > 1:
        return None
    T, slices = sp.Integer(one[0].tokens), model.prior.multiplicity
    formula = "1/((T-1)(T + sqrt(T^2+1)))"
    return ClosedForm(
        sp.radsimp(1 / (slices * (T - 1) * (T + sp.sqrt(T**2 + 1)))),
        formula if slices == 1 else f"{formula}/{slices}",
        r"The output shows $q_i (k_j - \bar k)$, that is both directions and the product $s$ of both lengths. Moments "
        r"of a length given $s$ are $s^{n} K_{\nu + n}(s) / K_{\nu}(s)$ of half-integer order; queries and keys grow "
        "together.",
        "derived here; DLMF 10.32.10",
    )


# ---------------------------------------------------------------------------------------------------------------- cones


def _cones(model: Model) -> ClosedForm | None:
    """An even output that is constant on cones of two numbers, whose edges are multiples of pi/24.

    On a cone |z|^2 has mean 2 and z z^T - I = (cos 2t, sin 2t) as a traceless matrix, averaged over the angle t.
    """
    if model.fields * model.tokens != 2 or model.prior.multiplicity > 1:
        return None
    cells = list(itertools.pairwise(k * sp.pi / _EDGES for k in range(_EDGES + 1)))
    t = np.array([[float(a) + (float(b) - float(a)) * part for part in _INSIDE] for a, b in cells])
    Z = np.stack([np.cos(t), np.sin(t)], axis=-1).reshape(-1, model.fields, model.tokens)
    seen = model.link(Z).reshape(_EDGES, len(_INSIDE), -1)
    constant = np.allclose(seen, seen[:, :1], rtol=1e-12, atol=0)
    if not constant or not all(np.array_equal(model.link(f * Z), model.link(Z)) for f in _SIZES):
        return None
    x, total = sp.Symbol("x", real=True), sp.Integer(0)
    for y in np.unique(seen[:, 0], axis=0):
        own = [cell for cell, value in zip(cells, seen[:, 0], strict=True) if np.array_equal(value, y)]
        width = sum(b - a for a, b in own)
        moments = [sum(sp.integrate(f(2 * x), (x, a, b)) for a, b in own) / width for f in (sp.cos, sp.sin)]
        total += width / sp.pi * sum(m**2 for m in moments)
    total = sp.simplify(total)
    if not total:
        return None
    # One field on two tokens: || . ||_F^2.  Two fields on one: the map M -> G M G on the identity, which is positive.
    alpha = sp.radsimp(1 / (total * model.tokens))
    return ClosedForm(
        alpha,
        str(alpha).replace("**", "^"),
        r"The output is constant on cones of $(z_1, z_2)$: $z z^{\top} - I$ is there the mean of $(\cos 2t, \sin 2t)$.",
        "derived here",
    )


RULES: tuple[Callable[[Model], Any], ...] = (_up_to_signs, _tied, _untied, _cones)
