"""Matrices of extensive rank that are not symmetric: bilinear sequence regression against published values, single
equations and counting; and other models of one field."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq

import smisym
from smisym import SMI, Architecture, Attention
from smisym.base.errors import InputError
from smisym.prior import Prior, RectangularRank, UntiedRank
from smisym.prior.singular_values import NoisyProduct


def regression(rho: float, aspect: float = 1.0, noise: float = 0.0) -> SMI:
    return SMI("z1", 1, noise=noise, rank_ratio=rho, aspect=aspect)


# Rank ratio, alpha and error of "Bilinear sequence regression" (arXiv 2410.18858): noiseless, as many rows as columns.
PUBLISHED = ((0.2, 0.2, 0.660), (0.5, 0.2, 0.777), (0.5, 0.5, 0.3515), (1.0, 0.495, 0.461), (2.0, 0.495, 0.4925))


@pytest.mark.parametrize(("rho", "alpha", "error"), PUBLISHED)
def test_bilinear_sequence_regression_is_as_published(rho: float, alpha: float, error: float) -> None:
    """To the digits that were printed; and to 1e-7 the single equation F(R) = alpha R."""
    found = smisym.curve(smisym.compile(regression(rho)), [alpha])[0]
    assert found.result.ok
    left = 1 - float(found.value.Q[0, 0])
    assert left == pytest.approx(error, abs=1e-3)
    noise = brentq(lambda x: math.log(NoisyProduct(rho, 1.0, math.exp(x)).left) - math.log(alpha) - x, -9, 9)
    assert left == pytest.approx(alpha * math.exp(noise), abs=1e-7)


@pytest.mark.parametrize(("rho", "aspect"), [(0.2, 1.0), (0.5, 3.0), (0.3, 0.5), (2.0, 2.0)])
def test_everything_is_known_from_where_counting_says(rho: float, aspect: float) -> None:
    """r (d + L - r) free numbers of d L, or all of them; and from the start on."""
    counted = rho * (1 + aspect - rho) / aspect if rho < min(1, aspect) else 1.0
    omap = smisym.overlap_map(smisym.compile(regression(rho, aspect)))
    stable, reached = smisym.perfect_recovery(omap).value
    assert (stable.kind, reached.kind) == ("perfect_stable", "perfect_amp")
    assert stable.alpha == pytest.approx(counted, rel=1e-12)
    assert reached.alpha == pytest.approx(counted, rel=1e-2)
    (first,) = smisym.weak_recovery(omap).value
    assert (first.kind, first.alpha) == ("trivial", 0.0)


def test_noise_and_several_tokens() -> None:
    """E = T / (V + Delta): T measurements a sample, each in noise."""
    rho, aspect, noise, alpha = 0.2, 2.0, 0.1, 0.2
    one = smisym.compile(regression(rho, aspect, noise))
    left = brentq(lambda V: NoisyProduct(rho, aspect, (V + noise) / alpha).left - V, 1e-6, 1.0)
    found = smisym.state_evolution(smisym.overlap_map(one, samples=512), alpha).value
    assert 1 - found.Q[0, 0] == pytest.approx(left, abs=5 * found.Q_error[0, 0] + 1e-3)
    two = smisym.compile(SMI(("z1[1]", "z1[2]"), 1, tokens=2, rank_ratio=0.5))
    same = smisym.curve(two, [0.25])[0].value.Q
    np.testing.assert_allclose(same, 1 - 0.3515, atol=1e-3)


def test_what_shows_no_sign_is_learned_from_where_independent_weights_are() -> None:
    """Where next to nothing is known, a matrix is as independent entries; where all is, it has fewer free numbers."""
    omap = smisym.overlap_map(smisym.compile(SMI("abs(z1)", 1, rank_ratio=0.2)), samples=1024)
    (first,) = smisym.weak_recovery(omap).value
    assert (first.kind, first.names) == ("weak", ("z1",))
    assert first.alpha == pytest.approx(0.5, abs=5 * first.error + 1e-6)
    assert float(smisym.closed_form(omap.model)) == 0.5  # type: ignore[arg-type]
    stable = smisym.perfect_recovery(omap).value[0]
    assert stable.alpha == pytest.approx(0.36, rel=1e-12)


def test_the_free_entropy_is_highest_at_the_fixed_point() -> None:
    omap = smisym.overlap_map(smisym.compile(regression(0.5, 2.0)), samples=1024)
    alpha = 0.3
    q = float(smisym.curve(omap, [alpha])[0].value.Q[0, 0])
    at = {d: smisym.free_entropy(omap, np.array([[q + d]]), alpha).value for d in (-0.2, -0.1, 0.0, 0.1, 0.2)}
    assert at[0.0] > max(at[-0.1], at[0.1]) and min(at[-0.1], at[0.1]) > max(at[-0.2], at[0.2]) - 0.1
    assert smisym.free_entropy(omap, np.eye(1), 0.7).value == math.inf
    assert smisym.free_entropy(omap, np.eye(1), 0.6).value == -math.inf


def test_the_declaration_and_the_prior_say_the_same(tmp_path: Path) -> None:
    declared = SMI("sign(z1)", 1, rank_ratio=0.5, aspect=2.0)
    model = smisym.compile(declared)
    assert model.prior == RectangularRank(0.5, 2.0)
    assert smisym.compile(SMI("sign(z1)", 1), prior=RectangularRank(0.5, 2.0)).prior == model.prior
    smisym.save(declared, tmp_path / "matrix.toml")
    assert smisym.load(tmp_path / "matrix.toml") == declared
    assert "rank_ratio = 0.5\naspect = 2.0\n" in (tmp_path / "matrix.toml").read_text()
    (tmp_path / "square.toml").write_text(
        'kind = "smi"\nfields = ["z1"]\nexpressions = ["z1"]\nrank_ratio = 0.5\n', encoding="utf-8"
    )
    assert smisym.load(tmp_path / "square.toml") == SMI("z1", 1, rank_ratio=0.5, aspect=1.0)
    # Names of what is no matrix stay as they were.
    assert "aspect" not in SMI("z1", 1).canonical()
    plain = dataclasses.replace(declared, rank_ratio=None, aspect=None)
    assert plain == SMI("sign(z1)", 1) and plain.digest != declared.digest


@pytest.mark.parametrize(
    ("fields", "shape", "said"),
    [
        (2, {"rank_ratio": 0.5}, "posterior of their matrices is joint"),
        (1, {"aspect": 2.0}, "rank_ratio beside it"),
        (1, {"rank_ratio": 0.0}, "0.001 to 1000"),
        (1, {"rank_ratio": 0.5, "aspect": 1e3}, "0.01 to 100"),
        (1, {"rank_ratio": "half"}, "0.001 to 1000"),
    ],
)
def test_what_is_no_matrix_is_refused(fields: int, shape: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        SMI(" + ".join(f"z{k + 1}" for k in range(fields)), fields, **shape)  # type: ignore[arg-type]


APART = tuple(tuple(t != s for s in range(3)) for t in range(3))
TIED, UNTIED = Attention(rank_ratio=1), Attention(rank_ratio=1, tied=False, mask=APART)


@pytest.mark.parametrize(
    ("declared", "prior", "told"),
    [
        (Architecture(2, (TIED,)), RectangularRank(1.0), "seen by all pairs of tokens.*leave it out"),
        (Architecture(3, (UNTIED,)), RectangularRank(1.0), "seen by all ordered pairs of two tokens.*leave it out"),
        (Architecture(2, (TIED,)), UntiedRank(1.0), "1 layer with a rank_ratio, untied"),
        (SMI("z1", 1), UntiedRank(1.0), "1 layer with a rank_ratio, untied"),
    ],
)
def test_a_matrix_that_sees_something_else_is_refused(declared: Architecture | SMI, prior: Prior, told: str) -> None:
    """Data would be drawn of another number of tokens, or of none."""
    with pytest.raises(InputError, match=told):
        smisym.compile(declared, prior=prior)
