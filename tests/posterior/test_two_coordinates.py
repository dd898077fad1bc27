"""Two layers of extensive rank on two tokens: posteriors on a box against plain sums over the fields of the first."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import smisym
from smisym import Architecture, Attention, Result
from smisym.kernels.numba_code import as_kept

MODEL = smisym.compile(Architecture(2, (Attention(rank_ratio=0.5), Attention(rank_ratio=1.5))))


def by_sums(y: np.ndarray, omega: np.ndarray, V: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """(mean (2, 3), E[z_1 z_1^T] (3, 3)): at each h_1 on a grid, h_2 is Gaussian, of which B h_2 B^T is seen up to a
    shift of all entries; y (2, 2): log-ratios."""
    root = math.sqrt(V[0])
    axis = root * np.linspace(-6, 6, 49)
    z = np.stack(np.meshgrid(*[axis + c for c in omega[0]], indexing="ij"), axis=-1).reshape(-1, 3)
    a = 1 / (1 + np.exp(z[:, 1] - math.sqrt(2) * z[:, 0]))
    b = 1 / (1 + np.exp(z[:, 1] - math.sqrt(2) * z[:, 2]))
    B = np.array([[1 + a, 1 - a], [1 - b, 1 + b]]).transpose(2, 0, 1)
    # s_11 - s_12 and s_22 - s_12 as forms of (z_11, z_12, z_22), h_aa = sqrt(2) z_aa.
    R = np.empty((len(z), 2, 3))
    for row, (i, j) in enumerate(((0, 1), (1, 0))):
        other = B[:, i] - B[:, j]
        first, second = math.sqrt(2) * B[:, i, 0] * other[:, 0], math.sqrt(2) * B[:, i, 1] * other[:, 1]
        R[:, row] = np.stack([first, B[:, i, 0] * other[:, 1] + B[:, i, 1] * other[:, 0], second], axis=1)
    u = -np.array([y[0, 1], y[1, 0]])
    off, S = u - R @ omega[1], V[1] * R @ R.swapaxes(1, 2)
    pulled = np.linalg.solve(S, off[..., None])
    log = -0.5 * (off[:, None] @ pulled)[:, 0, 0] - 0.5 * np.linalg.slogdet(S)[1]
    log -= 0.5 * ((z - omega[0]) ** 2).sum(axis=1) / V[0]
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    second = omega[1] + V[1] * (R.swapaxes(1, 2) @ pulled)[..., 0]
    return np.array([weight @ z, weight @ second]), (z.T * weight) @ z


@pytest.mark.parametrize("V", [(1.0, 1.0), (0.4, 0.1)])
def test_against_sums(V: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    omega = rng.standard_normal((3, 2, 3))
    Z = omega + np.sqrt(V)[:, None] * rng.standard_normal(omega.shape)
    seen = MODEL.observe(Z)
    found = MODEL.channel.moments(seen, omega, np.diag(V), cov=True, rtol=1e-4)
    assert seen.log_ratios is not None
    assert found.cov is not None
    for s in range(len(Z)):
        mean, second = by_sums(seen.log_ratios[s], omega[s], V)
        np.testing.assert_allclose(found.mean[s], mean, atol=3e-3 * math.sqrt(max(V)))
        np.testing.assert_allclose(found.cov[s, 0, :, 0], second - np.outer(mean[0], mean[0]), atol=1e-2 * V[0])


def test_a_coupled_cavity_and_stated_errors() -> None:
    """Rougher integrals are off by less than they say, also where V couples the layers."""
    rng, V = np.random.default_rng(1), np.array([[0.6, 0.2], [0.2, 0.3]])
    omega = rng.standard_normal((8, 2, 3))
    Z = omega + np.linalg.cholesky(V) @ rng.standard_normal(omega.shape)
    fine = MODEL.channel.moments(MODEL.observe(Z), omega, V, rtol=1e-6)
    rough = MODEL.channel.moments(MODEL.observe(Z), omega, V, rtol=0.1)
    gap = np.linalg.solve(np.linalg.cholesky(V), rough.mean - fine.mean)
    assert (np.sqrt((gap**2).sum(axis=(1, 2))) <= rough.error).all()
    assert rough.nodes.sum() < fine.nodes.sum()


def test_scores_of_the_last_layer_that_change_sign_only_relabel_the_output() -> None:
    """Why overlaps between the layers stay zero: g of the last layer changes its sign with omega, that of the first
    does not, so that their products cancel on average."""
    rng, V = np.random.default_rng(2), np.diag([0.7, 0.4])
    omega = rng.standard_normal((6, 2, 3))
    Z = omega + np.sqrt(V) @ rng.standard_normal(omega.shape)
    turn = np.diag([1.0, -1.0])
    g = MODEL.channel.g_out(MODEL.observe(Z), omega, V, rtol=1e-5)
    turned = MODEL.channel.g_out(MODEL.observe(turn @ Z), turn @ omega, V, rtol=1e-5)
    np.testing.assert_allclose(turned, turn @ g, atol=1e-3)


@pytest.mark.parametrize("off", [15.0, 60.0, 1e6])
def test_outputs_far_beyond_what_the_cavity_expects_are_no_success(off: float) -> None:
    """As where an iteration diverges: the box of the coordinates cuts the mass, or has none of it, and says so."""
    Z = np.random.default_rng(4).standard_normal((2, 2, 3))
    omega = Z + off * np.array([[1.0, -1.0, 0.5], [0.0, 0.0, 0.0]])
    found = MODEL.channel.moments(MODEL.observe(Z), omega, np.diag([0.5, 1e-3]), rtol=1e-2)
    assert found.result is Result.EXCLUDED
    assert (found.error > 1e-2).all()


def test_compiled_loops_are_the_numpy_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs, means and second moments of one lattice, and the nodes that the errors ask for."""
    pytest.importorskip("numba")
    kind = MODEL.channel.posterior
    rng = np.random.default_rng(3)
    omega, V = rng.standard_normal((4, 2, 3)), np.array([[0.5, 0.1], [0.1, 0.2]])
    seen = MODEL.observe(omega + np.linalg.cholesky(V) @ rng.standard_normal(omega.shape))
    found = {}
    for name in ("numba", "numpy"):
        monkeypatch.setenv("SMISYM_BACKEND", name)
        found[name] = kind.at(kind.read(seen), omega, np.broadcast_to(V, (4, 2, 2))).integral(1e-3, True, None)
    compiled, plain = found["numba"], found["numpy"]
    for name in ("mean", "cov", "log_norm", "error"):
        np.testing.assert_allclose(getattr(compiled, name), getattr(plain, name), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(compiled.nodes, plain.nodes)


def test_who_waits_for_no_compiler_gets_arrays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As derivations do, with an empty folder of generated modules."""
    pytest.importorskip("numba")
    monkeypatch.setenv("SMISYM_BACKEND", "numba")
    monkeypatch.setenv("SMISYM_CACHE", str(tmp_path))
    layers = (Attention(rank_ratio=0.5, skip=0.7), Attention(rank_ratio=0.5))
    model = smisym.compile(Architecture(2, layers))
    Z = np.random.default_rng(5).standard_normal((2, 2, 3))
    with as_kept() as refused:
        found = model.channel.moments(model.observe(Z), 0.5 * Z, np.diag([0.5, 0.5]), rtol=1e-2)
    assert refused
    assert found.result is Result.SUCCESS
