"""Noise on outputs with kinks and jumps: stated errors hold, against sums over fine grids of the fields."""

from __future__ import annotations

import numpy as np
import pytest

import smisym
from smisym import SMI, Architecture, Attention
from smisym.base.derivation import Derivation
from smisym.charts.pieces import pieces_of
from smisym.integrate.averages import Average
from smisym.link.linking import LinkFunction, link_function
from smisym.link.program import is_smooth, jumps
from smisym.posterior.half_spaces import OnHalfSpaces
from smisym.posterior.pieces import OnPieces

A = Attention
V = np.array([[0.5, 0.1], [0.1, 0.6]])


def grid_mean(
    link: LinkFunction, y: np.ndarray, omega: np.ndarray, V: np.ndarray, noise: float, h: float
) -> np.ndarray:
    """E[Z | y] of two entries, a sum over midpoints: kinks and jumps at zero lie half way between nodes."""
    entries = link.fields * link.tokens
    precision = np.kron(np.linalg.inv(V), np.eye(link.tokens))
    centre, reach = omega.ravel(), 7 * np.sqrt(np.repeat(np.diag(V), link.tokens))
    axes = [
        (np.arange(np.floor((c - w) / h), np.ceil((c + w) / h)) + 0.5) * h for c, w in zip(centre, reach, strict=True)
    ]
    Z = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, entries)
    off = link(Z.reshape(-1, link.fields, link.tokens)).reshape(len(Z), -1) - y.ravel()
    away = Z - centre
    log_w = -0.5 * np.einsum("ni,ij,nj->n", away, precision, away) - 0.5 * (off**2).sum(axis=1) / noise
    w = np.exp(log_w - log_w.max())
    return np.asarray(w @ Z / w.sum()).reshape(omega.shape)


EXPRESSIONS = [
    "relu(z1) - z2/2 + relu(-z2)*z1", "abs(5*z1) + z2", "max(z1, 3*z2) - min(2*z1, z2)",
    "sign(z1)*z2 + z1", "sign(z1*z2) + z1/2", "abs(z1 - abs(z2))",
    "sign(z1)*sqrt(abs(z1)) + sign(z2)",
]  # fmt: skip
ACTIVATIONS = ["relu(s)", "hardmax", "sign(s)", "s/(1 + abs(s))"]
MODELS = {
    **{text: (lambda noise, text=text: SMI(text, 2, noise=noise)) for text in EXPRESSIONS},
    **{name: (lambda noise, name=name: Architecture(2, (A(activation=name),), noise=noise)) for name in ACTIVATIONS},
}


@pytest.mark.parametrize("noise", [0.3, 0.02])
@pytest.mark.parametrize("name", MODELS)
def test_stated_errors_hold(name: str, noise: float) -> None:
    """Errors of lattices bound the distance; of sampling they are one standard error, of 12 samples in all."""
    model = smisym.compile(MODELS[name](noise))
    own = V[: model.fields, : model.fields]
    rng = np.random.default_rng(5)
    shape = (12, model.fields, model.tokens)
    omega = np.linalg.cholesky(np.eye(model.fields) - own) @ rng.standard_normal(shape)
    y = model.channel.sample(omega + np.linalg.cholesky(own) @ rng.standard_normal(shape), rng)
    found = model.channel.moments(y, omega, own)
    fine, coarse = (
        np.stack([grid_mean(model.link, one, o, own, noise, h) for one, o in zip(y.y, omega, strict=True)])
        for h in ((0.02, 0.04) if noise > 0.1 else (0.01, 0.02))
    )

    def size(gap: np.ndarray) -> np.ndarray:
        return np.asarray(np.sqrt(np.einsum("spt,pq,sqt->s", gap, np.linalg.inv(own), gap)))

    off, unsure = size(found.mean - fine), size(fine - coarse)
    lattice = ~found.statistical
    assert (off[lattice] <= 1.5 * found.error[lattice] + unsure[lattice]).all()
    assert (off[~lattice] <= 5 * found.error[~lattice] + unsure[~lattice]).all()
    # Errors that hold because they are large would show nothing.
    assert np.median(found.error) < 0.03
    assert np.median(unsure) < 0.01


