"""Properties on models that are known by heart: what is said of each, and why one is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy as sp

import smisym
from smisym import SMI, Architecture, Attention
from smisym.link.program import Assign, Program
from smisym.verify import check
from smisym.verify.averages import bends

A = Attention
SIZE, LINE = SMI("abs(z1)", 1), SMI("z1", 1)
HARD = SMI("sign(z1*z2*z3)", 3)
WEAK = (A(readout=0.1),) * 2
JUMPS = Architecture(2, (*WEAK, A(activation="hardmax")), limit="ode")
DEEP = Architecture(2, (*(A(readout=0.01),) * 60, A()), limit="ode")


def bare() -> smisym.Model:
    """y = 2 z, by hand: there is no declaration."""
    z, y = sp.MatrixSymbol("z", 1, 1), sp.MatrixSymbol("y", 1, 1)
    return smisym.compile(Program((z,), (Assign(y, 2 * z),), y))


@pytest.mark.parametrize(
    ("target", "name", "verdict", "said"),
    [
        # abs(z) is learned from 1/(T(T+1)) on, and perfect from P/T on.
        (SIZE, "onset", "holds", "alpha_c = 0.5: tr Q = 0 at 0.45"),
        (SIZE, "closed-forms", "holds", "first threshold 1/(T(T+1)) = 0.5"),
        (SIZE, "thresholds", "holds", "first threshold 0.5, floor 0.5; perfect from 1 on, floor 1"),
        (SIZE, "no-symmetry-missed", "left out", "every flip and exchange of rows is claimed"),
        (SIZE, "small-noise", "holds", ""),
        (SIZE, "overlap-map", "holds", ""),
        (SIZE, "gamp", "holds", "D = 48 and 192"),
        # z itself is learned from the first sample on, by linear regression.
        (LINE, "fixed-point", "holds", "at alpha = 0.3"),
        (LINE, "onset", "left out", "something is learned at any alpha"),
        (LINE, "closed-forms", "left out", "no closed form is known"),
        (LINE, "thresholds", "holds", "perfect from 1 on, floor 1"),
        (LINE, "no-symmetry-missed", "holds", "the least change of the output is 2.0e+00"),
        (LINE, "error-bars", "holds", ""),
        (LINE, "slope", "holds", ""),
        (LINE, "moments", "holds", ""),
        (SMI("z1", 1, noise=0.5), "moments", "holds", ""),
        (SMI("z1**2 + z2**2", 2), "no-symmetry-missed", "left out", "every flip and exchange of rows is claimed"),
        (Architecture(2, (A(rank_ratio=0),)), "gamp", "left out", "data have a width of their own"),
        (SMI("z1", 1, noise=0.5), "small-noise", "left out", "noise is declared"),
        (SMI("z1", 1, noise=0.5), "thresholds", "left out", "no threshold is finite"),
        # A sign is never known perfectly, and never unknown.
        (SMI("sign(z1)", 1), "thresholds", "left out", "no threshold is finite"),
        (
            SMI("sign(z1)", 1),
            "small-noise",
            "left out",
            "the chart gives no density of outputs, to which those under noise could tend",
        ),
        # A product of three signs tells nothing to first order in any of them.
        (HARD, "onset", "left out", "nothing is learned at any alpha by first-order methods"),
        (HARD, "fixed-point", "left out", "nothing is learned at any alpha by first-order methods"),
        (JUMPS, "many-layers", "left out", "the last attention jumps"),
        (DEEP, "many-layers", "left out", "too many layers are declared"),
        (bare(), "mapping", "left out", "a bare program has no tokens"),
        (bare(), "kept", "left out", "a bare program has no file"),
        (bare(), "small-noise", "left out", "a bare program has no noise"),
        (bare(), "truth", "holds", ""),
        (SMI("z1*z2", 2), "closed-forms", "holds", "by quadrature over outputs: 0.59375"),
        (LINE, "later", "left out", "something is learned at any alpha"),
        (SIZE, "later", "left out", "no later threshold is finite"),
        (LINE, "side-information", "holds", "lam = 0.4"),
        (SIZE, "side-information", "holds", "at alpha = 0.3, lam = 0.4"),
        # E log Zout bends downwards along steps that gain of one field and lose of the other.
        (SMI("sign(z1)*z2", 2), "convex", "holds", ""),
        # Squares of these outputs are no numbers: less than the least one, or more than the largest.
        (SMI("1e-200*z1*z2", 2), "moments", "holds", ""),
        (SMI("1e140*z1**3", 1), "moments", "holds", ""),
        # Perfect from P over the outputs of a sample on, and never where these come in steps or are blurred.
        (SIZE, "perfect", "holds", "at alpha = 1 what is left grows by 1 "),
        (SIZE, "perfect-entropy", "holds", "Phi is flat near I at alpha = 1.001; Phi(I) = -inf"),
        (HARD, "perfect", "holds", "never stable"),
        (HARD, "perfect-entropy", "holds", "Phi falls towards I at any alpha; Phi(I) = -inf at 1"),
        (Architecture(2, (A(heads=2, activation="hardmax"),), head_layout="split"), "perfect-entropy", "holds", "-inf"),
        (Architecture(2, (A(),), noise=0.1), "perfect", "left out", "under noise nothing is ever known perfectly"),
    ],
)
def test_what_is_said_of_models_that_are_known_by_heart(target: Any, name: str, verdict: str, said: str) -> None:
    (row,) = check(target, only=name).rows
    assert row.verdict == verdict
    assert said in row.tried.said
    assert (row.tried.number > 0) == (verdict == "holds")


def test_covariances_that_all_outputs_tell_alike_are_off_by_what_posteriors_are() -> None:
    """z2 alone is told nothing of at Q = 0 by any output: -E[dg] is what integrals leave out, and no error of means."""
    report = check(SMI("z1**2 + sign(z1*z2)", 2), only="nishimori")
    assert report.ok


def test_log_zout_bends_upwards_where_no_direction_loses_and_need_not_elsewhere() -> None:
    """sign(z1) z2: E tr(M dg M dg) is negative for M that gains of one field and loses of the other; the number is by
    Gauss-Hermite quadrature of E log Zout, two terms for every y, with 81 and 101 nodes."""
    omap = smisym.overlap_map(smisym.compile(SMI("sign(z1)*z2", 2)), samples=32768)
    Q, step = np.diag([0.636457, 0.183222]), np.array([-0.164900, 0.101740])
    for one in (np.diag(np.abs(step)), np.diag(step * [0, 1])):
        found = bends(omap, Q, one)
        assert found.mean() > 5 * found.std(ddof=1) / len(found) ** 0.5
    found = bends(omap, Q, np.diag(step))
    assert found.mean() == pytest.approx(-0.00333907, abs=5 * found.std(ddof=1) / len(found) ** 0.5)
    assert found.mean() < -0.002
