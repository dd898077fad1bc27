"""How a frame is integrated, written down (:mod:`smisym.posterior.on_frame`)."""

from __future__ import annotations

import numpy as np

from smisym.base.counting import counted
from smisym.base.derivation import Derivation, Formula, Step
from smisym.posterior.on_frame import INTEGRALS, TURNED, OnFrame


def record_frame(kind: OnFrame, derivation: Derivation) -> None:
    """How frames are integrated, and that their mean is the slope of their integral."""
    frame, T = kind.frame, kind.tokens
    off = _off_slope(frame.rank)
    if not off <= 1e-7:
        raise ArithmeticError(f"the mean of a frame misses the slope of its integral by {off:.1e}")
    along = f"of $\\tau^{{{frame.shifts - 1}}}$ times" if frame.shifts > 1 else "of"
    shift = (
        Formula(
            "d",
            rf"\sqrt{{v / T}}\, \tau f_{frame.vectors + 1}, \qquad "
            rf"A_{frame.vectors + 1} = \tau \sqrt{{T / v}}\, \bar\omega",
            "the shift of all tokens, along one more row of the same orthogonal matrix; the integral over $\\tau$, "
            f"{along} a mixture of Gaussians of variance one, is a sum",
        ),
    )
    others = " Where it does not, what is left of the exponent is summed over products of nodes."
    others = others if kind.summed_over_nodes else ""
    r = frame.rank
    integral, meaning, source = _WRITTEN[r]
    derivation.add(
        Step(
            "channel",
            "The frame in closed form",
            f"The output leaves {counted(frame.vectors, 'row')} of an orthogonal matrix O of {r} unknown. Where the "
            "cavity knows all rows of the head equally well, V = v I, the exponent is linear in them, and moments are "
            "those of O under $\\exp(\\mathrm{tr}\\, A^T O)$: with the singular values s of A "
            f"{INTEGRALS[r]}, for rotations, and with $-s_{r}$ for reflections.{others}",
            (
                Formula("A", r"C^{\top} \omega^{\top} / v", f"C ({T}, {frame.vectors}) is read off the output"),
                Formula(r"\int dO\, e^{\mathrm{tr}\, A^T O}", integral, meaning),
                *(shift if frame.shifts else ()),
            ),
            (("E[O] is the slope of the logarithm of the integral", f"by differences along random steps: {off:.0e}"),),
            source=source,
        )
    )


# By the rows of the orthogonal matrices: the integral over rotations, what it says, and where it is from.
_WRITTEN = {
    2: ("I_0(s_1 + s_2)", "the angle has the density of von Mises", "derived here"),
    3: (
        r"\int_0^1 dx\, I_0(x (s_1 + s_2))\, I_0((1 - x)(s_1 - s_2))\, e^{s_3 (2 x - 1)}",
        "x is the sum of two squares of a unit quaternion, uniform on [0, 1]; its powers, and cosines of the two "
        "angles, make all moments to second order",
        "derived here; the integral: T. Lee, IEEE Trans. Automat. Control 63, 3377 (2018)",
    ),
    4: (
        r"\int_0^1 dt\, dt'\, I_0(X (s_1 + s_2))\, I_0(X (s_3 + s_4))\, I_0(Y (s_1 - s_2))\, I_0(Y (s_3 - s_4))",
        "t and t' are sums of two squares of two unit quaternions, uniform on [0, 1], $X = \\sqrt{t t'}$ and "
        "$Y = \\sqrt{(1 - t)(1 - t')}$; powers of these, and cosines of four angles, make all moments to second order",
        "derived here",
    ),
}


def _off_slope(rank: int) -> float:
    """How far differences of the log of the integral are from what the mean says, relative to the step."""
    rng, moments = np.random.default_rng(1), TURNED[rank]
    A, step = 2 * rng.standard_normal((8, rank, rank)), 1e-4 * rng.standard_normal((8, rank, rank))
    change = moments(A + step, 1e-10).log_norm - moments(A - step, 1e-10).log_norm
    slope = 2 * np.einsum("nai,nai->n", moments(A, 1e-10).mean, step)
    return float((np.abs(change - slope) / np.linalg.norm(step, axis=(1, 2))).max())