def test_one_field_with_a_kink_and_with_a_jump() -> None:
    for text in ("relu(z1)", "sign(z1) + z1"):
        model = smisym.compile(SMI(text, 1, noise=0.05))
        found = model.channel.moments(np.array([[0.3], [-0.2]]), np.array([[[0.2]], [[-0.1]]]), np.array([[0.7]]))
        z = (np.arange(-(10**6), 10**6) + 0.5) * 1e-5
        for y, omega, mean, error in zip((0.3, -0.2), (0.2, -0.1), found.mean.ravel(), found.error, strict=True):
            w = np.exp(-0.5 * (z - omega) ** 2 / 0.7 - 10 * (model.link(z[:, None, None])[:, 0] - y) ** 2)
            assert abs((w @ z) / w.sum() - mean) / np.sqrt(0.7) <= error <= 1e-3


# Signs of affine forms alone decide: posteriors are in closed form.
CLOSED = ("sign(z1)", "sign(z1 - abs(z2))")


@pytest.mark.parametrize(
    ("declared", "smooth", "jumping", "pieces"),
    [
        (SMI("z1*z2 + exp(z1)", 2, noise=0.1), True, False, 0),
        (SMI("sqrt(1 + z1**2) + log(1 + exp(z2))", 2, noise=0.1), True, False, 0),
        (SMI("log(z1**2)", 1, noise=0.1), False, False, 0),
        (SMI("abs(z1)", 1, noise=0.1), False, False, 0),
        (SMI("sign(z1)", 1, noise=0.1), False, True, 2),
        (SMI("sign(z1*z2) + abs(z1)", 2, noise=0.1), False, True, 4),
        (SMI("sign(z1 - abs(z2))", 2, noise=0.1), False, True, 4),
        (Architecture(2, (A(activation="hardmax"),), noise=0.1), False, True, 8),
        (Architecture(3, (A(activation="hardmax"),), noise=0.1), False, True, 0),
        (Architecture(2, (A(activation="relu(s)"),), noise=0.1), False, False, 0),
        (Architecture(2, (A(),), noise=0.1), True, False, 0),
    ],
)
def test_what_is_cut_into_pieces(declared: SMI | Architecture, smooth: bool, jumping: bool, pieces: int) -> None:
    link = link_function(declared, Derivation())
    assert (is_smooth(link.program), jumps(link.program)) == (smooth, jumping)
    assert len(pieces_of(link) or ()) == pieces
    posterior = smisym.compile(declared).channel.posterior
    if isinstance(declared, SMI) and declared.expressions[0] in CLOSED:
        assert isinstance(posterior, OnHalfSpaces)
        return
    assert isinstance(posterior, OnPieces) == (pieces > 0)
    assert posterior.broken != smooth
    # A jump that is not cut is sampled.
    assert posterior.smooth == (pieces > 0 or not jumping)


def test_pieces_are_the_link() -> None:
    link = link_function(SMI("sign(z1*z2) + abs(z1 - abs(z2))", 2), Derivation())
    Z = np.random.default_rng(0).standard_normal((2, 500))
    total, covered = np.zeros(500), np.zeros(500)
    for piece in pieces_of(link) or ():
        *conditions, value = piece.values(*Z)
        inside = np.all([(c >= 0) == (s > 0) for s, c in zip(piece.signs, conditions, strict=True)], axis=0)
        total, covered = total + np.where(inside, value, 0.0), covered + inside
    assert (covered == 1).all()
    np.testing.assert_allclose(total, link(Z.T[:, :, None])[:, 0], atol=1e-12)


def test_an_error_is_not_smaller_than_what_another_estimate_shows() -> None:
    def average(mean: float, error: float) -> Average:
        return Average(np.zeros(1), np.array([[mean]]), None, np.array([error]), np.ones(1), np.array([error <= 0.03]))

    found, sampled = average(0.5, 0.05), average(0.0, 0.01)
    assert not found.replace(np.array([0]), sampled, 0.03).any()
    assert sampled.error == pytest.approx(0.45)
    assert not sampled.converged.any()
    found, sampled = average(0.5, 0.05), average(0.48, 0.01)
    assert found.replace(np.array([0]), sampled, 0.03).all()
    assert found.error == 0.01 and found.converged.all()
