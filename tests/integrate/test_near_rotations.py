"""Sums over products of nodes against the closed form, plain draws, and the loops against arrays."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ortho_group

from smisym.integrate.near_rotations import nearly_turned
from smisym.integrate.rotations import turned

# Spread of what is known, and how unequally.
CASES = ((0.8, 0.1), (0.5, 0.1), (0.5, 0.3), (0.1, 0.2), (0.01, 0.1))


def case(v: float, unequal: float, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, S and W of n posteriors of one head of rank three on five tokens, the truth drawn from its cavity."""
    rng = np.random.default_rng(seed)
    C, X = rng.standard_normal((n, 5, 3)), rng.standard_normal((n, 3, 3))
    values, axes = np.linalg.eigh(v * (np.eye(3) + unequal * (X + np.swapaxes(X, 1, 2)) / 2))
    values = np.maximum(values, 0.1 * v)
    root = axes * np.sqrt(values)[:, None]
    O = np.linalg.qr(rng.standard_normal((n, 3, 3)))[0]  # noqa: E741
    omega = C @ O - rng.standard_normal((n, 5, 3)) @ np.swapaxes(root, 1, 2)
    W = (axes / values[:, None]) @ np.swapaxes(axes, 1, 2)
    return np.swapaxes(C, 1, 2) @ omega @ W, np.swapaxes(C, 1, 2) @ C, W


@pytest.mark.parametrize("size", (0.0, 1.0, 30.0, 1e5))
@pytest.mark.parametrize("rtol", (1e-2, 1e-6))
def test_without_a_quadratic_form_it_is_the_closed_form(size: float, rtol: float) -> None:
    A = size * np.random.default_rng(1).standard_normal((5, 3, 3))
    S, W = np.tile(np.diag([2.0, 1.0, 0.5]), (5, 1, 1)), np.tile(3 * np.eye(3), (5, 1, 1))
    found, exact = nearly_turned(A, S, W, rtol), turned(A, 1e-12)
    allowed = found.missed + 1e-12
    assert (allowed <= rtol).all()
    assert (np.abs(found.log_norm + 0.5 * 3 * 3.5 - exact.log_norm) <= allowed + 1e-15 * size).all()
    assert (np.abs(found.mean - exact.mean).max(axis=(1, 2)) <= allowed).all()
    assert (np.abs(found.second - exact.second).max(axis=(1, 2, 3, 4)) <= allowed).all()


@pytest.mark.parametrize("given", CASES)
def test_a_loose_rule_states_what_a_tight_one_finds(given: tuple[float, float]) -> None:
    A, S, W = case(*given, 10)
    loose, tight = nearly_turned(A, S, W, 1e-2), nearly_turned(A, S, W, 1e-4)
    known = np.isfinite(loose.missed) & (tight.missed < 1e-3)
    assert known.sum() >= 3
    off = np.abs(loose.log_norm[known] - tight.log_norm[known])
    assert (off <= 2 * loose.missed[known]).all() and (off <= loose.missed[known]).sum() >= known.sum() - 1


@pytest.mark.parametrize("given", ((0.8, 0.3), (0.3, 0.3)))
def test_plain_draws_say_the_same(given: tuple[float, float]) -> None:
    A, S, W = case(*given, 8, seed=3)
    found = nearly_turned(A, S, W, 1e-4)
    drawn = ortho_group.rvs(3, size=200_000, random_state=4)
    for k in np.flatnonzero(np.isfinite(found.missed)):
        exponent = np.einsum("ai,nai->n", A[k], drawn)
        exponent -= 0.5 * np.einsum("ab,nbi,ij,naj->n", S[k], drawn, W[k], drawn, optimize=True)
        weight = np.exp(exponent - exponent.max())
        # Haar's measure has mass one on rotations and reflections together here, on each of them there.
        whole = np.log(weight.mean()) + exponent.max() + np.log(2)
        spread = weight.std() / weight.mean() / np.sqrt(len(weight))
        if spread < 0.1:
            assert abs(found.log_norm[k] - whole) < 5 * spread
            mean = np.einsum("n,nai->ai", weight, drawn) / weight.sum()
            error = np.einsum("n,nai->ai", weight**2, (drawn - mean) ** 2) ** 0.5 / weight.sum()
            assert (np.abs(found.mean[k] - mean) < 5 * error + 1e-4).all()


def test_a_peak_beside_the_first_one_is_counted_or_left_to_others() -> None:
    """Under diag(0, 0, w) and nothing known four rotations and as many reflections are equally likely."""
    A, S, W = np.zeros((1, 3, 3)), np.diag([60.0, 20.0, 1.0])[None], np.diag([0.0, 0.0, 5.0])[None]
    assert np.isinf(nearly_turned(A, S, W, 1e-2).missed).all()


def test_loops_are_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    given = case(0.3, 0.3, 2)
    monkeypatch.setenv("SMISYM_BACKEND", "numba")
    loops = nearly_turned(*given, 1e-2)
    monkeypatch.setenv("SMISYM_BACKEND", "numpy")
    arrays = nearly_turned(*given, 1e-2)
    for here, there in zip(vars(loops).values(), vars(arrays).values(), strict=True):
        assert here == pytest.approx(there, rel=1e-11, abs=1e-12)
